import pytest
import torch

from moco_core.contrast.in_batch import InBatch
from moco_core.contrast.infonce import info_nce
from moco_core.contrast.memory_bank import MemoryBank
from moco_core.contrast.method import readouts
from moco_core.nets.encoder import build_encoder

SAMPLES = 12


def encoder():
    torch.manual_seed(0)
    return build_encoder("small-cnn", 1, 16, 8, "plain")


def views(seed: int, batch: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(2, batch, 1, 16, 16, generator=generator))


def bank(draws: int = 5) -> MemoryBank:
    return MemoryBank(encoder(), samples=SAMPLES, dim=8, draws=draws, temperature=0.2, seed=0).train()


def see(method: MemoryBank, samples: list[int], step: int):
    chosen = torch.tensor(samples)
    scored = method.score(*views(step, len(samples)), chosen, step)
    method.remember(scored.keys, chosen, chosen % 3, step)
    return scored


def test_in_batch_takes_the_rest_of_the_batch_as_negatives():
    method = InBatch(encoder(), temperature=0.2).train()
    scored = method.score(*views(1), torch.arange(4), 1)
    q, k = (method.query(view)[1] for view in views(1))
    rows = [info_nce(q[i : i + 1], k[i : i + 1], k[torch.arange(4) != i], 0.2).loss for i in range(4)]
    torch.testing.assert_close(scored.loss, torch.stack(rows).mean())
    assert method.filled == 3
    assert method.dictionary() is None


def test_in_batch_gradient_flows_through_both_views():
    method = InBatch(encoder(), temperature=0.2).train()
    view_q, view_k = (view.requires_grad_() for view in views(1))
    method.score(view_q, view_k, torch.arange(4), 1).loss.backward()
    assert view_q.grad.abs().max() > 0
    assert view_k.grad.abs().max() > 0


def test_bank_writes_each_sample_its_own_slot():
    method = bank()
    first = see(method, [0, 1, 2, 3], 1)
    second = see(method, [2, 3, 4, 5], 2)
    stored = method.dictionary()
    assert stored.samples.tolist() == [0, 1, 2, 3, 4, 5]
    assert stored.written_steps.tolist() == [1, 1, 2, 2, 2, 2]
    assert stored.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert stored.size == SAMPLES
    torch.testing.assert_close(stored.keys, torch.cat([first.keys[:2], second.keys]))


def test_bank_positive_is_the_stored_key_of_the_sample():
    method = bank()
    stored = see(method, [0, 1, 2, 3], 1).keys
    scored = method.score(*views(2), torch.tensor([0, 1, 2, 3]), 2)
    expected = (method.query(views(2)[0])[1] * stored).sum(dim=1) / 0.2
    torch.testing.assert_close(scored.logits[:, 0], expected)


def test_bank_never_offers_a_sample_its_own_slot_as_negative():
    method = bank(draws=SAMPLES)
    see(method, [0, 1, 2, 3], 1)
    scored = see(method, [0, 1, 8, 9], 2)
    drawn = method._draw(2)  # after writing, so that 8 and 9 are there too
    assert scored.logits.shape == (4, 5)
    excluded = scored.logits[:, 1:].isinf()
    assert excluded.sum(dim=1).tolist() == [1, 1, 0, 0]
    assert set(drawn.tolist()) == {0, 1, 2, 3, 8, 9}


def test_bank_draws_without_replacement_and_alike_at_one_step():
    method = bank(draws=5)
    see(method, list(range(12)), 1)
    draw = method._draw(7)
    assert len(set(draw.tolist())) == 5
    assert torch.equal(draw, method._draw(7))
    assert not torch.equal(draw, method._draw(8))


def test_bank_restores_exactly():
    method, restored = bank(), bank()
    see(method, [0, 1, 2, 3], 1)
    restored.load_dictionary_state({k: v.clone() for k, v in method.dictionary_state().items()})
    for a, b in zip(method.dictionary(), restored.dictionary(), strict=True):
        assert a == b if isinstance(a, int) else torch.equal(a, b)


def test_readouts_leave_excluded_pairs_out():
    method = InBatch(encoder(), temperature=0.2).train()
    scored = method.score(*views(1), torch.arange(4), 1)
    q, k = (method.query(view)[1] for view in views(1))
    cosines = q @ k.T
    shown = readouts(scored, 0.2)
    off_diagonal = ~torch.eye(4, dtype=torch.bool)
    assert shown.positive_cosine.item() == pytest.approx(cosines.diagonal().mean().item(), abs=1e-6)
    assert shown.negative_cosine.item() == pytest.approx(cosines[off_diagonal].mean().item(), abs=1e-6)
    best = (cosines.argmax(dim=1) == torch.arange(4)).float().mean()
    assert shown.contrast_accuracy.item() == best.item()


def test_readouts_before_any_negative():
    method = bank()
    shown = readouts(see(method, [0, 1], 1), 0.2)
    assert shown.negative_cosine.isnan()
