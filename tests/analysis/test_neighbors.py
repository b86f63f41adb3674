"""Neighbours, votes, overlap and hubs against sorted double loops, scikit-learn, scipy and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import skew
from sklearn.metrics import confusion_matrix
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from moco_core.analysis import checks, neighbors
from moco_core.analysis.neighbors import (
    chance_overlap,
    confusion,
    gap_factors,
    hubness,
    knn_accuracy,
    knn_predict,
    largest,
    local_density,
    nearest,
    nearest_gaps,
    nearest_in,
    overlap,
)

seeds = st.integers(0, 2**32 - 1)


def sphere(n, d, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def loop(bank, query, k, leave_out_self):
    """Indices and cosines of the k nearest by sorting every cosine."""
    found = []
    for i, q in enumerate(query):
        cosines = [(-float(q @ b), j) for j, b in enumerate(bank) if not (leave_out_self and i == j)]
        found.append(sorted(cosines)[:k])
    return np.array([[j for _, j in f] for f in found]), np.array([[-c for c, _ in f] for f in found])


# Nearest


@pytest.mark.parametrize(("n", "k"), [(2, 1), (5, 4), (60, 3), (300, 1), (300, 15), (300, 299)])
def test_nearest_equals_the_double_loop(n, k):
    x = sphere(n, 5)
    indices, cosines = nearest(x, k)
    wanted = loop(x, x, k, leave_out_self=True)
    assert indices.dtype == np.int32
    assert (indices == wanted[0]).all()
    assert cosines == pytest.approx(wanted[1], abs=1e-12)


def test_nearest_equals_scikit_learn_over_many_blocks(monkeypatch):
    monkeypatch.setattr(checks, "BLOCK", 40_000)
    x = sphere(2000, 16).astype(np.float32)
    distance, found = NearestNeighbors(n_neighbors=11, algorithm="brute").fit(x).kneighbors(x)
    indices, cosines = nearest(x, 10)
    assert (indices == found[:, 1:]).mean() > 0.999  # float32 may swap near-equal ones
    assert cosines == pytest.approx(1 - distance[:, 1:] ** 2 / 2, abs=1e-6)


def test_nearest_in_a_bank_may_find_the_query_itself():
    bank, query = sphere(50, 4), sphere(20, 4, seed=1)
    indices, cosines = nearest_in(bank, query, 50)
    wanted = loop(bank, query, 50, leave_out_self=False)
    assert (indices == wanted[0]).all()
    assert cosines == pytest.approx(wanted[1], abs=1e-12)
    assert nearest_in(bank, bank, 1)[0].ravel().tolist() == list(range(50))


def test_length_does_not_matter():
    x = sphere(40, 4)
    assert (nearest(x * np.arange(1, 41)[:, None], 5)[0] == nearest(x, 5)[0]).all()


def test_neighbours_are_exact_where_all_cosines_round_to_one():
    """A collapsed space: in float32 every cosine is 1, yet the rows differ and so do their distances."""
    rng = np.random.default_rng(0)
    x = (sphere(1, 64) + 1e-5 * rng.normal(size=(400, 64))).astype(np.float32)
    unit = x.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    wanted = np.argsort(np.square(unit[:, None] - unit[None]).sum(2) + 1e9 * np.eye(400), axis=1)[:, :5]
    plain = np.argsort(-(x @ x.T) + 1e9 * np.eye(400), axis=1)[:, :5]
    indices, gaps = nearest_gaps(x, 5)
    assert (plain == wanted).mean() < 0.5  # what a plain float32 product would answer
    assert (indices == wanted).mean() > 0.95
    assert gaps == pytest.approx(0.5 * np.square(unit[:, None] - unit[indices]).sum(2), rel=0.02)


def test_the_factors_multiply_to_the_cosine_minus_one():
    query, bank = sphere(30, 6), sphere(40, 6, seed=1)
    left, right = gap_factors(query, bank)
    assert left @ right.T == pytest.approx(query @ bank.T - 1, abs=1e-13)
    left, right = gap_factors(query)
    assert left @ right.T == pytest.approx(query @ query.T - 1, abs=1e-13)


@pytest.mark.parametrize(("count", "k"), [(10, 3), (500, 3), (500, 300)])
def test_among_equals_the_lower_index_comes_first_and_is_chosen(count, k):
    indices, cosines = nearest(np.repeat(sphere(2, 6), [count, 1], axis=0), k)
    for row in range(count):
        assert indices[row].tolist() == [i for i in range(k + 1) if i != row][:k]
    assert cosines[:count] == pytest.approx(1)


def test_duplicates_are_neighbours_of_each_other():
    x = np.repeat(sphere(20, 6), 3, axis=0)
    indices, cosines = nearest(x, 2)
    assert (indices // 3 == np.arange(60)[:, None] // 3).all()
    assert (indices != np.arange(60)[:, None]).all()
    assert cosines == pytest.approx(1)


def test_all_rows_equal():
    indices, cosines = nearest(np.ones((500, 3), np.float32), 7)
    assert all(len({i, *row}) == 8 for i, row in enumerate(indices.tolist()))
    assert (cosines == 1).all()


@pytest.mark.parametrize(
    ("x", "k", "message"),
    [
        (np.eye(3), 3, r"k must be at least 1 and at most 2 \(one less than the rows of x\), got 3"),
        (np.eye(3), 0, "k must be at least 1"),
        (np.eye(3), 1.5, "k must be a whole number"),
        (np.eye(3)[:1], 1, "x must have at least 2 rows, got 1"),
        (np.zeros((3, 3)), 1, "x is zero in row 0"),
        (np.full((3, 3), np.nan), 1, "x is not finite in row 0"),
    ],
)
def test_nearest_refuses(x, k, message):
    with pytest.raises(ValueError, match=message):
        nearest(x, k)


def test_nearest_in_refuses():
    with pytest.raises(ValueError, match=r"query must have rows as long as those of bank \(3\), got 2"):
        nearest_in(np.eye(3), np.eye(2), 1)
    with pytest.raises(ValueError, match=r"k must be at least 1 and at most 3 \(the rows of bank\), got 4"):
        nearest_in(np.eye(3), np.eye(3), 4)


@given(seed=seeds, n=st.integers(3, 90), data=st.data())
def test_the_k_largest_of_each_row(seed, n, data):
    """Also where the threshold of `largest` is reached by many, because many are equal."""
    k = data.draw(st.integers(1, n))
    values = data.draw(st.sampled_from([2, 5, 10**6]))
    s = np.random.default_rng(seed).integers(0, values, (7, n)).astype(np.float32)
    column, value = largest(s, k)
    assert (value == -np.sort(-s, axis=1)[:, :k]).all()
    assert (value == np.take_along_axis(s, column, 1)).all()
    assert all(len(set(row)) == k for row in column.tolist())
    tied = value[:, 1:] == value[:, :-1]
    assert (column[:, 1:] > column[:, :-1])[tied].all()


# Overlap


def test_overlap_is_the_jaccard_index_of_the_neighbour_sets():
    a, b = nearest(sphere(50, 3), 6)[0], nearest(sphere(50, 3, seed=1), 6)[0]
    sets = [len({*p} & {*q}) / len({*p} | {*q}) for p, q in zip(a.tolist(), b.tolist(), strict=True)]
    assert overlap(a, b) == pytest.approx(sets)
    assert overlap(a, b[:, ::-1]) == pytest.approx(sets)  # order within a set does not matter
    assert overlap(sphere(50, 3), sphere(50, 3, seed=1), k=6) == pytest.approx(sets)


def test_overlap_of_the_same_and_of_disjoint_neighbours():
    a = nearest(sphere(30, 3), 4)[0]
    assert (overlap(a, a) == 1).all()
    assert (overlap(a, a + 1000) == 0).all()
    assert overlap(np.array([[0, 1, 2, 3]]), np.array([[2, 3]])) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("a", "b", "k", "message"),
    [
        (np.zeros((3, 2), int), np.zeros((4, 2), int), None, "one row a sample"),
        (np.eye(3), np.eye(3), None, "embeddings with k given"),
        (np.eye(3), np.eye(4), 1, "b must have as many rows as a"),
        (np.eye(3), np.eye(3), 3, "k must be at least 1 and at most 2"),
    ],
)
def test_overlap_refuses(a, b, k, message):
    with pytest.raises(ValueError, match=message):
        overlap(a, b, k)


# Votes


def test_votes_equal_the_double_loop():
    bank, query = sphere(60, 4), sphere(25, 4, seed=1)
    labels = np.random.default_rng(2).integers(0, 5, 60)
    expected = []
    for q in query:
        votes = [0.0] * 5
        for j in sorted(range(60), key=lambda j: -(q @ bank[j]))[:9]:
            votes[labels[j]] += math.exp(q @ bank[j] / 0.3)
        expected.append(votes.index(max(votes)))
    assert knn_predict(bank, labels, query, k=9, temperature=0.3).tolist() == expected


def test_votes_equal_scikit_learns_with_the_same_weights():
    x, labels = sphere(300, 6), np.random.default_rng(3).integers(0, 7, 300)
    peer = KNeighborsClassifier(
        20, metric="cosine", weights=lambda d: np.exp((1 - d) / 0.1), algorithm="brute"
    )
    for test in range(0, 300, 50):
        rest = np.arange(300) != test
        wanted = peer.fit(x[rest], labels[rest]).predict(x[test : test + 1])
        assert knn_predict(x, labels, k=20, temperature=0.1)[test] == wanted
        assert knn_predict(x[rest], labels[rest], x[test : test + 1]) == wanted


def test_the_temperature_decides_between_one_near_and_two_far_voters():
    bank, labels = [[1, 0.1], [1, 1], [1, 1.01]], [1, 0, 0]
    assert knn_predict(bank, labels, [[1, 0]], k=3, temperature=0.1) == [1]
    assert knn_predict(bank, labels, [[1, 0]], k=3, temperature=10) == [0]


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
def test_no_temperature_overflows(temperature):
    x, labels = sphere(40, 4), np.arange(40) % 3
    with np.errstate(over="raise", invalid="raise"):
        found = knn_predict(x, labels, k=5, temperature=temperature)
    if temperature < 1:
        assert (found == labels[nearest(x, 1)[0][:, 0]]).all()


def test_an_even_vote_goes_to_the_lower_class():
    assert knn_predict([[1, 0.5], [1, -0.5]], [4, 2], [[1, 0]], k=2, temperature=1) == [2]


def test_accuracy_leaves_each_row_out():
    x, labels = np.repeat(np.eye(4), 2, axis=0), np.repeat(np.arange(4), 2)
    assert knn_accuracy(x, labels, k=1) == 1
    assert (
        knn_accuracy(x, np.arange(8), k=1) == 0
    )  # every class has one member, which may not vote for itself
    x = sphere(100, 5)
    labels = np.random.default_rng(4).integers(0, 3, 100)
    assert knn_accuracy(x, labels, 7, 0.2) == (knn_predict(x, labels, None, 7, 0.2) == labels).mean()


def test_accuracy_against_a_bank():
    bank, bank_labels, x, labels = np.eye(3), [5, 6, 7], [[9, 1, 0], [0, 2, 1], [1, 0, 3]], [5, 6, 5]
    assert knn_accuracy(x, labels, k=1, bank=bank, bank_labels=bank_labels) == pytest.approx(2 / 3)


def test_unknown_labels_neither_vote_nor_count():
    x, labels = sphere(60, 3), np.random.default_rng(5).integers(0, 3, 60)
    hidden = np.where(np.arange(60) % 4 == 0, -1, labels)
    known = hidden >= 0
    assert knn_accuracy(x, hidden, k=5) == knn_accuracy(x[known], labels[known], k=5)
    found = knn_predict(x, hidden, k=5)
    assert (found[known] == knn_predict(x[known], labels[known], k=5)).all()
    assert (found[~known] == knn_predict(x[known], labels[known], x[~known], k=5)).all()
    assert (found >= 0).all()
    bank = {"bank": x, "bank_labels": hidden}
    assert knn_accuracy(x, labels, 5, **bank) == (knn_predict(x[known], labels[known], x, 5) == labels).mean()


def test_a_thousand_classes_and_a_single_one():
    x = np.repeat(sphere(1000, 16), 2, axis=0)
    assert knn_accuracy(x, np.repeat(np.arange(1000), 2), k=1) == 1
    assert knn_accuracy(x, np.zeros(2000, int), k=20) == 1


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"k": 6}, r"k must be at least 1 and at most 5 \(one less than the labelled rows of x\), got 6"),
        ({"temperature": 0}, "temperature must be a finite number above 0, got 0"),
        ({"labels": None}, "labels must give the class of each row; there are none"),
        ({"labels": [-1] * 6}, "labels must hold at least one known class; all are negative"),
        ({"labels": [0, 1]}, "labels must be one number a row, 6 in all"),
        ({"bank": np.eye(2), "bank_labels": [0, 1]}, r"query must have rows as long as those of bank \(2\)"),
        ({"bank": np.eye(6), "bank_labels": [-1] * 6}, "bank_labels must hold at least one known class"),
        ({"bank": np.eye(6)}, "bank_labels must"),
    ],
)
def test_accuracy_refuses(kwargs, message):
    with pytest.raises(ValueError, match=message):
        knn_accuracy(**{"x": np.eye(6), "labels": np.arange(6), "k": 2} | kwargs)


def test_confusion_equals_scikit_learns():
    rng = np.random.default_rng(6)
    labels, predicted = rng.integers(0, 6, (2, 200))
    assert (confusion(labels, predicted) == confusion_matrix(labels, predicted)).all()
    assert confusion(labels, predicted, classes=9).shape == (9, 9)
    labels[::5] = -1
    assert confusion(labels, predicted).sum() == (labels >= 0).sum()


@pytest.mark.parametrize(
    ("labels", "predicted", "classes"),
    [([0, 1], [0, 1, 1], None), ([0, 5], [0, 0], 3), ([0, 1], [0, -1], None), ([0, 1], [0, 7], 2)],
)
def test_confusion_refuses(labels, predicted, classes):
    with pytest.raises(ValueError, match=r"(predicted|classes) must"):
        confusion(labels, predicted, classes)


# Hubs and density


def test_k_occurrence_is_counted_and_its_skewness_is_scipys():
    indices = nearest(sphere(200, 30), 5)[0]
    found = hubness(indices)
    counted = [sum(i in row for row in indices.tolist()) for i in range(200)]
    assert found.occurrence.tolist() == counted
    assert found.occurrence.mean() == found.k == 5
    assert found.skewness == pytest.approx(skew(counted))
    assert found.anti_hubs == pytest.approx(counted.count(0) / 200)


def test_a_star_has_one_hub_and_a_ring_has_none():
    star = hubness(np.array([[1], [0], [0], [0], [0], [0]]))
    assert star.occurrence.tolist() == [5, 1, 0, 0, 0, 0]
    assert star.anti_hubs == pytest.approx(4 / 6)
    assert star.skewness > 1
    ring = hubness((np.arange(6)[:, None] + [1, 2]) % 6)
    assert (ring.occurrence == 2).all()
    assert (ring.skewness, ring.anti_hubs) == (0, 0)


def test_hubs_of_a_bank():
    with pytest.raises(ValueError, match="indices must be neighbour indices N×k"):
        hubness(np.eye(3))


def test_density_is_the_mean_cosine():
    assert local_density([[1.0, 0.5], [0.2, -0.2]]) == pytest.approx([0.75, 0])
    with pytest.raises(ValueError, match="cosines must be an N×k array"):
        local_density(np.ones(3))


# Invariances


@given(seed=seeds, n=st.integers(8, 60), d=st.integers(2, 8))
def test_a_rotation_changes_no_neighbours(seed, n, d):
    x = sphere(n, d, seed)
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]
    labels = np.arange(n) % 3
    (a, similar), (b, turned) = nearest(x, 5), nearest(x @ turn, 5)
    assert turned == pytest.approx(similar, abs=1e-12)
    assert (overlap(a, b) == 1).all()
    assert (hubness(a).occurrence == hubness(b).occurrence).all()
    assert (knn_predict(x, labels, k=5) == knn_predict(x @ turn, labels, k=5)).all()


@given(seed=seeds, n=st.integers(8, 60))
def test_the_order_of_the_samples_only_renames_the_neighbours(seed, n):
    rng = np.random.default_rng(seed)
    x, order = sphere(n, 4, seed), rng.permutation(n)
    a, b = nearest(x, 5)[0], nearest(x[order], 5)[0]
    assert (order[b] == a[order]).all()


def test_no_n_by_n_array(monkeypatch):
    """What a search multiplies at a time stays within a block."""
    sizes = []
    real = neighbors.largest
    monkeypatch.setattr(neighbors, "largest", lambda s, k: sizes.append(s.size) or real(s, k))
    monkeypatch.setattr(checks, "BLOCK", 10_000)
    nearest(sphere(1000, 4), 3)
    assert max(sizes) <= 10_000
    assert sum(sizes) == 1000 * 1000


def test_chance_overlap_equals_enumeration_and_simulation():
    # 4 samples, k = 2: of the 3 pairs among 3 others, one is equal (J = 1) and two share one (J = 1/3).
    assert chance_overlap(4, 2) == pytest.approx((1 + 2 / 3) / 3)
    assert chance_overlap(6, 5) == 1  # all others are neighbours
    rng = np.random.default_rng(0)
    n, k = 40, 10
    draws = [set(rng.permutation(n - 1)[:k].tolist()) for _ in range(4000)]
    fixed = set(range(k))
    simulated = np.mean([len(fixed & d) / len(fixed | d) for d in draws])
    assert chance_overlap(n, k) == pytest.approx(simulated, abs=0.005)
    assert 0 < chance_overlap(50_000, 20) < 1e-3
