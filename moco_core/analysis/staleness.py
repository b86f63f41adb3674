"""How stale a queue of keys is: stored keys against the same views encoded again by the current encoders.

A queue (He et al. 2019) holds keys written by older and older key encoders. Encoding the identical views
again gives the keys that an ideal queue would hold now, and every number here compares the two:

- drift of a slot: `1 − cos(stored, fresh)`;
- what it does to the loss: logit error `|q·Δk|/τ` and KL(softmax stale ‖ softmax fresh);
- what it does to learning: the cosine between the query's gradient with stale and with fresh keys, whose
  largest queue length that stays at or above 0.99 is the *consistent length* K*.

The gradient of InfoNCE with respect to q is `Σᵢ pᵢ(kᵢ − k⁺)/τ = (1 − p⁺)/τ · (k̄ − k⁺)`, k̄ the mean negative
under the softmax over the negatives alone. Its direction is that of `k̄ − k⁺`; a query on the sphere feels
only the part perpendicular to q, so the cosine is taken between those tangential parts and averaged over
the anchors. It does not depend on p⁺.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from moco_core.analysis.checks import as_pair, as_positive, as_rows, blocks, check_width

Array = np.ndarray

CONSISTENT = 0.99  # the gradient cosine that a consistent queue keeps
COLLAPSED = 1e-6  # a spread, or a gradient k̄ − k⁺, below this is float32 rounding
EVICTIONS = ("oldest_first", "newest_first", "random", "most_drifted_first")
EVICTION_ANCHORS = 64  # anchors of the counterfactual; four policies share them
MOST_DRAWN = 4096  # units of the bootstrap


@dataclass(frozen=True)
class Comparison:
    """A anchors against M stale and fresh keys: unit rows in float32, checked once by `compare`."""

    query: Array  # A×D
    positive: Array  # A×D
    stale: Array  # M×D, in the order in which slots are added
    fresh: Array  # M×D
    temperature: float
    weight: Array  # M, slots of the queue that each measured one stands for

    def reordered(self, slots: Array) -> Comparison:
        """The same anchors against `slots`, in that order."""
        return replace(self, stale=self.stale[slots], fresh=self.fresh[slots], weight=self.weight[slots])

    def logits(self, anchors: slice, keys: Array) -> Array:
        """q·k/τ of some anchors with `keys` (stale or fresh), plus the log of the weight of each slot."""
        logits = (self.query[anchors] / np.float32(self.temperature)) @ keys.T
        if (self.weight != 1).any():
            logits += np.log(self.weight).astype(np.float32)
        return logits

    def thinned(self, anchors: int) -> Comparison:
        """At most so many anchors, evenly chosen."""
        rows = np.unique(np.linspace(0, len(self.query) - 1, anchors).astype(int))
        return replace(self, query=self.query[rows], positive=self.positive[rows])


@dataclass(frozen=True)
class AgeProfile:
    """A per-slot quantity by age: G groups of slots in order of age."""

    age: Array  # G, mean age in steps
    mean: Array  # G
    low: Array  # G, 10th percentile
    high: Array  # G, 90th percentile
    count: Array  # G, slots


@dataclass(frozen=True)
class SoftmaxError:
    """What stale keys do to the softmax over a queue of M slots, mean over the anchors."""

    length: Array  # L, slots counted from the newest
    kl: Array  # L, KL(softmax stale ‖ softmax fresh) in nats, positive included
    logit_error: Array  # M, |q·(stored − fresh)|/τ
    weight_share: Array  # M, share of the stale softmax over the negatives (all it stands for); sums to 1


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's ρ with a 95 % interval; NaN where it is not defined."""

    value: float
    low: float
    high: float
    ages: int  # distinct ages: the units of the bootstrap


def drift(stored: Array, now: Array) -> Array:
    """`1 − cos` of each pair of rows (M×D, M×D) -> M, float64.

    Computed as `½‖x − y‖²` of the unit vectors: exactly 0 for equal rows, and precise near 0.
    Raises ValueError for rows that have no direction and for unequal shapes.
    """
    return _drift(*_unit_pair(stored, now, ("stored", "now")))


def spread(keys: Array, sample_ids: Array | None = None) -> float:
    """`1 − mean cosine` over all pairs of keys (M×D) of different samples: 0 collapsed, about 1 uniform.

    Exact and linear in M, from sums of squares about the mean of all keys and of each sample's keys: a form
    that keeps its precision in a collapsed space. Without `sample_ids` (M) every row is its own sample.
    NaN when there is no pair of different samples.
    """
    x = as_rows(keys, "keys", unit=True, minimum=1)
    count, mean = len(x), x.mean(0, dtype=np.float64)
    within, pairs_within = 0.0, float(count)
    if sample_ids is not None:
        _check_shape(np.asarray(sample_ids), (count,), "sample_ids")
        _, group, size = np.unique(sample_ids, return_inverse=True, return_counts=True)
        pairs_within = float(np.square(size).sum())
        sums = np.zeros((len(size), x.shape[1]))
        np.add.at(sums, group, x.astype(np.float64))
        within = float(size[group] @ np.square(x - sums[group] / size[group, None]).sum(1))
    total = count * sum(float(np.square(x[rows] - mean).sum()) for rows in blocks(count, x.shape[1]))
    pairs = count**2 - pairs_within
    return max(total - within, 0.0) / pairs if pairs else float("nan")


def by_age(age: Array, values: Array, most: int = 200) -> AgeProfile:
    """Mean and 10–90 % band of `values` (M) at each age (M); neighbours share a group beyond `most` ages."""
    age, values = np.asarray(age), np.asarray(values, np.float64)
    _check_shape(values, age.shape, "values")
    ages, group = np.unique(age, return_inverse=True)
    if len(ages) > most:
        group = group * most // len(ages)
    order = np.argsort(group, kind="stable")
    count = np.bincount(group)
    parts = np.split(values[order], np.cumsum(count)[:-1])
    bands = np.array([np.percentile(part, (10, 90)) for part in parts]).reshape(-1, 2)
    means = [np.bincount(group, weights) / count for weights in (age, values)]
    return AgeProfile(means[0], means[1], bands[:, 0], bands[:, 1], count)


def compare(
    query: Array,
    positive: Array,
    stored: Array,
    fresh: Array,
    temperature: float,
    weight: Array | None = None,
) -> Comparison:
    """Checks and normalises queries and positives (A×D each), stored and fresh keys (M×D each), and τ.

    `weight` (M) says how many slots of the queue each measured one stands for; 1 by default.
    Raises ValueError for rows without a direction, for unequal shapes and for τ or weights ≤ 0.
    """
    q, positive_key = _unit_pair(query, positive, ("query", "positive"))
    stale, now = _unit_pair(stored, fresh, ("stored", "fresh"))
    check_width(stale, q.shape[1], "stored", "query")
    weight = np.ones(len(stale)) if weight is None else np.asarray(weight, np.float64)
    _check_shape(weight, (len(stale),), "weight")
    if not weight.min() > 0:
        raise ValueError(f"weight must be above 0 for every slot, got {weight.min()}")
    return Comparison(q, positive_key, stale, now, as_positive(temperature, "temperature"), weight)


def gradient_cosine(comparison: Comparison, lengths: Sequence[int]) -> Array:
    """Cosine between the query's gradient with stale and with fresh keys, for the first n slots.

    `lengths` are L rising slot counts n. Returns L: the mean over the anchors. An anchor whose gradient is
    lost in rounding (all keys in one place) has no direction and is left out; NaN when none has one.
    """
    _check_lengths(lengths, len(comparison.stale))
    q, positive = comparison.query, comparison.positive
    total, count = np.zeros(len(lengths)), np.zeros(len(lengths))
    for rows in blocks(len(q), len(comparison.stale)):
        anchors, towards = q[rows].astype(np.float64), positive[rows].astype(np.float64)
        means = [
            _mean_negatives(comparison.logits(rows, keys), keys, lengths)
            for keys in (comparison.stale, comparison.fresh)
        ]
        for i, (stale_mean, fresh_mean) in enumerate(zip(*means, strict=True)):
            gradient = _tangent(stale_mean - towards, anchors)
            reference = _tangent(fresh_mean - towards, anchors)
            stale_square, fresh_square = _dots(gradient, gradient), _dots(reference, reference)
            clear = (stale_square > COLLAPSED**2) & (fresh_square > COLLAPSED**2)
            cosine = _dots(gradient, reference)[clear] / np.sqrt(stale_square * fresh_square)[clear]
            total[i] += cosine.sum()
            count[i] += clear.sum()
    return np.divide(total, count, out=np.full(len(lengths), np.nan), where=count > 0)


def softmax_error(comparison: Comparison, lengths: Sequence[int]) -> SoftmaxError:
    """Logit error and softmax weight of every slot, and the KL divergence for the first n slots.

    `lengths` as in `gradient_cosine`.
    """
    _check_lengths(lengths, len(comparison.stale))
    q, positive, temperature = comparison.query, comparison.positive, comparison.temperature
    slots = len(comparison.stale)
    kl, error, share = np.zeros(len(lengths)), np.zeros(slots), np.zeros(slots)
    for rows in blocks(len(q), slots):
        s, f = comparison.logits(rows, comparison.stale), comparison.logits(rows, comparison.fresh)
        positive_logit = (q[rows] * positive[rows]).sum(1, dtype=np.float64) / temperature
        difference = s - f
        error += np.abs(difference).sum(0, dtype=np.float64)
        log_z, moved = np.zeros(len(s)), np.zeros(len(s))
        walks = zip(_prefix_softmax(s, lengths), _prefix_softmax(f, lengths), strict=True)
        for i, ((stretch, weight, rescale, total, top), (*_, total_fresh, top_fresh)) in enumerate(walks):
            moved = moved * rescale + (weight * difference[:, stretch]).sum(1, dtype=np.float64)
            log_z = top + np.log(total)
            log_all = np.logaddexp(positive_logit, log_z)
            log_all_fresh = np.logaddexp(positive_logit, top_fresh + np.log(total_fresh))
            negatives = np.exp(log_z - log_all)  # 1 − p⁺
            kl[i] += (negatives * moved / total - log_all + log_all_fresh).sum()
        share += np.exp(s - log_z.astype(np.float32)[:, None]).sum(0, dtype=np.float64)
    kl = np.maximum(kl / len(q), 0)  # rounding may leave −1e−9
    return SoftmaxError(np.asarray(lengths), kl, error / len(q), share / share.sum())


def consistent_length(length: Array, cosine: Array) -> int:
    """K*: the largest of the rising lengths up to which the gradient cosine stays at or above `CONSISTENT`.

    0 when it doesn't hold at the first; a NaN (no gradient) ends it.
    """
    good = np.asarray(cosine) >= CONSISTENT
    held = len(good) if good.all() else int(np.argmin(good))
    return int(length[held - 1]) if held else 0


def rank_correlation(age: Array, values: Array, draws: int = 500, seed: int = 0) -> RankCorrelation:
    """Spearman's ρ of age and a per-slot quantity (M each), ties given their mean rank.

    Slots of one age were written together and are not independent. The 95 % interval therefore comes from a
    bootstrap over ages: whole ages are drawn with replacement (neighbouring ages together beyond 4096 of
    them), ranks stay those of the full sample. With few ages it is rough.
    """
    age, values = np.asarray(age), np.asarray(values, np.float64)
    _check_shape(values, age.shape, "values")
    a, r = _ranks(age), _ranks(values)
    _, group = np.unique(age, return_inverse=True)
    ages = int(group.max(initial=-1)) + 1
    if ages < 2 or not r.any():
        return RankCorrelation(float("nan"), float("nan"), float("nan"), ages)
    if ages > MOST_DRAWN:
        group = group * MOST_DRAWN // ages
    # Everything a correlation needs, summed within each age: a resample is a weighting of these sums.
    terms = (np.ones_like(a), a, r, a * a, r * r, a * r)
    sums = np.stack([np.bincount(group, term) for term in terms], 1)
    rng = np.random.default_rng(seed)
    uniform = np.full(len(sums), 1 / len(sums))
    rho = _correlation(np.stack([rng.multinomial(len(sums), uniform) @ sums for _ in range(draws)]))
    low, high = np.percentile(rho[np.isfinite(rho)], (2.5, 97.5))
    return RankCorrelation(float(_correlation(sums.sum(0))), float(low), float(high), ages)


def eviction(comparison: Comparison, age: Array, kept: Sequence[int], seed: int = 0) -> dict[str, Array]:
    """The counterfactual: gradient cosine if `kept` slots (L numbers) were left, by what had been evicted.

    Policies as in `EVICTIONS`: oldest first (the queue as it is), newest first, at random, most drifted
    first. The reference is always the gradient with the fresh keys of *the same kept slots*, so the curves
    compare how stale the kept slots are, not how many or which samples they hold. Returns L by policy.
    """
    age = np.asarray(age)
    policies = (
        np.argsort(age, kind="stable"),
        np.argsort(-age, kind="stable"),
        np.random.default_rng(seed).permutation(len(age)),
        np.argsort(_drift(comparison.stale, comparison.fresh), kind="stable"),
    )
    return {
        name: _at(kept, comparison.reordered(order)) for name, order in zip(EVICTIONS, policies, strict=True)
    }


def _at(kept: Sequence[int], comparison: Comparison) -> Array:
    """Gradient cosine once the slots added stand for at least `kept` slots of the queue."""
    stands_for = np.cumsum(comparison.weight)
    counts = np.minimum(np.searchsorted(stands_for, np.asarray(kept) - 0.5) + 1, len(stands_for))
    distinct, back = np.unique(counts, return_inverse=True)
    return gradient_cosine(comparison, distinct.tolist())[back]


def stands_for(slot: Array, age: Array, filled: int) -> Array:
    """How many slots of the queue each measured slot stands for (M), when only some batches were measured.

    `slot` is the position among the `filled` slots, 0 the oldest. The slots of one age share all that lies
    between them and the next newer age measured. Unmeasured keys thus count as stale as the next *older*
    measured ones: where drift grows with age, sampling can make a queue look staler, never fresher.
    Raises ValueError when positions and ages contradict each other.
    """
    ages, group, count = np.unique(age, return_inverse=True, return_counts=True)
    oldest = np.full(len(ages), filled)
    np.minimum.at(oldest, group, slot)
    share = np.diff(filled - oldest, prepend=0) / count  # slots at least as new as each age, apportioned
    if oldest[-1] < 0 or share.min() < 1:
        raise ValueError(
            f"slot must give each key's position, 0 the oldest of {filled}, falling as age rises"
        )
    return share[group]


def length_grid(slots: int, points: int) -> Array:
    """At most `points` slot counts from 1, or a 1024th of `slots`, to `slots`, even on a log scale."""
    return np.unique(np.geomspace(max(1, slots // 1024), slots, points).round().astype(np.int64))


def measure(
    *,
    stored: Array,
    fresh: Array,
    query_view: Array,
    age: Array,
    slot: Array,
    query: Array,
    positive: Array,
    temperature: float,
    filled: int,
    sample_ids: Array | None = None,
    control: tuple[Array, Array] | None = None,
    seed: int = 0,
) -> dict[str, Array]:
    """Everything about one snapshot's staleness, as the flat arrays of drift.safetensors.

    Takes, for M re-encoded slots in any order:
        stored      M×D  keys as the queue holds them
        fresh       M×D  the identical views encoded by the current key encoder
        query_view  M×D  the identical views encoded by the current query encoder
        age         M    steps since each slot was written
        slot        M    its position in the queue, 0 the oldest
        sample_ids  M    optional: pairs of one sample are then left out of the spread
    and for A anchors, encoded now: query A×D, positive A×D (the key of the other view). `temperature` is τ,
    `filled` the number of filled slots of the queue. With M < filled each measured slot stands for several
    (see `stands_for`), and lengths are in slots of the queue.
    `control` is a pair of n×D arrays: a batch encoded twice by the current key encoder.

    Returns, all sorted newest first:
        slot, age, cosine_key, cosine_query, logit_error, weight_share, stands_for     M
        length, gradient_cosine, kl                                         L, newest keys first
        kept, evict_oldest_first, evict_newest_first, evict_random, evict_most_drifted_first   E
    and scalars: k_star, spread, filled, temperature, anchors, rank_correlation, rank_low, rank_high,
    rank_ages, control (largest drift of the control; NaN without one).

    Raises ValueError when rows have no direction, shapes disagree, τ ≤ 0, M < 1 or filled < M.
    """
    age = np.asarray(age)
    order = np.argsort(age, kind="stable")
    if len(order) < 1:
        raise ValueError("stored must hold at least 1 slot, got 0")
    if filled < len(order):
        raise ValueError(f"filled must be at least the {len(order)} slots measured, got {filled}")
    _, lag = _unit_pair(stored, query_view, ("stored", "query_view"))
    columns = {"stored": stored, "slot": slot, "sample_ids": sample_ids}
    for name, column in columns.items():
        if column is not None and len(column) != len(order):
            raise ValueError(f"{name} must hold {len(order)} rows, one for each age, got {len(column)}")
    slot = np.asarray(slot)
    weight = stands_for(slot, age, filled)
    comparison = compare(query, positive, stored, fresh, temperature, weight).reordered(order)
    age, slot = age[order], slot[order]
    ids = None if sample_ids is None else np.asarray(sample_ids)[order]

    key_drift = _drift(comparison.stale, comparison.fresh)
    query_drift = _drift(comparison.stale, lag[order])
    length = np.rint(np.cumsum(comparison.weight)).astype(np.int64)
    counts, kept = length_grid(len(order), 40), length_grid(int(length[-1]), 12)
    cosine = gradient_cosine(comparison, counts.tolist())
    error = softmax_error(comparison, counts.tolist())
    counterfactual = eviction(comparison.thinned(EVICTION_ANCHORS), age, kept.tolist(), seed)
    rho = rank_correlation(age, key_drift, seed=seed)
    length = length[counts - 1]
    scalars = {
        "k_star": consistent_length(length, cosine),
        "spread": spread(comparison.fresh, ids),
        "filled": filled,
        "temperature": temperature,
        "anchors": len(comparison.query),
        "rank_correlation": rho.value,
        "rank_low": rho.low,
        "rank_high": rho.high,
        "rank_ages": rho.ages,
        "control": drift(*control).max(initial=0) if control is not None else np.nan,
    }
    return {
        "slot": slot.astype(np.int64),
        "age": age.astype(np.int64),
        "cosine_key": 1 - key_drift,
        "cosine_query": 1 - query_drift,
        "logit_error": error.logit_error.astype(np.float32),
        "weight_share": error.weight_share.astype(np.float32),
        "stands_for": comparison.weight.astype(np.float32),
        "length": length,
        "gradient_cosine": cosine,
        "kl": error.kl,
        "kept": kept,
        **{f"evict_{name}": curve for name, curve in counterfactual.items()},
        **{name: np.array(value) for name, value in scalars.items()},
    }


def _prefix_softmax(
    logits: Array, lengths: Sequence[int]
) -> Iterator[tuple[slice, Array, Array, Array, Array]]:
    """Walks along the slots (logits A×M), a stretch at a time, up to each of the lengths.

    Yields the stretch; its weights A×n, `exp(logit − top)`; the factor A by which sums of earlier weights
    must be scaled, as `top`, the largest logit so far, may have grown; the sum A of all weights; top A.
    """
    top, total, start = np.full(len(logits), -np.inf, logits.dtype), np.zeros(len(logits)), 0
    for stop in lengths:
        part = logits[:, start:stop]
        higher = np.maximum(top, part.max(1))
        weight = np.exp(part - higher[:, None])
        rescale = np.exp(top - higher).astype(np.float64)
        total = total * rescale + weight.sum(1, dtype=np.float64)
        yield slice(start, stop), weight, rescale, total, higher
        top, start = higher, stop


def _mean_negatives(logits: Array, keys: Array, lengths: Sequence[int]) -> Iterator[Array]:
    """k̄, A×D: the mean of the first n keys under the softmax of their logits, for each length n."""
    weighted = np.zeros((len(logits), keys.shape[1]))
    for stretch, weight, rescale, total, _ in _prefix_softmax(logits, lengths):
        weighted *= rescale[:, None]
        weighted += weight @ keys[stretch]
        yield weighted / total[:, None]


def _tangent(vector: Array, base: Array) -> Array:
    """The part of `vector` (A×D) that is perpendicular to the unit rows of `base` (A×D)."""
    return vector - _dots(vector, base)[:, None] * base


def _dots(x: Array, y: Array) -> Array:
    """x·y of each pair of rows, A."""
    return np.einsum("ad,ad->a", x, y)


def _drift(x: Array, y: Array) -> Array:
    """½‖x − y‖² of unit rows, in blocks of rows; float64."""
    parts = blocks(len(x), x.shape[1], most=8192)
    return np.concatenate([0.5 * np.square(x[part] - y[part], dtype=np.float64).sum(1) for part in parts])


def _ranks(values: Array) -> Array:
    """Ranks with ties at their mean, centred on 0."""
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[inverse] - (len(values) + 1) / 2


def _correlation(sums: Array) -> Array:
    """Pearson's correlation from the sums of 1, a, r, a², r², ar along the last axis; NaN if undefined."""
    n, a, r, aa, rr, ar = np.moveaxis(sums, -1, 0)
    variance = (aa - a * a / n) * (rr - r * r / n)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = (ar - a * r / n) / np.sqrt(np.where(variance > 0, variance, np.nan))
    return np.clip(rho, -1, 1)


def _unit_pair(x: Array, y: Array, names: tuple[str, str]) -> tuple[Array, Array]:
    first, second = as_pair(x, y, names, unit=True, minimum=1)
    check_width(second, first.shape[1], names[1], names[0])
    return first.astype(np.float32, copy=False), second.astype(np.float32, copy=False)


def _check_shape(x: Array, shape: tuple[int, ...], name: str) -> None:
    if x.shape != shape:
        raise ValueError(f"{name} must have shape {shape} like the rows it belongs to, got {x.shape}")


def _check_lengths(lengths: Sequence[int], slots: int) -> None:
    rising = np.diff([0, *lengths])
    if not len(rising) or rising.min() <= 0 or lengths[-1] > slots:
        raise ValueError(f"lengths must rise from at least 1 to at most {slots} slots, got {list(lengths)}")
