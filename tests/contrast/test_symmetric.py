import copy

import pytest
import torch

from moco_core.contrast.infonce import info_nce
from moco_core.contrast.moco import MoCo
from moco_core.contrast.symmetric import SymmetricMoCo
from moco_core.nets.encoder import build_encoder

SETTINGS = {"dim": 8, "queue_size": 10, "momentum": 0.9, "temperature": 0.2}


def symmetric() -> SymmetricMoCo:
    torch.manual_seed(0)
    return SymmetricMoCo(build_encoder("small-cnn", 1, 16, 8), **SETTINGS).train()


def views(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.randn(2, 4, 1, 16, 16, generator=torch.Generator().manual_seed(seed)))


def a_step(method: MoCo, step: int, *, swapped: bool = False):
    samples = torch.arange(4) + 4 * step
    view_q, view_k = views(step)
    scored = method.score(*((view_k, view_q) if swapped else (view_q, view_k)), samples, step)
    method.remember(scored.keys, samples, samples, step)
    return scored


def test_the_loss_is_the_mean_of_both_directions():
    """Each direction by itself is MoCo with the views the one way and the other."""
    method = symmetric()
    torch.manual_seed(0)
    one_way = MoCo(build_encoder("small-cnn", 1, 16, 8), **SETTINGS).train()
    other_way = copy.deepcopy(one_way)
    for step in range(5):
        both = a_step(method, step)
        first, second = a_step(one_way, step), a_step(other_way, step, swapped=True)
        torch.testing.assert_close(both.loss, (first.loss + second.loss) / 2)
        torch.testing.assert_close(both.logits, torch.cat([first.logits, second.logits]))
        torch.testing.assert_close(method.queue.keys, one_way.queue.keys)
        torch.testing.assert_close(method.second_queue.keys, other_way.queue.keys)


def test_no_sample_meets_its_other_view_among_the_negatives():
    method = symmetric()
    scored = a_step(method, 0)
    assert scored.logits.shape == (8, 1)
    assert scored.loss == 0
    assert (method.queue.filled, method.second_queue.filled) == (4, 4)
    assert not torch.equal(method.queue.keys, method.second_queue.keys)
    query, key = method.query(views(0)[0])[1], method.key(views(0)[1])[1]
    torch.testing.assert_close(
        scored.logits[:4], info_nce(query, key, key[:0], 0.2).logits, atol=1e-4, rtol=0
    )


def test_gradients_flow_to_the_query_encoder_alone():
    method = symmetric()
    a_step(method, 0)
    method.score(*views(1), torch.arange(4), 1).loss.backward()
    assert all(p.grad is not None for p in method.query.parameters())
    assert all(p.grad is None for p in method.key.parameters())


def test_both_queues_are_saved_and_restored():
    method, fresh = symmetric(), symmetric()
    for step in range(3):
        a_step(method, step)
    state = method.dictionary_state()
    fresh.load_dictionary_state(state)
    for queue, restored in ((method.queue, fresh.queue), (method.second_queue, fresh.second_queue)):
        assert torch.equal(queue.keys, restored.keys)
        assert torch.equal(queue.written_steps, restored.written_steps)
    with pytest.raises(KeyError):
        fresh.load_dictionary_state({name: a for name, a in state.items() if not name.startswith("second.")})
