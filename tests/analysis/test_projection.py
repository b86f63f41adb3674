"""Pictures: principal components against scikit-learn, faithfulness against it too, UMAP on every awkward input."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from moco_core.analysis import checks
from moco_core.analysis.projection import faithfulness, principal_components, project

seeds = st.integers(0, 2**32 - 1)


def sphere(n, d, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def clusters(n, d=16, count=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % count
    x = 6 * sphere(count, d, seed)[labels] + rng.normal(size=(n, d))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


# Principal components


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_principal_components_equal_scikit_learns(dim, monkeypatch):
    monkeypatch.setattr(checks, "BLOCK", 1000)
    x = sphere(200, 8) + np.arange(8)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    peer = PCA(dim).fit(x)
    found = principal_components(x, dim)
    signs = np.sign(peer.components_[np.arange(dim), np.abs(peer.components_).argmax(1)])
    assert found.coordinates == pytest.approx(peer.transform(x) * signs, abs=1e-6)
    assert found.share == pytest.approx(peer.explained_variance_ratio_)
    assert found.coordinates.dtype == np.float32
    assert (project(x, "pca", dim) == found.coordinates).all()


@pytest.mark.timeout(30)  # seconds: the covariance of all dimensions would take minutes, and much memory
def test_of_more_dimensions_than_points_only_the_points_count():
    """Dimensions that hold nothing change nothing."""
    x = sphere(20, 6) + np.arange(6)
    wide = np.zeros((20, 8000))
    wide[:, ::1600], wide[:, -1] = x[:, :5], x[:, 5]
    few, many = principal_components(x, 3), principal_components(wide, 3)
    assert many.coordinates == pytest.approx(few.coordinates, abs=1e-6)
    assert many.share == pytest.approx(few.share)


def test_only_directions_count():
    x = sphere(30, 5)
    long = x * np.arange(1, 31)[:, None]
    assert project(long, "pca") == pytest.approx(project(x, "pca"), abs=1e-6)


def test_dimensions_that_do_not_exist_are_zero():
    found = principal_components(np.array([[1.0], [-1.0], [1.0]]), 3)
    assert not found.coordinates[:, 1:].any()
    assert np.ptp(found.coordinates[:, 0]) == pytest.approx(2)
    assert found.share == pytest.approx([1, 0, 0])
    same = principal_components(np.ones((4, 6)), 2)
    assert same.coordinates == pytest.approx(0, abs=1e-12)
    assert same.share == pytest.approx(0)


def test_a_collapsed_space_keeps_its_digits():
    """In float32 the points differ by little more than rounding; the picture must not be made of it."""
    x = (np.ones(32) + 1e-5 * np.random.default_rng(0).normal(size=(300, 32))).astype(np.float32)
    unit = x.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    found = principal_components(x, 2)
    spread = np.linalg.norm(found.coordinates - found.coordinates.mean(0), axis=0)
    assert spread == pytest.approx(np.linalg.svd(unit - unit.mean(0), compute_uv=False)[:2], rel=0.01)


# Faithfulness


@pytest.mark.parametrize(("n", "k"), [(60, 5), (200, 15), (31, 15)])
def test_faithfulness_equals_scikit_learns(n, k, monkeypatch):
    monkeypatch.setattr(checks, "BLOCK", 2000)
    x, picture = sphere(n, 6), np.random.default_rng(1).normal(size=(n, 2))
    found = faithfulness(x, picture, k)
    assert found.trustworthiness == pytest.approx(trustworthiness(x, picture, n_neighbors=k))
    assert found.continuity == pytest.approx(trustworthiness(picture, x, n_neighbors=k))
    assert found.k == k


def test_a_perfect_picture_is_perfectly_faithful():
    angle = np.random.default_rng(0).uniform(0, 1, 80)
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    found = faithfulness(x, angle[:, None])
    assert (found.trustworthiness, found.continuity) == (1, 1)


def test_a_random_picture_is_worth_a_half():
    found = faithfulness(sphere(1500, 16), np.random.default_rng(0).normal(size=(1500, 2)))
    assert found.trustworthiness == pytest.approx(0.5, abs=0.03)
    assert found.continuity == pytest.approx(0.5, abs=0.03)


def test_a_torn_circle_loses_continuity_and_a_squashed_one_trust():
    angle = np.linspace(-np.pi, np.pi, 200, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    torn, squashed = faithfulness(circle, angle[:, None]), faithfulness(circle, circle[:, :1])
    assert torn.continuity < torn.trustworthiness
    assert squashed.trustworthiness < squashed.continuity


def test_equal_points_do_not_count_against_a_picture():
    x = np.repeat(sphere(10, 4), 4, axis=0)
    picture = np.random.default_rng(0).permuted(np.repeat(sphere(10, 2), 4, axis=0)) * 0
    assert faithfulness(x, picture, 3).continuity == 1


def test_few_points_lower_k():
    assert faithfulness(sphere(3, 4), sphere(3, 2)).k == 1
    assert faithfulness(sphere(10, 4), sphere(10, 2)).k == 4
    with pytest.raises(ValueError, match="x must have at least 3 rows, got 2"):
        faithfulness(sphere(2, 4), sphere(2, 2))
    with pytest.raises(ValueError, match=r"picture must have as many rows as x \(5\), got 4"):
        faithfulness(sphere(5, 4), sphere(4, 2))
    with pytest.raises(ValueError, match="picture is not finite in row 0"):
        faithfulness(sphere(5, 4), np.full((5, 2), np.nan))


@settings(max_examples=20)
@given(seed=seeds, n=st.integers(6, 40))
def test_faithfulness_lies_between_zero_and_one_and_survives_rotation(seed, n):
    x, picture = sphere(n, 5, seed), sphere(n, 2, seed ^ 1) * 3 + 7
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))[0]
    found, turned = faithfulness(x, picture), faithfulness(x @ turn, picture[:, ::-1])
    assert 0 <= found.trustworthiness <= 1
    assert 0 <= found.continuity <= 1
    assert turned.trustworthiness == pytest.approx(found.trustworthiness)
    assert turned.continuity == pytest.approx(found.continuity)


# UMAP


def test_umap_keeps_clusters_apart_and_is_faithful():
    x, labels = clusters(240)
    picture = project(x)
    assert picture.shape == (240, 2)
    assert picture.dtype == np.float32
    centres = np.stack([picture[labels == c].mean(0) for c in range(4)])
    nearest_centre = np.linalg.norm(picture[:, None] - centres, axis=2).argmin(1)
    assert (nearest_centre == labels).mean() > 0.98
    assert faithfulness(x, picture).trustworthiness > faithfulness(x, project(x, "pca")).trustworthiness


def test_the_same_call_gives_the_same_picture_and_another_seed_another():
    x, _ = clusters(120)
    first = project(x, seed=3)
    assert (project(x, seed=3) == first).all()
    assert (project(x, seed=4) != first).any()


def test_settings_reach_the_picture():
    x, _ = clusters(120)
    assert project(x, dim=3).shape == (120, 3)
    assert (project(x, neighbors=5) != project(x)).any()

    def mean_gap(picture):
        gap = np.linalg.norm(picture[:, None] - picture, axis=2) + np.diag(np.full(120, np.inf))
        return gap.min(1).mean()

    assert mean_gap(project(x, min_dist=0.9)) > 2 * mean_gap(project(x, min_dist=0.0))


def test_a_start_keeps_points_in_place():
    x, _ = clusters(200)
    before = project(x)
    after = project(x, start=before)
    radius = np.linalg.norm(before - before.mean(0), axis=1).mean()

    def moved(picture):
        return np.linalg.norm((picture - picture.mean(0)) - (before - before.mean(0)), axis=1).mean() / radius

    assert moved(after) < 0.2
    assert moved(project(x, seed=1)) > 2 * moved(after)
    assert np.linalg.norm(after.mean(0) - before.mean(0)) < 0.2 * radius  # nor does the picture shift


@pytest.mark.parametrize(
    ("x", "dim"),
    [
        (sphere(2, 8), 2),
        (np.array([[1.0, 0], [-1, 0]]), 3),
        (sphere(3, 8), 2),
        (sphere(4, 8), 3),
        (sphere(10, 8), 2),  # fewer rows than neighbours
        (sphere(15, 8), 2),
        (np.ones((40, 8)), 2),
        (np.repeat(sphere(10, 8), 5, axis=0), 2),
        (np.vstack([np.ones((30, 4)), -np.ones((30, 4))]), 2),
        (sphere(50, 2), 3),  # fewer dimensions than asked for
        (np.sign(sphere(50, 1)), 2),
        ((np.ones(8) + 1e-6 * sphere(60, 8)).astype(np.float32), 2),
        (sphere(40, 8) * 1e-20, 2),
    ],
)
def test_umap_answers_every_awkward_input(x, dim):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ImportWarning)
        picture = project(x, dim=dim)
    assert picture.shape == (len(x), dim)
    assert np.isfinite(picture).all()


def test_progress_is_told_and_rises():
    seen = []
    project(clusters(100)[0], progress=lambda stage, share: seen.append((stage, share)))
    stages = list(dict.fromkeys(stage for stage, _ in seen))
    assert stages == ["Finding the nearest neighbours", "Loading and compiling UMAP", "Optimising the layout"]
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_calls_from_two_threads_wait_for_each_other():
    x, _ = clusters(150)
    alone = project(x)
    found = []
    threads = [threading.Thread(target=lambda: found.append(project(x))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert all((picture == alone).all() for picture in found)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"x": np.ones((1, 3))}, "x must have at least 2 rows, got 1"),
        ({"x": np.zeros((5, 3))}, "x is zero in row 0"),
        ({"x": np.full((5, 3), np.nan)}, "x is not finite in row 0"),
        ({"method": "tsne"}, "method must be one of umap, pca; got 'tsne'"),
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"neighbors": 1}, "neighbors must be at least 2"),
        ({"neighbors": 2.5}, "neighbors must be a whole number"),
        ({"min_dist": 1.5}, r"min_dist must lie in \[0, 1\], got 1.5"),
        ({"min_dist": np.nan}, "min_dist must lie"),
        ({"seed": -1}, "seed must lie in"),
        ({"start": np.ones((3, 2))}, r"start must have as many rows as x \(5\), got 3"),
        ({"start": np.ones((5, 3))}, "start must have 2 columns, got 3"),
        ({"start": np.full((5, 2), np.inf)}, "start is not finite"),
    ],
)
@pytest.mark.parametrize("method", ["umap", "pca"])
def test_project_refuses(kwargs, message, method):
    with pytest.raises(ValueError, match=message):
        project(**{"x": sphere(5, 3), "method": method} | kwargs)


def test_importing_the_analysis_loads_no_heavy_library():
    code = (
        "import sys; from moco_core.analysis import align, compare, geometry, neighbors, projection, similarity;"
        "print([m for m in ('torch', 'umap', 'sklearn', 'numba', 'scipy', 'streamlit') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
