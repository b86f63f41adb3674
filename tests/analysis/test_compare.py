"""How alike two spaces are: against closed forms and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist

from moco_core.analysis.compare import (
    class_accuracy,
    common,
    linear_cka,
    procrustes_distance,
    superimposed,
)

seeds = st.integers(0, 2**32 - 1)


def rotation(rng, d):
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def test_cka_equals_its_definition_by_kernels():
    """HSIC of the centred linear kernels, N×N: the other way to write it (Kornblith et al. 2019, eq. 3 to 5)."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 6)), rng.normal(size=(20, 3))
    h = np.eye(20) - 1 / 20
    k, m = h @ x @ x.T @ h, h @ y @ y.T @ h
    expected = np.sum(k * m) / np.sqrt(np.sum(k * k) * np.sum(m * m))
    assert linear_cka(x, y) == pytest.approx(expected, rel=1e-12)


def test_cka_of_spaces_without_anything_in_common_is_zero():
    x, y = np.array([[1.0], [-1], [1], [-1]]), np.array([[1.0], [1], [-1], [-1]])
    assert linear_cka(x, y) == pytest.approx(0, abs=1e-15)
    assert procrustes_distance(x, y) == pytest.approx(2)


def test_procrustes_equals_the_residual_after_scipys_best_rotation():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 5)), rng.normal(size=(30, 5))
    a, b = x - x.mean(0), y - y.mean(0)
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    turn, _ = orthogonal_procrustes(b, a)
    assert procrustes_distance(x, y) == pytest.approx(np.linalg.norm(a - b @ turn) ** 2, rel=1e-10)


def test_procrustes_and_scipys_disparity_tell_the_same_nuclear_norm():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
    disparity = procrustes(x, y)[2]  # 1 − ‖AᵀB‖∗²: scipy also scales
    assert (1 - procrustes_distance(x, y) / 2) ** 2 == pytest.approx(1 - disparity)


@given(seeds, st.floats(0.01, 100))
def test_turning_moving_and_scaling_change_nothing(seed, scale):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(15, 4)), rng.normal(size=(15, 3))
    moved = scale * x @ rotation(rng, 4) + rng.normal(size=4)
    assert linear_cka(x, moved) == pytest.approx(1)
    assert procrustes_distance(x, moved) == pytest.approx(0, abs=1e-8)
    assert linear_cka(moved, y) == pytest.approx(linear_cka(x, y), rel=1e-8)
    assert procrustes_distance(moved, y) == pytest.approx(procrustes_distance(x, y), rel=1e-8)


@given(seeds)
def test_both_are_symmetric_and_bounded(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(8, 5)), rng.normal(size=(8, 2))
    assert 0 <= linear_cka(x, y) <= 1
    assert 0 <= procrustes_distance(x, y) <= 2
    assert linear_cka(x, y) == pytest.approx(linear_cka(y, x))
    assert procrustes_distance(x, y) == pytest.approx(procrustes_distance(y, x))


def test_extra_empty_dimensions_change_nothing():
    x = np.random.default_rng(3).normal(size=(10, 3))
    padded = np.hstack([x, np.zeros((10, 4))])
    assert linear_cka(x, padded) == pytest.approx(1)
    assert procrustes_distance(x, padded) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("distance", [linear_cka, procrustes_distance])
def test_what_cannot_be_compared_is_refused(distance):
    x = np.random.default_rng(4).normal(size=(5, 3))
    with pytest.raises(ValueError, match=r"y must have as many rows as x \(5\), got 4"):
        distance(x, x[:4])
    with pytest.raises(ValueError, match="y must have rows that differ; all 5 are equal"):
        distance(x, np.full((5, 2), 0.1))
    with pytest.raises(ValueError, match="x is not finite"):
        distance(np.full((5, 3), np.nan), x)
    with pytest.raises(ValueError, match="x must have at least 2 rows"):
        distance(x[:1], x[:1])


@given(seeds)
def test_a_turned_mirrored_and_moved_picture_is_brought_back(seed):
    rng = np.random.default_rng(seed)
    picture = rng.normal(size=(12, 2))
    moved = picture @ rotation(rng, 2) * rng.choice([1, -1], size=2) + rng.normal(size=2)
    np.testing.assert_allclose(superimposed(moved, picture), picture, atol=1e-9)


def test_superimposing_equals_scipys_rotation_and_keeps_distances():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(2, 20, 2))
    found = superimposed(x, y)
    turn, _ = orthogonal_procrustes(x - x.mean(0), y - y.mean(0))
    np.testing.assert_allclose(found, (x - x.mean(0)) @ turn + y.mean(0), atol=1e-12)
    np.testing.assert_allclose(pdist(found), pdist(x))
    with pytest.raises(ValueError, match="y must have rows as long as those of x"):
        superimposed(x, np.zeros((20, 3)))


def test_class_accuracy_counts_each_class_alone():
    found = class_accuracy([0, 0, 0, 2, 2, -1], [0, 1, 0, 2, 0, 0])
    assert found.labels.tolist() == [0, 2]
    assert found.count.tolist() == [3, 2]
    assert found.value.tolist() == pytest.approx([2 / 3, 1 / 2])
    with pytest.raises(ValueError, match="at least one known class"):
        class_accuracy([-1, -1], [0, 0])


def test_common_samples_are_matched_by_id():
    a, b = np.array([7, 3, 9, 3]), np.array([9, 8, 3])
    rows_a, rows_b = common(a, b)
    assert rows_a.tolist() == [1, 2]
    assert rows_b.tolist() == [2, 0]
    assert a[rows_a].tolist() == b[rows_b].tolist()
    assert not len(common(np.array([1, 2]), np.array([3, 4]))[0])
