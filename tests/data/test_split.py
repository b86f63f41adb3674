from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moco_core.data.split import held_out_rows, stratified_rows


@given(st.lists(st.integers(-1, 5), min_size=4, max_size=300))
def test_a_fifth_is_held_out_of_every_class(labels):
    labels = np.array(labels)
    held_out = held_out_rows(labels)
    assert held_out.sum() == max(2, round(0.2 * len(labels)))
    for label in np.unique(labels):
        count = (labels == label).sum()
        if len(labels) >= 10:  # below, two are more than a fifth
            assert abs(held_out[labels == label].sum() - 0.2 * count) <= 1.5
    np.testing.assert_array_equal(held_out_rows(labels), held_out)


def test_a_class_of_one_stays_in_training_beside_large_ones():
    labels = np.array([0] * 50 + [1] + [2] * 50 + [3] * 2)
    held_out = held_out_rows(labels)
    assert not held_out[labels == 1].any()
    assert not held_out[labels == 3].any()
    assert abs(int(held_out[labels == 0].sum()) - 10) <= 1


def test_what_is_held_out_doesnt_follow_the_order_of_the_files():
    held_out = np.flatnonzero(held_out_rows(np.full(1000, -1)))
    assert len(held_out) == 200
    assert abs(held_out.mean() - 499.5) < 6 * 1000 / np.sqrt(12 * 200)
    assert len(set(np.diff(held_out))) > 5


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=300), st.integers(1, 400), st.integers(0, 3))
def test_chosen_rows_are_the_same_share_of_every_class(labels, count, seed):
    labels = np.array(labels)
    chosen = stratified_rows(labels, count, seed)
    assert chosen.sum() == min(count, len(labels))
    for label in np.unique(labels):
        members = labels == label
        assert abs(chosen[members].sum() - members.sum() * chosen.mean()) <= 1.5
    np.testing.assert_array_equal(stratified_rows(labels, count, seed), chosen)


def test_another_seed_chooses_others():
    labels = np.zeros(1000, int)
    assert (stratified_rows(labels, 100, 0) & stratified_rows(labels, 100, 1)).sum() < 40
