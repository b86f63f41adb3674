"""Two embeddings of the same samples: how alike the spaces are, and what changed for whom."""

from __future__ import annotations

import numpy as np

from moco_core.analysis.checks import as_labels, as_pair, check_width
from moco_core.analysis.geometry import PerClass

Array = np.ndarray


def linear_cka(x: Array, y: Array) -> float:
    """Linear CKA of two embeddings (N×D and N×E, row i of the same sample): 1 alike, near 0 unrelated.

    `‖YᵀX‖² / (‖XᵀX‖·‖YᵀY‖)` of the centred rows, Frobenius norms (Kornblith et al. 2019, sec. 3). Rotations and
    one common scale leave it unchanged. Raises ValueError for unequal N and where all rows of one are equal.
    """
    a, b = _centred(x, y)
    return float(np.linalg.norm(b.T @ a) ** 2 / (np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b)))


def procrustes_distance(x: Array, y: Array) -> float:
    """What no rotation or reflection can bring together: 0 the same space turned, 2 nothing in common.

    `min_R ‖A − B·R‖² = 2 − 2‖AᵀB‖∗` over orthogonal R, A and B the centred rows (N×D and N×E) scaled to Frobenius
    norm 1, `‖·‖∗` the sum of singular values (Schönemann 1966; Ding et al. 2021). Raises ValueError as `linear_cka`.
    """
    a, b = _centred(x, y)
    return max(0.0, 2 - 2 * float(np.linalg.svd(a.T @ b, compute_uv=False).sum()))


def superimposed(x: Array, y: Array) -> Array:
    """`x` (N×D) turned, mirrored and moved, but not scaled, to lie on `y` (N×D) as closely as it can.

    Orthogonal Procrustes (Schönemann 1966). For two pictures of the same samples, whose orientation means nothing.
    """
    a, b = as_pair(x, y, ("x", "y"))
    check_width(b, a.shape[1], "y", "x")
    centred = a - a.mean(0)
    left, _, right = np.linalg.svd(centred.T @ (b - b.mean(0)))
    return centred @ left @ right + b.mean(0)


def class_accuracy(labels: Array, predicted: Array) -> PerClass:
    """Share of the samples of each class that were predicted right (labels and predictions, N each)."""
    truth = as_labels(labels, np.size(labels))
    guess = as_labels(predicted, len(truth), "predicted")
    known = truth >= 0
    if not known.any():
        raise ValueError("labels must hold at least one known class; all are negative")
    classes, member, count = np.unique(truth[known], return_inverse=True, return_counts=True)
    right = np.bincount(member, truth[known] == guess[known], len(classes))
    return PerClass(classes, count, right / count)


def common(a: Array, b: Array) -> tuple[Array, Array]:
    """Rows of `a` and rows of `b` (sample ids, N and M) that hold the same id, in ascending order of the id.

    Of an id that repeats, the first row counts.
    """
    _, rows_a, rows_b = np.intersect1d(a, b, return_indices=True)
    return rows_a, rows_b


def _centred(x: Array, y: Array) -> tuple[Array, Array]:
    """Both, centred and scaled to Frobenius norm 1, float64."""
    first, second = as_pair(x, y, ("x", "y"))
    scaled = []
    for rows, name in ((first, "x"), (second, "y")):
        rows = rows.astype(np.float64)
        size = np.linalg.norm(rows)
        rows = rows - rows.mean(0)
        norm = np.linalg.norm(rows)
        if norm <= 1e-12 * size or norm == 0:
            raise ValueError(f"{name} must have rows that differ; all {len(rows)} are equal")
        scaled.append(rows / norm)
    return scaled[0], scaled[1]
