import copy

import pytest
import torch
from torch import nn

from moco_core.contrast.moco import MoCo, ema_update
from moco_core.nets.encoder import build_encoder


@pytest.fixture
def moco() -> MoCo:
    torch.manual_seed(0)
    encoder = build_encoder("small-cnn", 1, 16, 8, "plain")
    return MoCo(encoder, dim=8, queue_size=10, momentum=0.9, temperature=0.2).train()


def views(seed: int, batch: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(2, batch, 1, 16, 16, generator=generator))


def a_step(moco: MoCo, step: int) -> None:
    samples = torch.arange(4) + 4 * step
    scored = moco.score(*views(step), samples, step)
    scored.loss.backward()
    moco.remember(scored.keys, samples, samples, step)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.999, 1.0])
def test_ema_update_moves_every_parameter_by_the_formula(momentum):
    key, query = nn.Linear(3, 2), nn.Linear(3, 2)
    before = copy.deepcopy(key)
    ema_update(key, query, momentum)
    for now, old, target in zip(key.parameters(), before.parameters(), query.parameters(), strict=True):
        torch.testing.assert_close(now, momentum * old + (1 - momentum) * target)
    if momentum in (0.0, 1.0):
        same = query if momentum == 0 else before
        assert all(torch.equal(a, b) for a, b in zip(key.parameters(), same.parameters(), strict=True))


def test_ema_update_leaves_buffers_alone():
    key, query = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    query(torch.randn(8, 3) + 5)
    before = key.running_mean.clone()
    ema_update(key, query, 0.5)
    assert torch.equal(key.running_mean, before)


@pytest.mark.parametrize("momentum", [-0.1, 1.1, float("nan")])
def test_ema_update_refuses_a_momentum_out_of_range(momentum):
    with pytest.raises(ValueError, match="momentum must be at least 0 and at most 1"):
        ema_update(nn.Linear(2, 2), nn.Linear(2, 2), momentum)


def test_ema_update_refuses_modules_that_do_not_correspond():
    with pytest.raises(ValueError, match="same shapes"):
        ema_update(nn.Linear(2, 2), nn.Linear(2, 3), 0.5)


def test_the_key_encoder_starts_as_a_copy(moco):
    pairs = zip(moco.query.state_dict().values(), moco.key.state_dict().values(), strict=True)
    assert all(torch.equal(q, k) for q, k in pairs)


def test_gradient_reaches_only_the_query(moco):
    a_step(moco, 1)
    moco.zero_grad()
    a_step(moco, 2)
    assert all(p.grad is not None for p in moco.query.parameters())
    assert max(p.grad.abs().max() for p in moco.query.parameters()) > 0
    assert all(p.grad is None for p in moco.key.parameters())


def test_the_batch_is_scored_before_it_is_remembered(moco):
    samples = torch.arange(4)
    first = moco.score(*views(1), samples, 1)
    assert first.logits.shape == (4, 1)
    assert len(moco.queue) == 0
    moco.remember(first.keys, samples, samples, 1)
    second = moco.score(*views(2), samples + 4, 2)
    assert second.logits.shape == (4, 5)
    assert torch.equal(moco.queue.keys, first.keys)


def test_the_positive_is_never_among_its_own_negatives(moco):
    for step in range(1, 6):
        scored = moco.score(*views(step), torch.arange(4), step)
        positive, negatives = scored.logits[:, :1], scored.logits[:, 1:]
        assert not (negatives == positive).any()
        matches = (moco.queue.negatives[None] == scored.keys[:, None]).all(dim=-1)
        assert not matches.any()
        moco.remember(scored.keys, torch.arange(4), torch.arange(4), step)


def test_newest_keys_are_those_of_the_current_key_encoder(moco):
    for step in range(1, 4):
        a_step(moco, step)
    again = moco.encode_keys(views(3)[1], 3)
    assert torch.equal(moco.queue.keys[-4:], again)


def test_a_shuffled_batch_gives_each_image_its_own_key():
    torch.manual_seed(0)
    encoder = build_encoder("small-cnn", 1, 16, 8, "plain").eval()
    plain = MoCo(encoder, dim=8, queue_size=10, momentum=0.9, temperature=0.2).eval()
    shuffled = MoCo(encoder, dim=8, queue_size=10, momentum=0.9, temperature=0.2, shuffle_seed=3).eval()
    images = views(1, batch=9)[1]
    torch.testing.assert_close(plain.encode_keys(images, 5), shuffled.encode_keys(images, 5))
