"""Cosines of pairs: every number against a direct loop over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.analysis import checks, similarity
from moco_core.analysis.similarity import (
    BINS,
    coarser,
    histogram,
    negatives,
    overlap_coefficient,
    pairs_between,
    positive_cosines,
    quantiles,
    softmax_weights,
)

WIDTH = 2 / BINS


def unit(rng, n, d):
    x = rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.fixture
def sides():
    rng = np.random.default_rng(0)
    return unit(rng, 30, 5), unit(rng, 50, 5), rng.integers(-1, 3, 30), rng.integers(-1, 3, 50)


@pytest.fixture(params=[False, True], ids=["one block", "many blocks"])
def small_blocks(request, monkeypatch):
    """Once with everything in one block, once a few rows at a time."""
    if request.param:
        monkeypatch.setattr(checks, "BLOCK", 200)


def rotation(d, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


# counting


def test_positive_cosines_are_those_of_the_rows():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 20, 4)) * 7
    expected = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(positive_cosines(x, y), expected, atol=1e-12)


def test_histogram_places_the_ends_and_every_value():
    counts = histogram(np.array([-1.0, -0.9995, 0.0, 1.0, 1.0]))
    assert counts[0] == 2
    assert counts[BINS // 2] == 1
    assert counts[-1] == 2
    assert counts.sum() == 5


def test_coarser_bins_hold_the_same_pairs():
    counts = histogram(np.array([-1.0, -0.011, 0.005, 0.999]))
    coarse, edges = coarser(counts, 100)
    np.testing.assert_allclose(edges, np.linspace(-1, 1, 101))
    assert {i: c for i, c in enumerate(coarse) if c} == {0: 1, 49: 1, 50: 1, 99: 1}
    with pytest.raises(ValueError, match="bins must divide 2000, got 7"):
        coarser(counts, 7)


@pytest.mark.usefixtures("small_blocks")
def test_negatives_equal_a_loop_over_all_pairs(sides):
    query, keys, query_labels, key_labels = sides
    found = negatives(query, keys, query_labels=query_labels, key_labels=key_labels, hardest=4)
    all_pairs, same = np.zeros(BINS, int), np.zeros(BINS, int)
    for q, own in zip(query, query_labels, strict=True):
        for k, theirs in zip(keys, key_labels, strict=True):
            place = min(int((q @ k + 1) / WIDTH), BINS - 1)
            all_pairs[place] += 1
            same[place] += own == theirs and own >= 0
    np.testing.assert_array_equal(found.counts, all_pairs)
    np.testing.assert_array_equal(found.same_class, same)
    np.testing.assert_allclose(found.hardest, -np.sort(-(query @ keys.T), axis=1)[:, :4], atol=1e-12)


@pytest.mark.usefixtures("small_blocks")
def test_a_samples_own_key_is_no_negative_of_it(sides):
    query, _, labels, _ = sides
    keys = query + 0.01
    found = negatives(query, keys, query_labels=labels, key_labels=labels, own=True, hardest=3)
    scaled = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    cosines = query @ scaled.T
    others = ~np.eye(len(query), dtype=bool)
    assert found.counts.sum() == len(query) * (len(query) - 1)
    np.testing.assert_array_equal(found.counts, histogram(cosines[others]))
    alike = (labels[:, None] == labels) & (labels[:, None] >= 0) & others
    np.testing.assert_array_equal(found.same_class, histogram(cosines[alike]))
    cosines[~others] = -np.inf
    np.testing.assert_allclose(found.hardest, -np.sort(-cosines, axis=1)[:, :3], atol=1e-12)


def test_without_labels_there_are_no_false_negatives(sides):
    query, keys, labels, _ = sides
    assert negatives(query, keys).same_class is None
    assert negatives(query, keys, query_labels=labels).same_class is None


def test_fewer_keys_than_the_hardest_asked_for(sides):
    query, keys, *_ = sides
    assert negatives(query, keys[:3]).hardest.shape == (30, 3)
    assert negatives(query[:2], keys[:2], own=True).hardest.shape == (2, 1)


# softmax


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("temperature", [0.01, 0.07, 0.2, 5.0])
def test_weights_equal_the_softmax_of_each_query(sides, temperature):
    query, keys, *_ = sides
    plus = np.linspace(-0.2, 0.95, len(query))
    found = softmax_weights(query, plus, keys, temperature)
    positive, negative = np.zeros(BINS), np.zeros(BINS)
    for q, s in zip(query, plus, strict=True):
        cosines = np.concatenate([[s], keys @ q])
        p = np.exp((cosines - cosines.max()) / temperature)
        p /= p.sum() * len(query)
        place = np.minimum(((cosines + 1) / WIDTH).astype(int), BINS - 1)
        positive[place[0]] += p[0]
        np.add.at(negative, place[1:], p[1:])
    np.testing.assert_allclose(found.positive, positive, atol=1e-12)
    np.testing.assert_allclose(found.negative, negative, atol=1e-12)
    assert found.positive.sum() + found.negative.sum() == pytest.approx(1)


def test_small_temperature_looks_at_the_hardest_alone_and_a_large_one_at_all(sides):
    query, keys, *_ = sides
    plus = np.full(len(query), -1.0)
    hard = softmax_weights(query, plus, keys, 1e-4).negative
    np.testing.assert_allclose(hard, histogram((query @ keys.T).max(1)) / len(query), atol=1e-3)
    flat = softmax_weights(query, plus, keys, 1e6)
    np.testing.assert_allclose(flat.negative, histogram(query @ keys.T) / (51 * 30), atol=1e-6)
    assert flat.positive.sum() == pytest.approx(1 / 51, abs=1e-6)


def test_weights_leave_the_own_key_out(sides):
    query, *_ = sides
    found = softmax_weights(query, np.ones(len(query)), query, 0.2, own=True)
    others = np.exp((query @ query.T - 1) / 0.2)
    np.fill_diagonal(others, 0)
    assert found.positive.sum() == pytest.approx(np.mean(1 / (1 + others.sum(1))))


# summaries


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=200), st.lists(st.floats(0, 1), min_size=1, max_size=5)
)
def test_quantiles_are_exact_to_a_bin(cosines, shares):
    cosines, shares = np.array(cosines), np.array(shares)
    found = quantiles(histogram(cosines), shares)
    exact = np.quantile(cosines, shares, method="inverted_cdf")
    np.testing.assert_allclose(found, exact, atol=WIDTH + 1e-12)


def test_quantiles_do_not_fill_gaps():
    found = quantiles(histogram(np.array([-0.9] * 50 + [0.9] * 50)), np.array([0.4, 0.6]))
    np.testing.assert_allclose(found, [-0.9, 0.9], atol=WIDTH)


def test_quantiles_of_nothing():
    assert np.isnan(quantiles(np.zeros(BINS, int), np.array([0.5]))).all()


def test_overlap_of_known_histograms():
    assert overlap_coefficient([1, 1, 0], [0, 5, 5]) == pytest.approx(0.5)
    assert overlap_coefficient([1, 3], [2, 6]) == pytest.approx(1)
    assert overlap_coefficient([1, 0], [0, 1]) == 0
    assert np.isnan(overlap_coefficient([0, 0], [0, 1]))
    with pytest.raises(ValueError, match="as many bins"):
        overlap_coefficient([1], [1, 2])


# pairs


@pytest.mark.usefixtures("small_blocks")
def test_pairs_are_the_hardest_inside_the_bin(sides):
    query, keys, *_ = sides
    found = pairs_between(query, keys, 0.2, 0.5, most=7)
    cosines = query @ keys.T
    inside = np.sort(cosines[(cosines >= 0.2) & (cosines < 0.5)])[::-1]
    np.testing.assert_allclose(found.cosine, inside[:7], atol=1e-12)
    np.testing.assert_allclose(cosines[found.query, found.key], found.cosine, atol=1e-12)


@pytest.mark.usefixtures("small_blocks")
def test_pairs_of_one_class_and_of_the_hardest_only(sides):
    query, keys, query_labels, key_labels = sides
    cosines = query @ keys.T
    alike = (query_labels[:, None] == key_labels) & (query_labels[:, None] >= 0)
    found = pairs_between(
        query, keys, 0.0, 1.0, query_labels=query_labels, key_labels=key_labels, most=10_000
    )
    assert set(zip(found.query, found.key, strict=True)) == set(
        zip(*np.nonzero(alike & (cosines >= 0)), strict=True)
    )
    found = pairs_between(query, keys, -1.0, 1.0, hardest=2, most=10_000)
    assert np.bincount(found.query).tolist() == [2] * 30
    np.testing.assert_allclose(
        np.sort(found.cosine), np.sort(np.partition(cosines, -2, axis=1)[:, -2:].ravel()), atol=1e-12
    )


def test_pairs_at_cosine_one_are_in_the_last_bin_and_own_keys_are_not():
    query = np.array([[1.0, 0], [1.0, 0], [0, 1.0]])
    found = pairs_between(query, query, 0.99, 1.0, own=True)
    assert sorted(zip(found.query.tolist(), found.key.tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert not len(pairs_between(query, query, 0.5, 0.9, own=True).cosine)


def test_the_pairs_behind_a_bar_are_as_many_as_it_says(sides):
    query, keys, query_labels, key_labels = sides
    found = negatives(query, keys, query_labels=query_labels, key_labels=key_labels)
    for counts, labels in (
        (found.counts, {}),
        (found.same_class, dict(query_labels=query_labels, key_labels=key_labels)),
    ):
        coarse, edges = coarser(counts, 20)
        for bar, count in enumerate(coarse):
            behind = pairs_between(query, keys, edges[bar], edges[bar + 1], most=10_000, **labels)
            assert len(behind.cosine) == count


# invariance and refusals


@given(st.integers(0, 2**32 - 1))
def test_a_rotation_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    query, keys, turn = unit(rng, 12, 4), unit(rng, 9, 4), rotation(4, seed)
    np.testing.assert_allclose(
        negatives(query, keys).hardest, negatives(query @ turn, keys @ turn).hardest, atol=1e-9
    )
    plus = positive_cosines(query[:9], keys)
    np.testing.assert_allclose(plus, positive_cosines(query[:9] @ turn, keys @ turn), atol=1e-9)
    a = softmax_weights(query[:9], plus, keys, 0.1)
    b = softmax_weights(query[:9] @ turn, plus, keys @ turn, 0.1)
    assert a.positive.sum() == pytest.approx(b.positive.sum(), abs=1e-9)


def test_what_cannot_be_answered_is_refused():
    x = np.eye(3)
    with pytest.raises(ValueError, match="keys must have rows as long as those of query"):
        negatives(x, np.eye(4))
    with pytest.raises(ValueError, match="keys is zero in row 1"):
        negatives(x, np.array([[1.0, 0, 0], [0, 0, 0]]))
    with pytest.raises(ValueError, match="query is not finite"):
        negatives(np.array([[np.nan, 0, 0]]), x)
    with pytest.raises(ValueError, match="to be of its samples"):
        negatives(x, x[:2], own=True)
    with pytest.raises(ValueError, match="nothing is left as a negative"):
        negatives(x[:1], x[:1], own=True)
    with pytest.raises(ValueError, match="temperature must be a finite number above 0, got 0"):
        softmax_weights(x, np.ones(3), x, 0)
    with pytest.raises(ValueError, match="one finite cosine a query"):
        softmax_weights(x, np.ones(2), x, 0.1)
    with pytest.raises(ValueError, match="query_labels"):
        negatives(x, x, query_labels=[0, 1], key_labels=[0, 1, 2])


def test_bins_follow_the_blocks_of_one_size(monkeypatch):
    """More keys than one block holds: one query at a time."""
    monkeypatch.setattr(checks, "BLOCK", 5)
    rng = np.random.default_rng(3)
    query, keys = unit(rng, 4, 3), unit(rng, 11, 3)
    assert similarity.negatives(query, keys).counts.sum() == 44
