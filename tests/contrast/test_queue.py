import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moco_core.contrast.queue import KeyQueue


def enqueue(queue: KeyQueue, ids: range, step: int) -> None:
    """Keys whose first number is the sample id, so that every slot can be recognised."""
    samples = torch.tensor(list(ids))
    keys = torch.stack([samples.float(), torch.ones(len(samples))], dim=1)
    queue.enqueue(keys, samples, samples % 3, step)


@given(size=st.integers(1, 13), batches=st.lists(st.integers(1, 20), max_size=8))
def test_holds_the_newest_in_order_whatever_the_sizes(size, batches):
    queue, everything, start = KeyQueue(size, 2), [], 0
    for step, count in enumerate(batches, start=1):
        enqueue(queue, range(start, start + count), step)
        everything += [(sample, step) for sample in range(start, start + count)]
        start += count
    newest = everything[-size:]
    assert len(queue) == queue.filled == min(size, start)
    assert queue.sample_ids.tolist() == [sample for sample, _ in newest]
    assert queue.written_steps.tolist() == [step for _, step in newest]
    assert queue.labels.tolist() == [sample % 3 for sample, _ in newest]
    assert queue.keys[:, 0].tolist() == [sample for sample, _ in newest]
    assert queue.ages(10).tolist() == [10 - step for _, step in newest]
    assert sorted(queue.negatives[:, 0].tolist()) == [sample for sample, _ in newest]


def test_unfilled_slots_are_never_negatives():
    queue = KeyQueue(10, 2)
    assert queue.negatives.shape == queue.keys.shape == (0, 2)
    enqueue(queue, range(3), 1)
    assert queue.negatives.shape == (3, 2)


@given(size=st.integers(1, 9), before=st.lists(st.integers(1, 12), max_size=4), after=st.integers(1, 12))
def test_a_restored_queue_goes_on_alike(size, before, after):
    queue, restored, start = KeyQueue(size, 2), KeyQueue(size, 2), 0
    for step, count in enumerate(before):
        enqueue(queue, range(start, start + count), step)
        start += count
    restored.load_state_dict(queue.state_dict())
    for each in (queue, restored):
        enqueue(each, range(start, start + after), 99)
    for name, tensor in queue.state_dict().items():
        assert torch.equal(tensor, restored.state_dict()[name]), name


def test_state_is_a_copy_not_a_view():
    queue = KeyQueue(4, 2)
    enqueue(queue, range(2), 1)
    state = queue.state_dict()
    enqueue(queue, range(10, 14), 2)
    assert state["sample_ids"].tolist() == [0, 1]


def test_keys_carry_no_gradient():
    queue = KeyQueue(4, 2)
    queue.enqueue(torch.ones(2, 2, requires_grad=True) * 2, torch.arange(2), torch.arange(2), 1)
    assert not queue.keys.requires_grad


@pytest.mark.parametrize(
    ("size", "dim", "sentence"), [(0, 4, "size must be at least 1, got 0"), (3, 1, "dim must")]
)
def test_impossible_queues_are_refused(size, dim, sentence):
    with pytest.raises(ValueError, match=sentence):
        KeyQueue(size, dim)


@pytest.mark.parametrize(
    ("keys", "ids", "sentence"),
    [((2, 3), 2, r"keys must be B×2, got shape \(2, 3\)"), ((2, 2), 3, "equally long")],
)
def test_bad_batches_change_nothing(keys, ids, sentence):
    queue = KeyQueue(4, 2)
    enqueue(queue, range(2), 1)
    with pytest.raises(ValueError, match=sentence):
        queue.enqueue(torch.zeros(*keys), torch.arange(ids), torch.arange(ids), 2)
    assert queue.sample_ids.tolist() == [0, 1]
