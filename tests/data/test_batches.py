from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moco_core.data import batches
from moco_core.data.batches import batch_indices


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**31 - 1), st.integers(0, 30))
def test_an_epoch_meets_every_image_at_most_once_and_drops_the_rest(n, batch_size, seed, epoch):
    batch_size = min(batch_size, n)
    steps = n // batch_size
    met = torch.cat([batch_indices(n, batch_size, seed, epoch * steps + i + 1) for i in range(steps)])
    assert len(met) == steps * batch_size
    assert len(met.unique()) == len(met)
    assert met.min() >= 0
    assert met.max() < n


def test_an_epoch_without_remainder_is_a_permutation():
    met = torch.cat([batch_indices(1000, 100, 3, step) for step in range(1, 11)])
    assert met.sort().values.equal(torch.arange(1000))
    assert not met.equal(torch.arange(1000))


def test_the_batch_of_a_step_doesnt_depend_on_what_was_asked_before():
    before = [batch_indices(50, 8, 1, step).clone() for step in range(1, 80)]
    batches._order.cache_clear()
    for step in reversed(range(1, 80)):
        assert batch_indices(50, 8, 1, step).equal(before[step - 1])


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [batch_indices(100, 100, seed, step) for seed in range(5) for step in range(1, 6)]
    assert len({tuple(order.tolist()) for order in orders}) == 25


def test_every_image_is_equally_likely_at_every_place():
    first = torch.stack([batch_indices(10, 10, 0, step) for step in range(1, 4001)])
    for place in range(10):
        counts = first[:, place].bincount(minlength=10)
        assert (counts - 400).abs().max() < 6 * 19  # standard deviation of a count: 19


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((10, 11, 0, 1), "batch_size must be at least 1 and at most the 10 images, got 11"),
        ((10, 0, 0, 1), "batch_size must be at least 1 and at most the 10 images, got 0"),
        ((10, 5, 0, 0), "step must be at least 1, got 0"),
    ],
)
def test_impossible_batches(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        batch_indices(*arguments)
