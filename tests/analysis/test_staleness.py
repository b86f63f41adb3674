"""Every staleness number against a closed form, or against the textbook formula written out loop by loop."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from moco_core.analysis import checks, staleness
from moco_core.analysis.staleness import (
    by_age,
    compare,
    consistent_length,
    drift,
    eviction,
    gradient_cosine,
    length_grid,
    measure,
    rank_correlation,
    softmax_error,
    spread,
    stands_for,
)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def random_unit(rng, *shape):
    return unit(rng.normal(size=shape))


def rotate(keys, angle):
    """Each key turned by its angle (radians) within its own first two coordinates."""
    x, y = keys[:, 0].copy(), keys[:, 1].copy()
    turned = keys.copy()
    turned[:, 0] = np.cos(angle) * x - np.sin(angle) * y
    turned[:, 1] = np.sin(angle) * x + np.cos(angle) * y
    return turned


def scene(seed=0, slots=60, dim=8, anchors=12, noise=0.3):
    rng = np.random.default_rng(seed)
    fresh = random_unit(rng, slots, dim)
    stored = unit(fresh + noise * rng.normal(size=fresh.shape))
    query = random_unit(rng, anchors, dim)
    positive = unit(query + 0.2 * rng.normal(size=query.shape))
    return query, positive, stored, fresh


def infonce_gradient(q, positive, keys, temperature):
    """dL/dq of one anchor from He et al. 2019, eq. 1, float64, with nothing simplified."""
    candidates = np.vstack([positive, keys])
    logits = candidates @ q / temperature
    p = np.exp(logits - logits.max())
    p /= p.sum()
    full = (p[:, None] * candidates).sum(0) / temperature - positive / temperature
    return full - (full @ q) * q


# Drift and spread


@given(st.floats(0, math.pi), st.integers(2, 40), st.integers(0, 2**31))
def test_a_turn_by_a_known_angle_is_that_drift(angle, dim, seed):
    rng = np.random.default_rng(seed)
    keys = np.zeros((5, dim))
    keys[:, :2] = random_unit(rng, 5, 2)
    assert drift(keys, rotate(keys, angle)) == pytest.approx(np.full(5, 1 - math.cos(angle)), abs=3e-7)


def test_equal_keys_have_no_drift_at_all_and_small_turns_keep_their_precision():
    keys = random_unit(np.random.default_rng(0), 20_000, 16).astype(np.float32)
    assert not drift(keys, keys.copy()).any()
    flat = np.eye(2)[:1]
    assert drift(flat, rotate(flat, 1e-4))[0] == pytest.approx(0.5e-8, rel=1e-3)


def test_drift_does_not_depend_on_the_length_of_the_rows():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 30, 6))
    cosine = (unit(x) * unit(y)).sum(1)
    assert drift(3 * x, 0.1 * y) == pytest.approx(1 - cosine, abs=1e-6)


@given(st.integers(2, 40), st.integers(2, 10), st.integers(1, 12), st.integers(0, 2**31))
def test_spread_is_one_minus_the_mean_cosine_of_all_pairs_of_different_samples(slots, dim, samples, seed):
    rng = np.random.default_rng(seed)
    keys, ids = random_unit(rng, slots, dim), rng.integers(0, samples, slots)
    cosine = keys @ keys.T
    different = ids[:, None] != ids[None]
    if different.any():
        assert spread(keys, ids) == pytest.approx(1 - cosine[different].mean(), abs=1e-6)
    else:
        assert math.isnan(spread(keys, ids))
    off_diagonal = ~np.eye(slots, dtype=bool)
    assert spread(keys) == pytest.approx(1 - cosine[off_diagonal].mean(), abs=1e-6)


def test_spread_of_a_collapsed_queue_is_zero_and_precise_next_to_it():
    one = random_unit(np.random.default_rng(0), 1, 128).astype(np.float32)
    assert spread(np.repeat(one, 1000, 0)) < 1e-12
    two = np.array([[1.0, 0.0], [math.cos(1e-3), math.sin(1e-3)]])
    assert spread(two) == pytest.approx(1 - math.cos(1e-3), rel=1e-3)
    assert spread(np.array([[1.0, 0.0], [-1.0, 0.0]])) == pytest.approx(2)


# By age


def test_by_age_gives_mean_band_and_count_of_each_age():
    age = np.array([3, 1, 1, 3, 1, 7])
    values = np.array([0.3, 0.1, 0.2, 0.5, 0.6, 0.9])
    profile = by_age(age, values)
    assert profile.age.tolist() == [1, 3, 7]
    assert profile.mean == pytest.approx([0.3, 0.4, 0.9])
    assert profile.count.tolist() == [3, 2, 1]
    assert profile.low == pytest.approx([np.percentile([0.1, 0.2, 0.6], 10), 0.32, 0.9])
    assert profile.high == pytest.approx([np.percentile([0.1, 0.2, 0.6], 90), 0.48, 0.9])


@given(st.integers(1, 600), st.integers(1, 50), st.integers(0, 2**31))
def test_by_age_groups_neighbours_and_loses_no_slot(slots, most, seed):
    rng = np.random.default_rng(seed)
    age, values = rng.integers(0, 400, slots), rng.random(slots)
    profile = by_age(age, values, most=most)
    assert len(profile.age) <= most
    assert profile.count.sum() == slots
    assert (np.diff(profile.age) > 0).all()
    assert profile.mean @ profile.count == pytest.approx(values.sum())
    assert (profile.low <= profile.mean + 1e-12).all() or slots > len(profile.age)
    assert (profile.low <= profile.high).all()


# Gradient cosine


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.1, 2), st.integers(3, 20))
def test_the_gradient_cosine_is_that_of_the_written_out_gradients(seed, temperature, dim):
    query, positive, stored, fresh = scene(seed, dim=dim)
    lengths = [1, 7, 33, 60]
    expected = []
    for n in lengths:
        cosines = []
        for q, k in zip(query, positive, strict=True):
            g = infonce_gradient(q, k, stored[:n], temperature)
            reference = infonce_gradient(q, k, fresh[:n], temperature)
            cosines.append(g @ reference / np.linalg.norm(g) / np.linalg.norm(reference))
        expected.append(np.mean(cosines))
    measured = gradient_cosine(compare(query, positive, stored, fresh, temperature), lengths)
    assert measured == pytest.approx(expected, abs=1e-3)


def test_the_gradient_survives_the_smallest_temperatures():
    query, positive, stored, fresh = scene(3)
    measured = gradient_cosine(compare(query, positive, stored, fresh, 1e-3), [1, 10, 60])
    # At τ → 0 only the hardest negative counts.
    hardest = [[keys[:10][np.argmax(keys[:10] @ q)] for q in query] for keys in (stored, fresh)]
    tangents = [unit((k - positive) - ((k - positive) * query).sum(1)[:, None] * query) for k in hardest]
    assert measured[1] == pytest.approx((tangents[0] * tangents[1]).sum(1).mean(), abs=1e-3)


def test_a_memory_bound_does_not_change_the_result(monkeypatch):
    query, positive, stored, fresh = scene(4)
    whole = gradient_cosine(compare(query, positive, stored, fresh, 0.2), [1, 20, 60])
    whole_error = softmax_error(compare(query, positive, stored, fresh, 0.2), [1, 20, 60])
    monkeypatch.setattr(checks, "BLOCK", 100)
    assert gradient_cosine(compare(query, positive, stored, fresh, 0.2), [1, 20, 60]) == pytest.approx(whole)
    parts = softmax_error(compare(query, positive, stored, fresh, 0.2), [1, 20, 60])
    assert parts.kl == pytest.approx(whole_error.kl, rel=1e-4)
    assert parts.weight_share == pytest.approx(whole_error.weight_share, rel=1e-5)
    assert parts.logit_error == pytest.approx(whole_error.logit_error, rel=1e-5)


def test_identical_keys_give_exactly_one_and_exactly_zero():
    query, positive, _, fresh = scene(5)
    assert gradient_cosine(compare(query, positive, fresh, fresh.copy(), 0.2), [1, 5, 60]).tolist() == [
        1,
        1,
        1,
    ]
    error = softmax_error(compare(query, positive, fresh, fresh.copy(), 0.2), [1, 5, 60])
    assert error.kl.tolist() == [0, 0, 0]
    assert not error.logit_error.any()


def test_keys_on_the_other_side_of_the_positive_turn_the_gradient_round():
    """On the circle, q at 0° and k⁺ at 10°: a fresh key at 90° pushes q down, a stale one at −90° up."""
    q, positive = np.array([[1.0, 0.0]]), unit(np.array([[1.0, 0.176]]))
    fresh, stored = np.array([[0.0, 1.0]]), np.array([[0.0, -1.0]])
    assert gradient_cosine(compare(q, positive, stored, fresh, 0.2), [1]) == pytest.approx([-1.0])


def test_a_collapsed_queue_has_no_gradient():
    here = np.repeat(random_unit(np.random.default_rng(0), 1, 16), 40, 0)
    assert np.isnan(gradient_cosine(compare(here[:5], here[:5], here, here.copy(), 0.2), [1, 40])).all()


# Softmax


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.05, 2), st.integers(1, 5))
def test_kl_logit_error_and_share_are_the_written_out_formulas(seed, temperature, copies):
    query, positive, stored, fresh = scene(seed)
    weight = np.full(60, copies)
    result = softmax_error(compare(query, positive, stored, fresh, temperature, weight), [4, 60])
    for n, kl in zip(result.length, result.kl, strict=True):
        expected = []
        for q, k in zip(query, positive, strict=True):
            stale, now = (
                np.concatenate([[k @ q], np.repeat(keys[:n] @ q, copies)]) / temperature
                for keys in (stored, fresh)
            )
            log_p, log_r = stale - np.log(np.exp(stale).sum()), now - np.log(np.exp(now).sum())
            expected.append((np.exp(log_p) * (log_p - log_r)).sum())
        assert kl == pytest.approx(np.mean(expected), rel=1e-3, abs=1e-6)
    errors = np.abs(query @ (stored - fresh).T).mean(0) / temperature
    assert result.logit_error == pytest.approx(errors, abs=1e-5 / temperature)
    weights = np.exp(query @ stored.T / temperature)
    share = (weights / weights.sum(1, keepdims=True)).mean(0)
    assert result.weight_share == pytest.approx(share, rel=1e-3)
    assert result.weight_share.sum() == pytest.approx(1)


# K*


@pytest.mark.parametrize(
    ("cosine", "expected"),
    [
        ([1, 0.995, 0.99, 0.98], 30),
        ([1, 0.98, 0.999, 0.999], 10),  # it must *stay* consistent
        ([0.5, 1, 1, 1], 0),
        ([1, 1, 1, 1], 40),
        ([1, math.nan, 1, 1], 10),
        ([math.nan] * 4, 0),
    ],
)
def test_the_consistent_length_is_the_last_before_the_first_failure(cosine, expected):
    assert consistent_length(np.array([10, 20, 30, 40]), np.array(cosine)) == expected


@given(st.integers(1, 10**6), st.integers(2, 100))
def test_the_length_grid_rises_from_few_to_all(slots, points):
    grid = length_grid(slots, points)
    assert grid[0] == max(1, slots // 1024)
    assert grid[-1] == slots
    assert (np.diff(grid) > 0).all()
    assert len(grid) <= points


# Rank correlation


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 12))
def test_the_rank_correlation_is_spearmans(seed, ages):
    rng = np.random.default_rng(seed)
    age = np.concatenate([np.arange(ages), rng.integers(0, ages, 40)])
    values = np.round(0.1 * age + rng.normal(size=len(age)), 1)  # rounded: ties
    result = rank_correlation(age, values)
    assert result.value == pytest.approx(stats.spearmanr(age, values).statistic, abs=1e-12)
    assert result.ages == ages
    assert -1 <= result.low <= result.high <= 1


def test_drift_that_rises_with_age_is_perfectly_correlated():
    age = np.repeat(np.arange(8), 16)
    result = rank_correlation(age, 1 - np.cos(0.1 * age))
    assert (result.value, result.low, result.high) == pytest.approx((1, 1, 1))
    assert rank_correlation(age, -1.0 * age).value == pytest.approx(-1)


def test_the_interval_covers_no_correlation_when_there_is_none():
    rng = np.random.default_rng(0)
    age = np.repeat(np.arange(20), 30)
    covered = 0
    for _ in range(40):
        shared = rng.normal(size=20)[age]  # slots of an age move together: the case for a bootstrap over ages
        result = rank_correlation(age, shared + 0.1 * rng.normal(size=len(age)), draws=200)
        covered += result.low <= 0 <= result.high
    assert covered >= 32  # a bootstrap over slots covers about 8 of 40 here


@pytest.mark.parametrize("age", [np.zeros(9, int), np.arange(9)])
def test_one_age_or_one_drift_has_no_correlation(age):
    result = rank_correlation(age, np.zeros(9))
    assert math.isnan(result.value)
    assert math.isnan(result.low)
    assert result.ages == len(set(age.tolist()))


def test_very_many_ages_are_drawn_in_groups(monkeypatch):
    monkeypatch.setattr(staleness, "MOST_DRAWN", 10)
    result = rank_correlation(np.arange(500), np.arange(500.0))
    assert result.ages == 500
    assert result.value == pytest.approx(1)


# Eviction


def test_each_policy_keeps_the_slots_it_says():
    """Slots of age a turned by a known angle: what remains, and so its gradient, is known for each policy."""
    query, positive, _, fresh = scene(7, slots=40)
    angle = np.linspace(0, 2, 40)
    stored, age = rotate(fresh, angle), np.arange(40)
    shuffled = np.random.default_rng(3).permutation(40)
    curves = eviction(
        compare(query, positive, stored[shuffled], fresh[shuffled], 0.2), age[shuffled], [10, 40]
    )
    newest = gradient_cosine(compare(query, positive, stored, fresh, 0.2), [10, 40])
    oldest = gradient_cosine(compare(query, positive, stored[::-1], fresh[::-1], 0.2), [10, 40])
    assert curves["oldest_first"] == pytest.approx(newest, abs=1e-6)
    assert curves["newest_first"] == pytest.approx(oldest, abs=1e-6)
    steady = np.argsort(drift(stored, fresh))
    least = gradient_cosine(compare(query, positive, stored[steady], fresh[steady], 0.2), [10, 40])
    assert curves["most_drifted_first"] == pytest.approx(least, abs=1e-6)
    assert {round(float(c[-1]), 5) for c in curves.values()} == {round(float(newest[-1]), 5)}
    assert curves["oldest_first"][0] > curves["random"][0] > curves["newest_first"][0]


# Everything at once


def queue_turned_by_age(angle_per_step, *, batch=16, steps=8, dim=8, anchors=20, seed=0):
    rng = np.random.default_rng(seed)
    age = np.repeat(np.arange(steps), batch)
    fresh = np.zeros((batch * steps, dim))
    fresh[:, :2] = random_unit(rng, batch * steps, 2)
    stored = rotate(fresh, -angle_per_step * age)
    query = random_unit(rng, anchors, dim)
    return {
        "stored": stored,
        "fresh": fresh,
        "query_view": rotate(fresh, np.full(len(age), 0.05)),
        "age": age,
        "slot": np.arange(len(age))[::-1],
        "query": query,
        "positive": unit(query + 0.1 * rng.normal(size=query.shape)),
        "temperature": 0.2,
        "filled": len(age),
    }


def test_a_queue_rotated_by_a_known_angle_a_step_gives_that_drift():
    inputs = queue_turned_by_age(0.2)
    order = np.random.default_rng(1).permutation(128)
    per_slot = ("stored", "fresh", "query_view", "age", "slot")
    shuffled = inputs | {name: inputs[name][order] for name in per_slot}
    result = measure(**shuffled, control=(inputs["fresh"], inputs["fresh"]))
    assert result["age"].tolist() == sorted(inputs["age"].tolist())
    assert 1 - result["cosine_key"] == pytest.approx(1 - np.cos(0.2 * result["age"]), abs=1e-6)
    assert result["cosine_query"] == pytest.approx(np.cos(0.2 * result["age"] + 0.05), abs=1e-6)
    assert set(result["slot"].tolist()) == set(range(128))
    slots_of_age_0 = result["slot"][result["age"] == 0]
    assert set(slots_of_age_0.tolist()) == set(inputs["slot"][inputs["age"] == 0].tolist())
    assert result["rank_correlation"] > 0.99
    assert result["control"] == 0
    assert result["spread"] == pytest.approx(spread(inputs["fresh"]), abs=1e-6)
    assert result["length"][-1] == 128
    assert result["k_star"] == consistent_length(result["length"], result["gradient_cosine"])
    assert result["weight_share"].sum() == pytest.approx(1, abs=1e-5)


def test_a_queue_written_by_the_current_weights_is_perfectly_consistent():
    result = measure(**queue_turned_by_age(0.0))
    assert (1 - result["cosine_key"]).max() < 1e-6
    assert result["gradient_cosine"].tolist() == [1] * len(result["length"])
    assert not result["kl"].any()
    assert not result["logit_error"].any()
    assert result["k_star"] == 128
    for policy in staleness.EVICTIONS:
        assert (result[f"evict_{policy}"] == 1).all()
    assert math.isnan(result["rank_correlation"])  # nothing drifts, so nothing is ordered
    assert math.isnan(result["control"])


def test_a_faster_encoder_has_a_less_consistent_queue():
    slow, middle, fast = (measure(**queue_turned_by_age(angle)) for angle in (0.02, 0.15, 0.5))
    assert slow["k_star"] == 128
    assert 0 < fast["k_star"] < 128
    assert slow["gradient_cosine"][-1] > middle["gradient_cosine"][-1] > fast["gradient_cosine"][-1]
    assert slow["kl"][-1] < middle["kl"][-1] < fast["kl"][-1]


def sampled(inputs, keep):
    """`inputs` with only the slots that the mask `keep` names measured."""
    per_slot = ("stored", "fresh", "query_view", "age", "slot")
    return inputs | {name: inputs[name][keep] for name in per_slot}


def test_every_other_batch_stands_for_the_whole_queue():
    inputs = queue_turned_by_age(0.1)
    part = measure(
        **sampled(inputs, inputs["age"] % 2 == 1)
    )  # ages 1, 3, 5, 7, each for itself and a newer one
    assert part["length"][-1] == 128
    assert part["stands_for"].tolist() == [2] * 64
    # The same as a queue in which every unmeasured batch is as stale as the next older one.
    older = inputs["age"] // 2 * 2 + 1
    doubled = inputs | {"stored": rotate(inputs["fresh"], -0.1 * older)}
    whole = measure(**doubled)
    assert part["kl"][-1] == pytest.approx(whole["kl"][-1], rel=0.25)
    assert part["gradient_cosine"][-1] == pytest.approx(whole["gradient_cosine"][-1], abs=0.02)
    assert part["weight_share"].sum() == pytest.approx(1, abs=1e-5)


def test_newest_and_oldest_alone_never_make_a_queue_look_fresher():
    """With two batches of eight measured, K* must not count unmeasured keys as fresh."""
    inputs = queue_turned_by_age(0.5)
    part = measure(**sampled(inputs, (inputs["age"] == 0) | (inputs["age"] == 7)))
    whole = measure(**inputs)
    assert part["stands_for"].tolist() == [1] * 16 + [7] * 16
    assert part["length"].tolist()[-1] == 128
    assert part["k_star"] <= whole["k_star"]
    assert part["gradient_cosine"][-1] < whole["gradient_cosine"][-1]
    assert part["kept"][-1] == 128
    finals = [part[f"evict_{policy}"][-1] for policy in staleness.EVICTIONS]
    assert finals == pytest.approx([finals[0]] * 4, abs=1e-6)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 30), st.integers(0, 2**31))
def test_all_slots_down_to_the_oldest_measured_are_stood_for(steps, batch, newer, seed):
    age = np.repeat(np.arange(steps), batch)
    slot = np.arange(len(age))[::-1]
    rng = np.random.default_rng(seed)
    keep = np.isin(age, rng.choice(steps, rng.integers(1, steps + 1), replace=False))
    weight = stands_for(slot[keep], age[keep], len(age) + newer)
    assert weight.min() >= 1
    assert weight.sum() == pytest.approx(len(age) + newer - slot[keep].min())
    if not newer and keep.all():
        assert (weight == 1).all()


def test_weights_are_copies():
    """A slot that stands for three counts as three equal slots."""
    query, positive, stored, fresh = scene(9, slots=20)
    copies = np.tile([1, 3], 10)
    some = compare(query, positive, stored, fresh, 0.2, copies)
    repeated = compare(query, positive, np.repeat(stored, copies, 0), np.repeat(fresh, copies, 0), 0.2)
    assert gradient_cosine(some, [4, 20]) == pytest.approx(gradient_cosine(repeated, [8, 40]), abs=1e-6)
    assert softmax_error(some, [20]).kl == pytest.approx(softmax_error(repeated, [40]).kl, rel=1e-4)


@pytest.mark.parametrize("dim", [2, 3])
def test_the_circle_and_the_sphere_can_be_measured(dim):
    rng = np.random.default_rng(0)
    fresh = random_unit(rng, 64, dim)
    query = random_unit(rng, 10, dim)
    result = measure(
        stored=unit(fresh + 0.05 * rng.normal(size=fresh.shape)),
        fresh=fresh,
        query_view=fresh,
        age=np.arange(64) // 8,
        slot=np.arange(64)[::-1],
        query=query,
        positive=unit(query + 0.3 * rng.normal(size=query.shape)),
        temperature=0.2,
        filled=64,
    )
    assert np.isfinite(result["gradient_cosine"]).all()
    assert 0 < result["spread"] < 2


def test_a_collapsed_run_is_measured_without_dividing_by_zero():
    inputs = queue_turned_by_age(0.0)
    for name in ("stored", "fresh", "query_view", "query", "positive"):
        inputs[name] = np.ones_like(inputs[name])
    with np.errstate(all="raise"):
        result = measure(**inputs)
    assert result["spread"] < staleness.COLLAPSED
    assert np.isnan(result["gradient_cosine"]).all()
    assert result["k_star"] == 0
    assert not result["kl"].any()


def test_one_slot_and_one_anchor_are_enough():
    inputs = queue_turned_by_age(0.1)
    for name in ("stored", "fresh", "query_view", "age", "slot", "query", "positive"):
        inputs[name] = inputs[name][-1:]  # the oldest, in position 0
    result = measure(**inputs | {"filled": 1})
    assert result["length"].tolist() == [1]
    assert math.isnan(result["spread"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"temperature": 0.0}, "temperature must be a finite number above 0, got 0.0"),
        ({"filled": 3}, "filled must be at least the 128 slots measured, got 3"),
        ({"fresh": np.ones((5, 8))}, r"fresh must have as many rows as stored \(128\), got 5"),
        ({"query": np.ones((20, 5))}, "positive must have rows as long as those of query"),
        ({"stored": np.zeros((128, 8))}, "stored is zero in row 0"),
        ({"fresh": np.full((128, 8), np.nan)}, "fresh is not finite in row 0"),
        ({"slot": np.arange(3)}, "slot must hold 128 rows"),
        ({"slot": np.arange(128)}, "slot must give each key's position, 0 the oldest of 128"),
        ({"age": np.zeros(0, int)}, "at least 1 slot"),
    ],
)
def test_what_cannot_be_measured_says_why(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        measure(**queue_turned_by_age(0.1) | change)
