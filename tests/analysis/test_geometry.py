"""Geometry against double loops, torch, closed forms and invariances."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moco_core.analysis import checks, geometry
from moco_core.analysis.geometry import (
    alignment,
    circle_density,
    collapse,
    effective_rank,
    per_class_alignment,
    per_class_tolerance,
    singular_values,
    spectrum,
    tolerance,
    uniformity,
)
from moco_core.theory import ideal_uniformity

seeds = st.integers(0, 2**32 - 1)


def sphere(n, d, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def rotation(d, seed=1):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


# Alignment


@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_alignment_is_the_mean_distance_to_a_power(alpha):
    x, y = sphere(20, 5), sphere(20, 5, seed=1)
    loop = sum(math.dist(a, b) ** alpha for a, b in zip(x, y, strict=True)) / 20
    assert alignment(x, y, alpha) == pytest.approx(loop, rel=1e-12)


def test_alignment_of_equal_opposite_and_orthogonal_pairs():
    x = sphere(6, 2)
    assert alignment(x, x) == 0
    assert alignment(x, -x) == pytest.approx(4)
    assert alignment(x, x @ np.array([[0.0, 1], [-1, 0]])) == pytest.approx(2)


def test_alignment_takes_one_pair_and_any_length():
    assert alignment([[3.0, 0]], [[0, 0.5]]) == pytest.approx(2)


@pytest.mark.parametrize(
    ("x", "y", "alpha", "message"),
    [
        (np.eye(3), np.eye(3)[:2], 2, "y must have as many rows as x"),
        (np.eye(3), np.ones((3, 2)), 2, r"y must have the shape of x \(3, 3\), got \(3, 2\)"),
        (np.eye(3), np.zeros((3, 3)), 2, "y is zero in row 0"),
        (np.eye(3), np.eye(3), 0, "alpha must be a finite number above 0"),
        (np.eye(3), np.full((3, 3), np.nan), 2, "y is not finite in row 0"),
    ],
)
def test_alignment_refuses(x, y, alpha, message):
    with pytest.raises(ValueError, match=message):
        alignment(x, y, alpha)


# Uniformity


@pytest.mark.parametrize("t", [0.5, 2.0, 10.0])
def test_uniformity_equals_the_double_loop(t):
    x = sphere(30, 4)
    loop = [math.exp(-t * math.dist(a, b) ** 2) for a, b in combinations(x, 2)]
    assert uniformity(x, t) == pytest.approx(math.log(sum(loop) / len(loop)), rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 255, 256, 257, 513, 1300])
def test_uniformity_equals_torch_pdist(n):
    x = sphere(n, 8).astype(np.float32)
    peer = torch.pdist(torch.tensor(x)).pow(2).mul(-2).exp().mean().log()
    assert uniformity(x) == pytest.approx(peer.item(), rel=2e-6, abs=2e-6)


def test_uniformity_over_several_tiles_of_columns():
    x = sphere(9000, 3, seed=5).astype(np.float32)
    peer = torch.pdist(torch.tensor(x)).pow(2).mul(-2).exp().mean().log()
    assert uniformity(x) == pytest.approx(peer.item(), rel=1e-5)


def test_uniformity_far_below_what_exp_can_hold():
    assert uniformity(np.array([[1.0, 0], [-1, 0]]), t=1000) == pytest.approx(-4000)
    assert uniformity(np.array([[1, 0], [-1, 0]], np.float32), t=1000) == pytest.approx(-4000, rel=1e-6)
    # Two pairs 180° apart, four pairs 90° apart: e^{−4t} vanishes beside e^{−2t}.
    assert uniformity(np.vstack([np.eye(2), -np.eye(2)]), t=1000) == pytest.approx(math.log(4 / 6) - 2000)


def test_uniformity_of_equal_points_is_zero():
    assert uniformity(np.tile(sphere(1, 6), (50, 1))) == pytest.approx(0, abs=1e-12)
    assert uniformity(np.tile(sphere(1, 6), (50, 1)).astype(np.float32)) <= 0


def test_many_uniform_points_come_near_the_ideal():
    assert uniformity(sphere(4000, 6)) == pytest.approx(ideal_uniformity(6), abs=0.01)


@pytest.mark.parametrize(
    ("x", "t", "message"),
    [
        (np.ones((1, 4)), 2, "x must have at least 2 rows, got 1"),
        ([[1.0, 0], [0, 0]], 2, "x is zero in row 1"),
        ([[1.0, 0], [np.nan, 0]], 2, "x is not finite in row 1"),
        (np.eye(3), 0, "t must be a finite number above 0, got 0"),
    ],
)
def test_uniformity_refuses(x, t, message):
    with pytest.raises(ValueError, match=message):
        uniformity(x, t)


# Classes


def test_tolerance_equals_the_double_loop():
    x, labels = sphere(40, 6), np.random.default_rng(1).integers(0, 5, 40)
    same = [x[i] @ x[j] for i, j in combinations(range(40), 2) if labels[i] == labels[j]]
    assert tolerance(x, labels) == pytest.approx(np.mean(same), rel=1e-12)


def test_tolerance_of_each_class():
    x, labels = sphere(30, 6), np.random.default_rng(2).integers(0, 4, 30) * 10
    labels[0] = 99
    found = per_class_tolerance(x, labels)
    assert found.labels.tolist() == [0, 10, 20, 30, 99]
    assert found.count.tolist() == [int((labels == c).sum()) for c in found.labels]
    for c, value in zip(found.labels[:-1], found.value[:-1], strict=True):
        members = x[labels == c]
        assert value == pytest.approx(np.mean([a @ b for a, b in combinations(members, 2)]), rel=1e-12)
    assert math.isnan(found.value[-1])  # a class of one has no pair


def test_alignment_of_each_class():
    x, y, labels = sphere(30, 6), sphere(30, 6, seed=3), np.random.default_rng(2).integers(0, 4, 30)
    found = per_class_alignment(x, y, labels)
    for c, value in zip(found.labels, found.value, strict=True):
        assert value == pytest.approx(alignment(x[labels == c], y[labels == c]), rel=1e-12)
    assert found.value @ found.count / 30 == pytest.approx(alignment(x, y), rel=1e-12)


def test_unknown_labels_are_left_out():
    x, y, labels = sphere(20, 4), sphere(20, 4, seed=1), np.arange(20) % 3
    hidden = labels.copy()
    hidden[::4] = -1
    known = hidden >= 0
    assert tolerance(x, hidden) == pytest.approx(tolerance(x[known], labels[known]))
    for whole, part in (
        (per_class_alignment(x, y, hidden), per_class_alignment(x[known], y[known], labels[known])),
        (per_class_tolerance(x, hidden), per_class_tolerance(x[known], labels[known])),
    ):
        assert whole.labels.tolist() == part.labels.tolist() == [0, 1, 2]
        assert whole.count.tolist() == part.count.tolist()
        assert whole.value == pytest.approx(part.value, nan_ok=True)


def test_one_class_and_a_thousand():
    x = sphere(2000, 8)
    one = tolerance(x, np.zeros(2000, int))
    assert one == pytest.approx((np.square(x.sum(0)).sum() - 2000) / (2000 * 1999))
    thousand = per_class_tolerance(x, np.arange(2000) % 1000)
    assert len(thousand.labels) == 1000
    assert thousand.value == pytest.approx(np.einsum("nd,nd->n", x[:1000], x[1000:]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "labels must give the class of each row; there are none"),
        ([0, 1, 2], "at least one class two samples"),
        ([-1, -1, -1], "at least one known class"),
        ([0, 1], "labels must be one number a row, 3 in all"),
    ],
)
def test_tolerance_refuses(labels, message):
    with pytest.raises(ValueError, match=message):
        tolerance(np.eye(3), labels)


# Spectrum


def with_singular_values(sigma, n, d, seed=0):
    u, v = (
        np.linalg.qr(np.random.default_rng(seed).normal(size=(n, len(sigma))))[0],
        rotation(d)[:, : len(sigma)],
    )
    return (u * sigma) @ v.T


@pytest.mark.parametrize(("n", "d"), [(50, 8), (8, 50), (3000, 5)])
def test_singular_values_equal_numpys(n, d, monkeypatch):
    monkeypatch.setattr(checks, "BLOCK", 1000)  # many blocks
    x = np.random.default_rng(0).normal(size=(n, d)) + 1
    assert singular_values(x) == pytest.approx(np.linalg.svd(x, compute_uv=False), rel=1e-10)


def test_effective_rank_of_a_known_spectrum():
    sigma = np.array([8.0, 4, 2, 1, 1])
    p = sigma / 16 + 1e-7
    expected = math.exp(-sum(q * math.log(q) for q in p))
    assert effective_rank(with_singular_values(sigma, 40, 5)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("d", [1, 2, 3, 16])
def test_effective_rank_of_equal_singular_values_is_their_number(d):
    assert effective_rank(np.eye(max(d, 2), d)) == pytest.approx(d, rel=1e-4)


def test_effective_rank_of_one_direction_is_one_whatever_the_length():
    assert effective_rank(np.outer(np.arange(1, 9), [3.0, 4, 0])) == pytest.approx(1, abs=1e-4)


def test_effective_rank_does_not_mind_a_zero_row_but_needs_another():
    assert effective_rank(np.vstack([np.eye(4), np.zeros((1, 4))])) == pytest.approx(4, rel=1e-4)
    with pytest.raises(ValueError, match="x must have a row that is not zero; all are"):
        effective_rank(np.zeros((4, 4)))
    with pytest.raises(ValueError, match="x is not finite in row 0"):
        effective_rank(np.full((4, 4), np.inf))


@pytest.mark.parametrize(("n", "d"), [(60, 6), (2, 6), (4, 6)])
def test_spectrum_is_the_log_of_the_covariances_singular_values(n, d):
    x = np.random.default_rng(3).normal(size=(n, d)) * np.arange(1, d + 1) + 5
    covariance = np.cov(x.T, bias=True)
    rank = min(n - 1, d)
    assert len(spectrum(x)) == d
    assert spectrum(x)[:rank] == pytest.approx(np.log(np.linalg.svd(covariance)[1][:rank]), abs=1e-9)
    assert (spectrum(x)[rank:] < math.log(1e-12)).all()


def test_spectrum_of_equal_rows_lies_at_the_floor_of_rounding():
    assert spectrum(np.tile([3.0, 4.0], (5, 1))) == pytest.approx(
        math.log(np.finfo(float).eps * 25), abs=1e-6
    )
    with pytest.raises(ValueError, match="not zero"):
        spectrum(np.zeros((5, 2)))


# Collapse


def test_points_in_one_place_are_completely_collapsed():
    x = sphere(1, 16) + 0.01 * sphere(200, 16)
    verdict = collapse(x)
    assert verdict.verdict == "complete"
    cosines = [a @ b for a, b in combinations(x / np.linalg.norm(x, axis=1, keepdims=True), 2)]
    assert verdict.value == pytest.approx(1 - np.mean(cosines), rel=1e-6)
    assert verdict.value < verdict.threshold
    assert f"{1 - verdict.value:.4f}" in verdict.sentence


def test_points_in_a_plane_of_many_dimensions_are_dimensionally_collapsed():
    verdict = collapse(sphere(400, 2) @ rotation(64)[:2])
    assert verdict.verdict == "dimensional"
    assert verdict.value == pytest.approx(2, abs=0.05)
    assert "2.0 of 64 directions" in verdict.sentence


def test_uniform_points_are_not_collapsed():
    verdict = collapse(sphere(1000, 32))
    assert verdict.verdict == "none"
    assert verdict.value == pytest.approx(32, rel=0.05)
    assert verdict.value > verdict.threshold


@pytest.mark.parametrize("x", [np.eye(2), [[1.0, 0], [-1, 0]], [[1.0], [-1.0]]])
def test_two_points_apart_are_not_collapsed(x):
    assert collapse(np.array(x)).verdict == "none"


def test_a_line_through_the_circle_is_dimensional_collapse():
    assert collapse(np.repeat([[0.6, 0.8], [-0.6, -0.8]], 20, axis=0)).verdict == "dimensional"


# The circle


def test_circle_density_integrates_to_one_and_is_flat_for_even_angles():
    grid = 2 * np.pi * np.arange(90) / 90
    angle, density = circle_density(np.stack([np.cos(grid), np.sin(grid)], 1) * 7, points=120)
    assert angle[0] == -math.pi
    assert angle[-1] < math.pi
    assert density == pytest.approx(np.full(120, 1 / (2 * math.pi)), rel=1e-6)
    assert density.sum() * 2 * math.pi / 120 == pytest.approx(1)


def test_circle_density_is_the_von_mises_kernel_of_a_single_point():
    angle, density = circle_density([[0.0, -2.0]], points=720, concentration=50)
    expected = np.exp(50 * np.cos(angle + math.pi / 2)) / (2 * math.pi * np.i0(50))
    assert density == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_circle_density_needs_two_columns():
    with pytest.raises(ValueError, match="x must have 2 columns to lie on a circle, got 3"):
        circle_density(np.eye(3))


# Invariances


@given(seed=seeds, d=st.integers(2, 9), n=st.integers(4, 40))
def test_a_rotation_changes_nothing(seed, d, n):
    x, y, turn = sphere(n, d, seed), sphere(n, d, seed ^ 1), rotation(d, seed)
    labels = np.arange(n) % 2
    assert alignment(x @ turn, y @ turn) == pytest.approx(alignment(x, y), rel=1e-9)
    assert uniformity(x @ turn) == pytest.approx(uniformity(x), rel=1e-9, abs=1e-12)
    assert tolerance(x @ turn, labels) == pytest.approx(tolerance(x, labels), rel=1e-9, abs=1e-12)
    assert effective_rank(x @ turn) == pytest.approx(effective_rank(x), rel=1e-6)
    assert np.exp(spectrum(x @ turn)) == pytest.approx(np.exp(spectrum(x)), abs=1e-9)
    assert collapse(x @ turn).verdict == collapse(x).verdict


@given(seed=seeds, d=st.integers(2, 9), n=st.integers(4, 40))
def test_neither_order_nor_length_matters_on_the_sphere(seed, d, n):
    rng = np.random.default_rng(seed)
    x, labels, order = sphere(n, d, seed), np.arange(n) % 2, rng.permutation(n)
    length = rng.uniform(0.1, 10, (n, 1))
    assert uniformity((x * length)[order]) == pytest.approx(uniformity(x), rel=1e-9, abs=1e-12)
    assert tolerance((x * length)[order], labels[order]) == pytest.approx(tolerance(x, labels), abs=1e-12)
    assert uniformity(x) <= 0
    assert -1 - 1e-12 <= tolerance(x, labels) <= 1 + 1e-12
    assert 1 <= effective_rank(x) <= min(n, d) * (1 + 1e-4)


def test_results_are_plain_floats():
    x = sphere(10, 4).astype(np.float32)
    values = [
        alignment(x, x),
        uniformity(x),
        tolerance(x, np.zeros(10, int)),
        effective_rank(x),
    ]
    assert {type(v) for v in values} == {float}
    assert type(geometry.collapse(x).value) is float
