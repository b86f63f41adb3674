"""Shape of an embedding space: alignment, uniformity, tolerance, spectrum, effective rank, collapse.

Alignment, uniformity and tolerance are defined on the unit hypersphere: rows are scaled to length 1 first.
Spectrum and effective rank take the rows as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from moco_core.analysis.checks import as_count, as_labels, as_pair, as_positive, as_rows, blocks
from moco_core.analysis.staleness import spread

Array = np.ndarray

COMPLETE = 0.05  # a spread (1 − mean cosine) below this: all in one place
DIMENSIONAL = 0.1  # share of the available directions below which the space has lost dimensions


@dataclass(frozen=True)
class PerClass:
    """One number for each of C classes."""

    labels: Array  # C int64, ascending; unknown (negative) labels left out
    count: Array  # C int64, samples
    value: Array  # C float64; NaN where a class has too few samples


@dataclass(frozen=True)
class Collapse:
    """Whether, and how, an embedding has collapsed."""

    verdict: str  # complete, dimensional or none
    measure: str  # what `value` is: spread, or directions in use around the mean
    value: float
    threshold: float  # collapsed below it
    sentence: str  # the verdict with its number


def alignment(x: Array, y: Array, alpha: float = 2.0) -> float:
    """`mean ‖x − y‖^α` over positive pairs, row i of `x` with row i of `y` (N×D each). 0 is best.

    Wang & Isola 2020, sec. 4.1. Raises ValueError for rows without direction, unequal shapes and α ≤ 0.
    """
    return float(_pair_distances(x, y, alpha).mean())


def uniformity(x: Array, t: float = 2.0) -> float:
    """`log mean_{i<j} exp(−t‖xᵢ − xⱼ‖²)` over all pairs of rows (N×D). Lower is more uniform, 0 is collapsed.

    Wang & Isola 2020, sec. 4.1. On unit vectors `−t‖xᵢ − xⱼ‖² = 2t·xᵢ·xⱼ − 2t`: blocks of the product X·Xᵀ above
    its diagonal, summed by log-sum-exp. Raises ValueError for rows without direction, N < 2 and t ≤ 0.
    """
    rows, t = as_rows(x, "x", unit=True), as_positive(t, "t")
    count, total = len(rows), -math.inf
    tile = np.empty((min(256, count), min(8192, count)), rows.dtype)
    for start in range(0, count, 256):
        scaled = rows[start : start + 256] * rows.dtype.type(2 * t)
        for left in range(start, count, 8192):
            others = rows[left : left + 8192]
            s = np.matmul(scaled, others.T, out=tile[: len(scaled), : len(others)])
            if left == start:
                s[np.tril_indices(len(s), m=s.shape[1])] = -np.inf  # only pairs i < j
            top = s.max()
            if top == -np.inf:  # the last row alone
                continue
            s -= top
            np.exp(s, out=s)
            part = float(s.sum(1).sum(dtype=np.float64))
            total = float(np.logaddexp(total, float(top) - 2 * t + math.log(part)))
    return min(total - math.log(count * (count - 1) / 2), 0.0)  # rounding may leave 1e−8


def tolerance(x: Array, labels: Array) -> float:
    """Mean cosine over all pairs of different samples of one class (x N×D, labels N), in [−1, 1].

    Wang & Liu 2021, sec. 4.2. Linear in N: the cosines of a class of n sum to `‖Σx‖² − n`. Unknown (negative)
    labels are left out. Raises ValueError when no class has two samples.
    """
    _, count, sums = _class_cosines(x, labels)
    pairs = count * (count - 1)
    if not pairs.any():
        raise ValueError("labels must give at least one class two samples or more; each has one at most")
    return float(sums.sum() / pairs.sum())


def per_class_alignment(x: Array, y: Array, labels: Array) -> PerClass:
    """`alignment`, α = 2, of the positive pairs of each class (x, y N×D, labels N)."""
    distance = _pair_distances(x, y, 2.0)
    classes, member, count = _classes(labels, len(distance))
    kept = member >= 0
    return PerClass(classes, count, np.bincount(member[kept], distance[kept], len(classes)) / count)


def per_class_tolerance(x: Array, labels: Array) -> PerClass:
    """`tolerance` within each class (x N×D, labels N); NaN for a class of one."""
    classes, count, sums = _class_cosines(x, labels)
    pairs = (count * (count - 1)).astype(np.float64)
    return PerClass(classes, count, np.divide(sums, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0))


def singular_values(x: Array) -> Array:
    """Singular values of `x` (N×D) as it is, neither centred nor scaled: min(N, D) float64, descending."""
    return _singular_values(as_rows(x, "x", minimum=1))


def effective_rank(x: Array) -> float:
    """RankMe: `exp(−Σ p log p)`, `p = σ/‖σ‖₁ + 1e−7`, σ the singular values of `x` (N×D). From 1 to min(N, D).

    Garrido et al. 2023, eq. 1–2. Raises ValueError when every row is zero.
    """
    return _effective_rank(singular_values(x))


def spectrum(x: Array) -> Array:
    """Natural log of the singular values of the covariance of `x` (N×D): D float64, descending.

    Jing et al. 2022, sec. 3: covariance `1/N Σ (z − z̄)(z − z̄)ᵀ`. Unused directions end at the floor of float64
    rounding, 2.2e−16 of the rows' mean square length, rather than at −∞. Raises ValueError when every row is zero.
    """
    rows = as_rows(x, "x")
    centre = rows.mean(0, dtype=np.float64)
    values = np.zeros(rows.shape[1])
    sigma = _singular_values(rows, centre)
    values[: len(sigma)] = sigma**2 / len(rows)
    scale = values.sum() + float(centre @ centre)  # mean square length of the rows
    if scale == 0:
        raise ValueError("x must have a row that is not zero; all are")
    return np.log(np.maximum(values, np.finfo(np.float64).eps * scale))


def collapse(x: Array) -> Collapse:
    """Verdict on the directions of `x` (N×D): complete, dimensional or no collapse, with the number that says so.

    Complete: `1 − mean cosine` between different samples below 0.05. Dimensional (Jing et al. 2022): the directions
    in use around the mean, on the way from 1 to the most that N and D allow, below a tenth. They are counted as
    `effective_rank` does, but on unit rows less their mean, beside which the rest would count for little.
    """
    rows = as_rows(x, "x", unit=True)
    apart = spread(rows)
    if apart < COMPLETE:
        return Collapse(
            "complete",
            "spread",
            apart,
            COMPLETE,
            f"Complete collapse: the mean cosine between different samples is {1 - apart:.4f}, "
            "so nearly all embeddings lie in one place.",
        )
    most = min(len(rows) - 1, rows.shape[1])
    rank = _effective_rank(_singular_values(rows, rows.mean(0, dtype=np.float64)))
    threshold = 1 + DIMENSIONAL * (most - 1)
    verdict = "dimensional" if most > 1 and rank < threshold else "none"
    words = "Dimensional collapse" if verdict == "dimensional" else "No collapse"
    sentence = f"{words}: around their mean, the embeddings vary in about {rank:.1f} of {most} directions."
    return Collapse(verdict, "directions in use", rank, threshold, sentence)


def circle_density(x: Array, points: int = 360, concentration: float = 100.0) -> tuple[Array, Array]:
    """Density of 2-D embeddings (N×2) over the circle: `points` angles in [−π, π) and densities per radian.

    A kernel estimate with the von Mises kernel `exp(κ(cos φ − 1))`, κ the concentration (Taylor 2008): its
    width is about 1/√κ radians. It integrates to 1; a uniform circle reads 1/2π.
    """
    rows = as_rows(x, "x", unit=True, minimum=1)
    if rows.shape[1] != 2:
        raise ValueError(f"x must have 2 columns to lie on a circle, got {rows.shape[1]}")
    points, concentration = as_count(points, "points"), as_positive(concentration, "concentration")
    angle = np.linspace(-math.pi, math.pi, points, endpoint=False)
    grid = np.stack([np.cos(angle), np.sin(angle)])
    density = np.zeros(points)
    for block in blocks(len(rows), points):
        density += np.exp(concentration * (rows[block] @ grid - 1)).sum(0)
    return angle, density * points / (2 * math.pi * density.sum())


def _pair_distances(x: Array, y: Array, alpha: float) -> Array:
    """`‖x − y‖^α` of each positive pair, float64."""
    first, second = as_pair(x, y, ("x", "y"), unit=True, minimum=1)
    if first.shape != second.shape:
        raise ValueError(f"y must have the shape of x {first.shape}, got {second.shape}")
    alpha = as_positive(alpha, "alpha")
    squared = [
        np.square(first[rows] - second[rows], dtype=np.float64).sum(1)
        for rows in blocks(len(first), first.shape[1])
    ]
    return np.concatenate(squared) ** (alpha / 2)


def _classes(labels: Array, rows: int) -> tuple[Array, Array, Array]:
    """Known classes (C), each row's position among them (N, −1 where unknown), and their sizes (C)."""
    known = as_labels(labels, rows)
    classes, member, count = np.unique(known, return_inverse=True, return_counts=True)
    unknown = int((classes < 0).sum())
    if unknown == len(classes):
        raise ValueError("labels must hold at least one known class; all are negative")
    return classes[unknown:], np.maximum(member - unknown, -1), count[unknown:]


def _class_cosines(x: Array, labels: Array) -> tuple[Array, Array, Array]:
    """Classes (C), sizes (C) and the sum of cosines over ordered pairs of different samples of each (C)."""
    rows = as_rows(x, "x", unit=True)
    classes, member, count = _classes(labels, len(rows))
    order = np.argsort(member, kind="stable")
    members = np.split(order[len(order) - int(count.sum()) :], np.cumsum(count)[:-1])
    total = np.array([rows[m].sum(0, dtype=np.float64) for m in members])
    return classes, count, np.square(total).sum(1) - count


def _singular_values(rows: Array, centre: Array | float = 0.0) -> Array:
    """Singular values of `rows − centre`, as roots of the eigenvalues of the smaller Gram matrix, float64.

    Sums of block products run at full speed also beside a training process, where blocked QR took 60 times as
    long. Values below 1e−8 of the largest are rounding.
    """
    count, dim = rows.shape
    gram = np.zeros((min(count, dim),) * 2)
    for block in blocks(count, dim) if dim <= count else [slice(count)]:
        part = rows[block].astype(np.float64) - centre
        gram += part.T @ part if dim <= count else part @ part.T
    return np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0))


def _effective_rank(sigma: Array) -> float:
    total = sigma.sum()
    if total == 0:
        raise ValueError("x must have a row that is not zero; all are")
    p = sigma / total + 1e-7
    return float(np.exp(-(p * np.log(p)).sum()))
