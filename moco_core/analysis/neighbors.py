"""Exact nearest neighbours by cosine, and what they say: kNN votes, overlap, hubs, local density."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np

from moco_core.analysis.checks import as_count, as_labels, as_pair, as_positive, as_rows, blocks, check_width
from moco_core.analysis.parallel import in_parallel

Array = np.ndarray

K = 20  # neighbours that vote by default
TEMPERATURE = 0.1  # of the votes
GROUP = 32  # columns that share one maximum in the search for a threshold


@dataclass(frozen=True)
class Hubness:
    """How often each of N samples is among the k nearest of another (Radovanović et al. 2010)."""

    occurrence: Array  # N int64; the mean is k
    skewness: float  # third standardised moment: near 0 without hubs, above 1 with clear ones
    anti_hubs: float  # share of the samples that are nobody's neighbour
    k: int


def nearest(x: Array, k: int) -> tuple[Array, Array]:
    """The k nearest of each row of `x` (N×D) by cosine, itself left out.

    Returns indices N×k (int32) and cosines N×k, most similar first, the lower index first among equals.
    Exact, in blocks of rows. Raises ValueError unless 1 ≤ k < N.
    """
    indices, gaps = nearest_gaps(x, k)
    return indices, 1 - gaps


def nearest_gaps(x: Array, k: int) -> tuple[Array, Array]:
    """`nearest` with `1 − cosine` (N×k, at least 0), which keeps its digits where all cosines are near 1."""
    rows = as_rows(x, "x", unit=True)
    k = as_count(k, "k", len(rows) - 1, "one less than the rows of x")
    return _search(*gap_factors(rows), k, leave_out_self=True)


def nearest_in(bank: Array, query: Array, k: int) -> tuple[Array, Array]:
    """The k rows of `bank` (M×D) nearest to each row of `query` (N×D) by cosine, as `nearest` returns them.

    Raises ValueError unless 1 ≤ k ≤ M and both have the same D.
    """
    rows, wanted = as_rows(bank, "bank", unit=True, minimum=1), as_rows(query, "query", unit=True, minimum=1)
    check_width(wanted, rows.shape[1], "query", "bank")
    k = as_count(k, "k", len(rows), "the rows of bank")
    indices, gaps = _search(*gap_factors(wanted, rows), k, leave_out_self=False)
    return indices, 1 - gaps


def gap_factors(query: Array, bank: Array | None = None) -> tuple[Array, Array]:
    """Arrays N×(D+2) and M×(D+2) whose product, first · secondᵀ, is `cosine − 1` of all pairs of unit rows.

    `cosine − 1 = −½‖q − b‖² = q·b − ½‖q‖² − ½‖b‖²`, whatever point both are measured from. From the mean of the
    bank (the query itself unless given) the terms are as small as the spread: in a collapsed space the cosines
    differ by less than float32 rounding, and a plain product could not tell the neighbours apart.
    """
    others = query if bank is None else bank
    mean = others.mean(0, dtype=np.float64).astype(others.dtype)

    def factors(rows: Array) -> tuple[Array, Array, Array]:
        centred = rows - mean
        half = -0.5 * np.einsum("nd,nd->n", centred, centred)[:, None]
        return centred, half, np.ones_like(half)

    q, half_q, one_q = factors(query)
    b, half_b, one_b = (q, half_q, one_q) if bank is None else factors(bank)
    return np.hstack([q, half_q, one_q]), np.hstack([b, one_b, half_b])


def overlap(a: Array, b: Array, k: int | None = None) -> Array:
    """Jaccard index `|A ∩ B| / |A ∪ B|` of each sample's two neighbour sets, N values in [0, 1].

    `a` and `b` are neighbour indices (N×k, as `nearest` returns them) or, with `k` given, two embeddings of
    the same samples (N×D each, widths may differ). Raises ValueError for unequal numbers of rows.
    """
    if k is not None:
        first, second = as_pair(a, b, ("a", "b"))
        a, b = nearest(first, k)[0], nearest(second, k)[0]
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b) or a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
        raise ValueError(
            "a and b must be neighbour indices with one row a sample, or embeddings with k given; "
            f"got {a.dtype} {a.shape} and {b.dtype} {b.shape}"
        )
    shared = np.concatenate(
        [
            (a[rows, :, None] == b[rows, None, :]).any(2).sum(1)
            for rows in blocks(len(a), a.shape[1] * b.shape[1])
        ]
    )
    return shared / (a.shape[1] + b.shape[1] - shared)


def shared_counts(jaccard: Array, k: int) -> Array:
    """How many of k neighbours are shared, from 0 to k: a Jaccard index J stands for `2kJ/(1 + J)`."""
    return np.rint(2 * k * jaccard / (1 + jaccard)).astype(np.int64)


def chance_overlap(n: int, k: int) -> float:
    """Expected Jaccard index of two independent random k-subsets of the other N − 1 samples.

    The intersection is hypergeometric; the mean of s / (2k − s) over its distribution is summed exactly.
    """
    others = n - 1
    total = math.comb(others, k)
    return sum(
        math.comb(k, s) * math.comb(others - k, k - s) / total * s / (2 * k - s)
        for s in range(max(0, 2 * k - others), k + 1)
    )


def knn_predict(
    bank: Array,
    bank_labels: Array,
    query: Array | None = None,
    k: int = K,
    temperature: float = TEMPERATURE,
) -> Array:
    """The class that the k nearest of `bank` vote for, each with weight `exp(cosine / τ)` (Wu et al. 2018).

    bank M×D with M labels; query N×D, or None to leave each row of the bank out in turn. Rows of unknown
    (negative) label don't vote. Returns N int64; the lower class among equals. Raises ValueError as
    `nearest_in` does.
    """
    rows = as_rows(bank, "bank", unit=True, minimum=1 if query is not None else 2)
    labels = as_labels(bank_labels, len(rows), "bank_labels")
    temperature = as_positive(temperature, "temperature")
    known = np.flatnonzero(labels >= 0)
    if query is None and len(known) == len(labels):
        return vote(*nearest(rows, k), labels, temperature)
    if query is None:
        # Among the labelled, a row may be its own nearest; an unlabelled row is asked like any stranger.
        predicted = np.empty(len(rows), np.int64)
        predicted[known] = knn_predict(rows[known], labels[known], None, k, temperature)
        predicted[labels < 0] = knn_predict(rows[known], labels[known], rows[labels < 0], k, temperature)
        return predicted
    if not len(known):
        raise ValueError("bank_labels must hold at least one known class; all are negative")
    found, cosine = nearest_in(rows[known], query, k)
    return vote(found, cosine, labels[known], temperature)


def knn_accuracy(
    x: Array,
    labels: Array,
    k: int = K,
    temperature: float = TEMPERATURE,
    *,
    bank: Array | None = None,
    bank_labels: Array | None = None,
) -> float:
    """Share of the rows of `x` (N×D) whose class the weighted vote of `knn_predict` gets right, in [0, 1].

    With `bank` (M×D, with `bank_labels`) the votes come from there; without, each row is left out in turn.
    Rows of unknown (negative) label are neither counted nor vote. Raises ValueError as `knn_predict` does,
    and when no label is known.
    """
    rows = as_rows(x, "x", unit=True, minimum=1 if bank is not None else 2)
    truth = as_labels(labels, len(rows))
    known = truth >= 0
    if not known.any():
        raise ValueError("labels must hold at least one known class; all are negative")
    rows, truth = rows[known], truth[known]
    if bank is None:
        k = as_count(k, "k", len(rows) - 1, "one less than the labelled rows of x")
        predicted = knn_predict(rows, truth, None, k, temperature)
    else:
        predicted = knn_predict(bank, np.asarray(bank_labels), rows, k, temperature)
    return float((predicted == truth).mean())


def confusion(labels: Array, predicted: Array, classes: int | None = None) -> Array:
    """Counts C×C: row the true class, column the predicted one. Unknown (negative) labels are left out.

    C is `classes`, or one more than the highest label. Raises ValueError for a label beyond it.
    """
    truth = as_labels(labels, np.size(labels))
    guess = as_labels(predicted, len(truth), "predicted")
    truth, guess = truth[truth >= 0], guess[truth >= 0]
    highest = int(max(truth.max(initial=-1), guess.max(initial=-1)))
    count = highest + 1 if classes is None else as_count(classes, "classes")
    if highest >= count or guess.min(initial=0) < 0:
        raise ValueError(f"classes must exceed the highest label ({highest}) and predicted be 0 or more")
    return np.bincount(truth * count + guess, minlength=count * count).reshape(count, count)


def hubness(indices: Array) -> Hubness:
    """k-occurrence of each sample from neighbour indices (N×k), its skewness and the share of anti-hubs."""
    found = np.asarray(indices)
    if found.ndim != 2 or found.dtype.kind not in "iu" or not found.size:
        raise ValueError(f"indices must be neighbour indices N×k, got {found.dtype} {found.shape}")
    occurrence = np.bincount(found.ravel(), minlength=len(found))
    centred = occurrence - occurrence.mean()
    deviation = float(np.sqrt((centred**2).mean()))
    skewness = float((centred**3).mean() / deviation**3) if deviation > 0 else 0.0
    return Hubness(occurrence, skewness, float((occurrence == 0).mean()), found.shape[1])


def local_density(cosines: Array) -> Array:
    """Mean cosine of each sample to its k nearest (N×k, as `nearest` returns them): N values, 1 is densest."""
    found = np.asarray(cosines)
    if found.ndim != 2 or not found.shape[1]:
        raise ValueError(f"cosines must be an N×k array with k at least 1, got shape {found.shape}")
    return found.mean(1, dtype=np.float64)


def vote(found: Array, cosine: Array, labels: Array, temperature: float = TEMPERATURE) -> Array:
    """The class with the largest sum of `exp(cosine / τ)` among each sample's neighbours, the lower among equals.

    found and cosine N×k, as `nearest` returns them; labels of all that can be found. Returns N int64.
    """
    classes, index = np.unique(labels, return_inverse=True)
    predicted = np.empty(len(found), np.int64)
    for rows in blocks(len(found), len(classes)):
        s = cosine[rows].astype(np.float64)
        weight = np.exp((s - s[:, :1]) / temperature)  # the nearest comes first: no overflow
        cell = np.arange(len(s))[:, None] * len(classes) + index[found[rows]]
        votes = np.bincount(cell.ravel(), weight.ravel(), minlength=len(s) * len(classes))
        predicted[rows] = classes[votes.reshape(len(s), -1).argmax(1)]
    return predicted


def _search(query: Array, bank: Array, k: int, *, leave_out_self: bool) -> tuple[Array, Array]:
    """Indices and `1 − cosine` of the k nearest, from the two factors of `gap_factors`."""
    dtype = np.result_type(query, bank)
    indices, gaps = np.empty((len(query), k), np.int32), np.empty((len(query), k), dtype)
    parts = list(blocks(len(query), len(bank), most=256))
    own = threading.local()  # a buffer for each thread

    def search(rows: slice) -> None:
        if not hasattr(own, "buffer"):
            own.buffer = np.empty((parts[0].stop, len(bank)), dtype)
        s = np.matmul(query[rows], bank.T, out=own.buffer[: rows.stop - rows.start])
        if leave_out_self:
            s[np.arange(len(s)), np.arange(rows.start, rows.stop)] = -np.inf
        indices[rows], value = largest(s, k)
        gaps[rows] = np.clip(-value, 0, 2)

    in_parallel(search, parts)
    return indices, gaps


def largest(s: Array, k: int) -> tuple[Array, Array]:
    """Columns and values of the k largest of each row, largest first, the lower column first among equals.

    The k-th largest of the maxima of disjoint groups of columns is a lower bound for the k-th largest entry,
    and few entries reach it: one comparison finds them, several times faster than a partition of whole rows.
    """
    group = min(GROUP, s.shape[1] // (2 * k))
    if group > 1:
        groups = s.shape[1] // group
        peaks = s[:, : group * groups].reshape(len(s), group, groups).max(1)
        bound = np.partition(peaks, groups - k, axis=1)[:, groups - k, None]
        reached = np.flatnonzero(s >= bound)
        if reached.size <= 8 * k * len(s):  # more where many are equal, as in a collapsed space
            row, value = reached // s.shape[1], s.ravel()[reached]
            order = np.lexsort((-value, row))
            first = np.searchsorted(row, np.arange(len(s)))
            chosen = order[first[:, None] + np.arange(k)]
            return (reached[chosen] % s.shape[1]).astype(np.int32), value[chosen]
    least = np.partition(s, s.shape[1] - k, axis=1)[:, s.shape[1] - k, None]
    above, level = s > least, s == least
    room = k - above.sum(1, dtype=np.int32)[:, None]
    column = np.nonzero(above | (level & (np.cumsum(level, axis=1, dtype=np.int32) <= room)))[1].reshape(
        -1, k
    )
    value = np.take_along_axis(s, column, 1)
    order = np.argsort(-value, axis=1, kind="stable")
    return np.take_along_axis(column, order, 1).astype(np.int32), np.take_along_axis(value, order, 1)
