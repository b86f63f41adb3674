"""Aligned pictures: points stay where they were unless their neighbours changed."""

from __future__ import annotations

import numpy as np
import pytest

from moco_core.analysis.align import align, displacement
from moco_core.analysis.projection import faithfulness, project


def drifting(steps, n=240, d=16, count=4, seed=0):
    """Clusters that drift a little and turn in space from step to step."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % count
    x = 2 * rng.normal(size=(count, d))[labels] + rng.normal(size=(n, d))
    found = []
    for _ in range(steps):
        found.append(x @ np.linalg.qr(rng.normal(size=(d, d)))[0])
        x = x + 0.1 * rng.normal(size=x.shape)
    return found, labels


def test_aligned_steps_move_less_than_separate_ones_and_are_as_faithful():
    steps, _ = drifting(4)
    aligned = align(steps)
    separate = np.stack([project(x, seed=i) for i, x in enumerate(steps)])
    assert aligned.shape == (4, 240, 2)
    assert aligned.dtype == np.float32
    assert displacement(aligned).max() < 0.8 * displacement(separate).min()
    assert displacement(aligned).mean() < 0.5 * displacement(separate).mean()
    trust = [
        np.mean([faithfulness(x, p).trustworthiness for x, p in zip(steps, pictures, strict=True)])
        for pictures in (aligned, separate)
    ]
    assert trust[0] == pytest.approx(trust[1], abs=0.01)


def test_the_first_picture_is_that_of_project():
    steps, _ = drifting(2)
    assert (align(steps, seed=5)[0] == project(steps[0], seed=5)).all()
    assert (align(steps[:1], "pca", dim=3)[0] == project(steps[0], "pca", dim=3)).all()


def test_principal_components_of_a_turning_space_stand_still():
    x = np.random.default_rng(0).normal(size=(50, 3)) * [3, 2, 1]
    turns = [np.eye(3), np.diag([-1.0, 1, 1]), np.eye(3)[[1, 2, 0]]]
    aligned = align([x @ turn for turn in turns], "pca")
    assert aligned[1] == pytest.approx(aligned[0], abs=1e-5)
    assert aligned[2] == pytest.approx(aligned[0], abs=1e-5)


def test_the_same_call_gives_the_same_pictures():
    steps, _ = drifting(3, n=60)
    assert (align(steps) == align(steps)).all()


@pytest.mark.parametrize("method", ["umap", "pca"])
def test_spaces_may_differ_in_width_and_be_collapsed(method):
    rng = np.random.default_rng(0)
    steps = [np.ones((30, 4)), rng.normal(size=(30, 8)), np.repeat(rng.normal(size=(10, 2)), 3, axis=0)]
    pictures = align(steps, method, dim=3)
    assert pictures.shape == (3, 30, 3)
    assert np.isfinite(pictures).all()


def test_two_samples():
    assert align([np.eye(2), -np.eye(2)]).shape == (2, 2, 2)


def test_progress_covers_all_steps():
    seen = []
    align(drifting(3, n=40)[0], progress=lambda stage, share: seen.append((stage, share)))
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 1
    assert seen[-1][0] == "Optimising the layout (step 3 of 3)"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "steps must hold at least one embedding, got none"),
        ([np.eye(4), np.eye(3)], r"steps\[1\] must have as many rows as steps\[0\] \(4\), got 3"),
        ([np.eye(4), np.full((4, 2), np.nan)], r"steps\[1\] is not finite in row 0"),
        ([np.eye(4), np.zeros((4, 4))], "x is zero in row 0"),
    ],
)
def test_align_refuses(steps, message):
    with pytest.raises(ValueError, match=message):
        align(steps)


def test_displacement_is_measured_after_turning_and_relative_to_the_radius():
    rng = np.random.default_rng(0)
    picture = rng.normal(size=(100, 2))
    picture -= picture.mean(0)
    turned = picture @ [[0, 1], [-1, 0]] * [1, -1] + [5, 7]
    assert displacement(np.stack([picture, turned])) == pytest.approx([0], abs=1e-12)
    square = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    # Twice as large, every point of the unit circle moves by 1; the radii are 1 and 2.
    assert displacement(np.stack([square, 2 * square])) == pytest.approx([1 / np.sqrt(2.5)])
    assert displacement(np.zeros((3, 4, 2))).tolist() == [0, 0]
    assert displacement(square[None]).shape == (0,)
