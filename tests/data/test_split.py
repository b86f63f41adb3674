from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moco_core.data.split import held_out_rows


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
