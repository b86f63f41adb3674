"""Cosines of positive and negative pairs: their histograms, what the softmax makes of them, the pairs behind them.

Every pair of a query and a key is looked at in blocks of the product Q·Kᵀ; the whole of it is never held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from moco_core.analysis.checks import as_count, as_labels, as_pair, as_positive, as_rows, blocks, check_width

Array = np.ndarray

BINS = 2000  # of width 0.001 over [−1, 1]
HARDEST = 10  # negatives of each query that count as its hardest


@dataclass(frozen=True)
class Negatives:
    """Cosines of N queries to their negatives, counted in `BINS` equal bins over [−1, 1]."""

    counts: Array  # BINS int64, all pairs
    same_class: Array | None  # BINS int64, pairs of one class (false negatives); None without labels
    hardest: Array  # N×H, the largest cosines of each query, descending


@dataclass(frozen=True)
class SoftmaxWeights:
    """Share of the InfoNCE softmax by cosine, mean over queries, in `BINS` bins; both together sum to 1."""

    positive: Array
    negative: Array


@dataclass(frozen=True)
class Pairs:
    """P pairs of a query and a key, and their cosines."""

    query: Array  # P rows
    key: Array  # P rows
    cosine: Array  # P, descending


def positive_cosines(query: Array, positive: Array) -> Array:
    """Cosine of row i of `query` with row i of `positive` (N×D each): N float64."""
    first, second = as_pair(query, positive, ("query", "positive"), unit=True, minimum=1)
    check_width(second, first.shape[1], "positive", "query")
    return np.clip(np.einsum("nd,nd->n", first, second, dtype=np.float64), -1, 1)


def histogram(cosines: Array) -> Array:
    """Counts of cosines in `BINS` equal bins over [−1, 1]; 1 falls into the last."""
    return np.bincount(_bin(np.asarray(cosines).ravel()), minlength=BINS)


def coarser(counts: Array, bins: int) -> tuple[Array, Array]:
    """Counts (or weights) in fewer bins, and the edges between them (bins + 1). `bins` must divide `BINS`."""
    if as_count(bins, "bins", BINS) and BINS % bins:
        raise ValueError(f"bins must divide {BINS}, got {bins}")
    return np.asarray(counts).reshape(bins, -1).sum(1), np.linspace(-1, 1, bins + 1)


def negatives(
    query: Array,
    keys: Array,
    *,
    query_labels: Array | None = None,
    key_labels: Array | None = None,
    own: bool = False,
    hardest: int = HARDEST,
) -> Negatives:
    """Cosines of every query (N×D) to every key (K×D).

    With `own`, key i is of the same sample as query i and no negative of it. Labels (N and K, negative ones
    unknown) tell which negatives are false: of the query's own class. `hardest` is cut to the keys there are.
    Raises ValueError for rows without direction, unequal widths and when nothing is left as a negative.
    """
    q, k = _sides(query, keys, own)
    labels = _labels(query_labels, key_labels, len(q), len(k))
    most = min(as_count(hardest, "hardest"), len(k) - own)
    counts, same = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    top = np.empty((len(q), most))
    for rows, s in _products(q, k):
        bins = _bin(s)
        tally = np.bincount(bins.ravel(), minlength=BINS)
        alike = None if labels is None else _alike(labels, rows)
        if own:
            at = (np.arange(len(s)), np.arange(rows.start, rows.stop))
            tally -= np.bincount(bins[at], minlength=BINS)
            s[at] = -np.inf
            if alike is not None:
                alike[at] = False
        counts += tally
        if alike is not None:
            same += np.bincount(bins[alike], minlength=BINS)
        top[rows] = -np.sort(-np.partition(s, s.shape[1] - most, axis=1)[:, s.shape[1] - most :], axis=1)
    return Negatives(counts, None if labels is None else same, np.clip(top, -1, 1))


def softmax_weights(
    query: Array, positive: Array, keys: Array, temperature: float, *, own: bool = False
) -> SoftmaxWeights:
    """What the softmax of InfoNCE looks at: `exp(s/τ) / (exp(s⁺/τ) + Σᵢ exp(sᵢ/τ))`, summed by cosine.

    query N×D with the cosines of its positives (N), keys K×D, `own` as for `negatives` (van den Oord 2018,
    He 2019 eq. 1). Raises ValueError as `negatives` does, and for τ ≤ 0.
    """
    q, k = _sides(query, keys, own)
    tau = as_positive(temperature, "temperature")
    plus = np.asarray(positive, np.float64)
    if plus.shape != (len(q),) or not np.isfinite(plus).all():
        raise ValueError(f"positive must be one finite cosine a query, {len(q)} in all, got {plus.shape}")
    weights, kept = np.zeros(BINS), np.empty(len(q))
    for rows, s in _products(q, k):
        bins = _bin(s)
        if own:
            s[np.arange(len(s)), np.arange(rows.start, rows.stop)] = -np.inf
        top = np.maximum(s.max(1), plus[rows])[:, None]  # nothing overflows, whatever τ
        e = np.exp((s - top) / tau)
        first = np.exp((plus[rows] - top[:, 0]) / tau)
        total = first + e.sum(1, dtype=np.float64)
        kept[rows] = first / total
        weights += np.bincount(bins.ravel(), (e / total[:, None]).ravel(), minlength=BINS)
    return SoftmaxWeights(np.bincount(_bin(plus), kept, minlength=BINS) / len(q), weights / len(q))


def quantiles(counts: Array, shares: Array) -> Array:
    """Cosines below which the given shares of the counted pairs lie, exact to a bin; NaN where nothing is counted."""
    reached = np.cumsum(counts)
    if not reached[-1]:
        return np.full(len(shares), np.nan)
    wanted = np.asarray(shares, float) * reached[-1]
    bins = np.minimum(np.searchsorted(reached, wanted), np.flatnonzero(counts)[-1])
    bins = np.maximum(bins, np.flatnonzero(counts)[0])
    within = (wanted - reached[bins]) / np.asarray(counts)[bins] + 1
    return -1 + 2 * (bins + within) / len(counts)


def overlap_coefficient(a: Array, b: Array) -> float:
    """Overlap of two histograms over the same bins: `Σ min(aᵢ/Σa, bᵢ/Σb)`, 0 apart to 1 alike; NaN if one is empty.

    Inman & Bradley 1989, for densities.
    """
    first, second = np.asarray(a, float), np.asarray(b, float)
    if first.shape != second.shape:
        raise ValueError(f"b must have as many bins as a ({len(first)}), got {len(second)}")
    if not (first.any() and second.any()):
        return float("nan")
    return float(np.minimum(first / first.sum(), second / second.sum()).sum())


def pairs_between(
    query: Array,
    keys: Array,
    low: float,
    high: float,
    *,
    query_labels: Array | None = None,
    key_labels: Array | None = None,
    own: bool = False,
    hardest: int | None = None,
    most: int = 24,
) -> Pairs:
    """The `most` hardest negatives with a cosine in [low, high), largest cosine first; 1 belongs to a bin ending there.

    With labels, only pairs of one class; with `hardest`, only each query's so many largest. Otherwise as
    `negatives`.
    """
    q, k = _sides(query, keys, own)
    labels = _labels(query_labels, key_labels, len(q), len(k))
    found = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    for rows, s in _products(q, k):
        inside = (s >= low) & ((s < high) if high < 1 else True)
        if labels is not None:
            inside &= _alike(labels, rows)
        if own:
            at = (np.arange(len(s)), np.arange(rows.start, rows.stop))
            inside[at], s[at] = False, -np.inf
        if hardest is not None and hardest < s.shape[1]:
            inside &= s >= np.partition(s, s.shape[1] - hardest, axis=1)[:, s.shape[1] - hardest, None]
        row, column = np.nonzero(inside)
        row, column, cosine = (
            np.concatenate([found.query, row + rows.start]),
            np.concatenate([found.key, column]),
            np.concatenate([found.cosine, s[row, column]]),
        )
        first = np.argsort(-cosine, kind="stable")[:most]
        found = Pairs(row[first], column[first], np.clip(cosine[first], -1, 1))
    return found


def _sides(query: Array, keys: Array, own: bool) -> tuple[Array, Array]:
    q, k = as_rows(query, "query", unit=True, minimum=1), as_rows(keys, "keys", unit=True, minimum=1)
    check_width(k, q.shape[1], "keys", "query")
    if own and len(q) != len(k):
        raise ValueError(
            f"keys must have as many rows as query ({len(q)}) to be of its samples, got {len(k)}"
        )
    if own and len(k) < 2:
        raise ValueError("keys must have at least 2 rows, or nothing is left as a negative")
    return q, k


def _labels(
    query_labels: Array | None, key_labels: Array | None, queries: int, keys: int
) -> tuple[Array, Array] | None:
    if query_labels is None or key_labels is None:
        return None
    return as_labels(query_labels, queries, "query_labels"), as_labels(key_labels, keys, "key_labels")


def _alike(labels: tuple[Array, Array], rows: slice) -> Array:
    """Which pairs of a block are of one known class."""
    own = labels[0][rows, None]
    return (own == labels[1][None, :]) & (own >= 0)


def _products(q: Array, k: Array) -> Iterator[tuple[slice, Array]]:
    return ((rows, q[rows] @ k.T) for rows in blocks(len(q), len(k)))


def _bin(cosines: Array) -> Array:
    return np.clip((cosines + 1) * (BINS / 2), 0, BINS - 1).astype(np.int32)
