"""Pictures of an embedding space in two or three dimensions, and how faithful they are.

Only directions count: rows are scaled to length 1 first, and neighbours are those of the cosine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from moco_core.analysis.checks import as_count, as_pair, as_rows, blocks
from moco_core.analysis.neighbors import gap_factors, largest, nearest_gaps

Array = np.ndarray
Progress = Callable[[str, float], None]  # called with what is being done and the share of it that is done

METHODS = ("umap", "pca")
# Epochs and learning rate from principal components: 500 epochs lift trustworthiness by 0.001 on Fashion-MNIST.
COLD = (150, 1.0)
# From the picture of nearly the same space: equal trustworthiness, and points stay where they can.
WARM = (100, 0.25)
_umap_lock = threading.Lock()  # two UMAP fits at once in one process can abort it


@dataclass(frozen=True)
class Principal:
    """Principal components of the unit rows."""

    coordinates: Array  # N×dim float32
    share: Array  # dim float64, share of the variance along each


@dataclass(frozen=True)
class Faithfulness:
    """How well the k nearest neighbours survive a projection; 1 is perfect, about ½ is chance."""

    trustworthiness: float  # falls with strangers that the picture shows as neighbours
    continuity: float  # falls with neighbours that the picture tears apart
    k: int


def project(
    x: Array,
    method: str = "umap",
    dim: int = 2,
    seed: int = 0,
    neighbors: int = 15,
    min_dist: float = 0.1,
    *,
    start: Array | None = None,
    progress: Progress | None = None,
) -> Array:
    """Coordinates N×dim (float32) of `x` (N×D) by UMAP (McInnes et al. 2018) or principal components.

    UMAP gets exact neighbours, starts from the principal components and runs with a fixed seed on one thread:
    the same call gives the same picture. With `start` (N×dim, a picture of nearly the same space) it goes from
    there, more gently. `neighbors` counts each point itself, as umap-learn does, and is lowered to N − 1 where
    that is less; two points only have principal components. `min_dist`, in picture units, is how close points
    may lie. The first call in a process also compiles UMAP, some seconds. UMAP calls wait for each other.

    Raises ValueError for rows without direction, fewer than two rows, and settings out of range.
    """
    rows = as_rows(x, "x", unit=True)
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    dim = as_count(dim, "dim")
    neighbors = as_count(neighbors, "neighbors")
    if neighbors < 2:
        raise ValueError("neighbors must be at least 2 (each point counts itself), got 1")
    if not 0 <= min_dist <= 1:
        raise ValueError(f"min_dist must lie in [0, 1], got {min_dist}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must lie in [0, 2³²), got {seed}")
    principal = principal_components(rows, dim).coordinates
    if start is None:
        first, pace = _boxed(_jittered(principal, seed)), COLD
    else:
        given = as_pair(x, start, ("x", "start"))[1]
        if given.shape[1] != dim:
            raise ValueError(f"start must have {dim} columns, got {given.shape[1]}")
        first, pace = _jittered(given, seed), WARM
    if method == "pca" or len(rows) == 2:
        return principal
    if progress:
        progress("Finding the nearest neighbours", 0.0)
    graph = _neighbor_graph(rows, min(neighbors, len(rows) - 1))
    return _umap(rows, graph, first, pace, seed, min_dist, progress)


def principal_components(x: Array, dim: int = 2) -> Principal:
    """The first `dim` principal components of the unit rows of `x` (N×D), with their share of the variance.

    Signs are fixed so that each axis' largest loading is positive. Components that D or the data don't have
    are 0.
    """
    rows, dim = as_rows(x, "x", unit=True), as_count(dim, "dim")
    mean = rows.mean(0, dtype=np.float64)
    if len(rows) < rows.shape[1]:  # D×D may be more than memory holds; N×N has the same variances
        centred = rows - mean
        products = centred @ centred.T
        variance, axes = _largest(products, dim)
        there = variance > np.finfo(np.float64).eps * len(rows) * variance.max()
        axes = centred.T @ (axes * there / np.sqrt(np.where(there, variance, 1)))
    else:
        products = np.zeros((rows.shape[1], rows.shape[1]))
        for block in blocks(len(rows), rows.shape[1]):
            centred = rows[block] - mean
            products += centred.T @ centred
        variance, axes = _largest(products, dim)
    axes = axes * np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
    coordinates = np.zeros((len(rows), dim), np.float32)
    for block in blocks(len(rows), rows.shape[1]):
        coordinates[block, : axes.shape[1]] = (rows[block] - mean) @ axes
    total = np.trace(products)
    share = np.zeros(dim)
    share[: len(variance)] = variance / total if total > 0 else 0.0
    return Principal(coordinates, share)


def _largest(products: Array, count: int) -> tuple[Array, Array]:
    """The `count` largest eigenvalues of M×M products, and their vectors M×count."""
    values, vectors = np.linalg.eigh(products)
    return np.maximum(values[::-1][:count], 0), vectors[:, ::-1][:, :count]


def faithfulness(x: Array, picture: Array, k: int = 15) -> Faithfulness:
    """Trustworthiness and continuity of a picture (N×dim) of `x` (N×D), each in [0, 1].

    `1 − 2/(N·k·(2N − 3k − 1)) · Σᵢ Σⱼ (r(i, j) − k)`; Venna & Kaski 2001, eq. 1–2. For trustworthiness j runs
    over the k nearest in the picture that are not among the k nearest of `x`, and r is the rank of j by
    cosine in `x`; for continuity the other way round. Exact, in blocks of rows. The formula needs k < N/2:
    for fewer rows k is lowered to that. Raises ValueError for N < 3 and unequal numbers of rows.
    """
    rows, flat = as_rows(x, "x", unit=True, minimum=3), as_pair(x, picture, ("x", "picture"))[1]
    count = len(rows)
    k = min(as_count(k, "k"), (count - 1) // 2)
    left, right = gap_factors(rows)
    strangers = torn = 0
    for block in blocks(count, count, most=256):
        full, drawn = left[block] @ right.T, _closeness(flat, block)
        own = np.arange(len(full)), np.arange(block.start, block.stop)
        full[own] = drawn[own] = -np.inf
        near_full, near_drawn = largest(full, k)[0], largest(drawn, k)[0]
        strangers += _excess_rank(full, near_drawn, near_full, k)
        torn += _excess_rank(drawn, near_full, near_drawn, k)
    scale = 2 / (count * k * (2 * count - 3 * k - 1))
    return Faithfulness(float(1 - scale * strangers), float(1 - scale * torn), k)


def _closeness(flat: Array, block: slice) -> Array:
    """Minus the squared Euclidean distance of the points of a block to all others."""
    out = np.zeros((block.stop - block.start, len(flat)), flat.dtype)
    for axis in flat.T:
        out -= np.square(axis[block, None] - axis)
    return out


def _excess_rank(s: Array, near: Array, known: Array, k: int) -> int:
    """Sum of `rank − k` by similarity `s` over the points of `near` that are not in `known` (B×k each)."""
    missing = ~(near[:, :, None] == known[:, None, :]).any(2)
    total = 0
    for i, place in zip(*np.nonzero(missing), strict=True):
        closer = np.count_nonzero(s[i] > s[i, near[i, place]])  # equally close ones count for the picture
        total += max(0, int(closer) + 1 - k)
    return total


def _neighbor_graph(rows: Array, neighbors: int) -> tuple[Array, Array]:
    """Indices and cosine distances (N×neighbors) as UMAP expects them: each point first among its own."""
    indices, gaps = nearest_gaps(rows, neighbors - 1)
    own = np.arange(len(rows), dtype=np.int32)[:, None]
    return np.hstack([own, indices]), np.hstack([np.zeros((len(rows), 1)), gaps]).astype(np.float32)


def _jittered(start: Array, seed: int) -> Array:
    """A start without equal points, which attract but never part: noise of a ten-thousandth of its extent."""
    extent = float(np.ptp(start, axis=0).max()) or 1.0
    noise = np.random.default_rng(seed).normal(scale=1e-4 * extent, size=start.shape)
    return (start + noise).astype(np.float32)


def _boxed(start: Array) -> Array:
    """Each axis stretched to [0, 10], the extent that UMAP's learning rate is made for."""
    low = start.min(0)
    return 10 * (start - low) / (start.max(0) - low)


def _umap(
    rows: Array,
    graph: tuple[Array, Array],
    start: Array,
    pace: tuple[int, float],
    seed: int,
    min_dist: float,
    progress: Progress | None,
) -> Array:
    """UMAP's layout of given neighbours from a given start, with `pace` its epochs and learning rate.

    The parts of `UMAP.fit`, which itself would stretch any start to a box and so undo an earlier picture.
    """
    with _umap_lock:
        if progress:
            progress("Loading and compiling UMAP", 0.0)
        from umap.layouts import optimize_layout_euclidean
        from umap.umap_ import find_ab_params, fuzzy_simplicial_set, make_epochs_per_sample

        indices, distances = graph
        fuzzy = fuzzy_simplicial_set(
            rows,
            indices.shape[1],
            np.random.RandomState(seed),
            "euclidean",  # not used: the neighbours are given
            knn_indices=indices,
            knn_dists=distances,
        )[0].tocoo()
        epochs, rate = pace
        kept = fuzzy.data >= fuzzy.data.max() / epochs  # weaker edges would never be sampled
        a, b = find_ab_params(1.0, min_dist)
        picture = np.ascontiguousarray(start, np.float32)
        optimize_layout_euclidean(
            picture,
            picture,
            fuzzy.row[kept],
            fuzzy.col[kept],
            epochs,
            len(rows),
            make_epochs_per_sample(fuzzy.data[kept], epochs),
            a,
            b,
            np.random.default_rng(seed).integers(-(2**31) + 1, 2**31 - 1, 3),
            initial_alpha=rate,
            tqdm_kwds={
                "disable": progress is None,
                "file": progress and _EpochBar(progress),
                "bar_format": "{n}/{total}",
            },
            move_other=True,
        )
    return picture


class _EpochBar:
    """The 'file' that UMAP's progress bar, its only report of progress, is printed to."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def write(self, text: str) -> None:
        done, _, total = text.strip().partition("/")
        if done.isdecimal() and total.isdecimal() and int(total):
            self.progress("Optimising the layout", int(done) / int(total))

    def flush(self) -> None:
        """Nothing is held back."""
