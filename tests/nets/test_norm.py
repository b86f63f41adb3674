"""Split batch norm against separate batch norms, one for each part of the batch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from moco_core.nets.norm import SplitBatchNorm2d, convert


def pair(channels: int, groups: int) -> tuple[SplitBatchNorm2d, list[nn.BatchNorm2d]]:
    """A split batch norm and a plain one for each group, all with the same weights and statistics."""
    torch.manual_seed(0)
    plain = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.3)
    for values in (plain.weight, plain.bias, plain.running_mean, plain.running_var):
        nn.init.uniform_(values.data, 0.5, 2)
    split = convert(plain, "split", groups)
    assert isinstance(split, SplitBatchNorm2d)
    return split, [copy.deepcopy(plain) for _ in range(groups)]


@pytest.fixture(params=[torch.contiguous_format, torch.channels_last])
def images(request) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 5, 3, 4, generator=generator) * torch.arange(1, 13).view(-1, 1, 1, 1)
    return x.to(memory_format=request.param)


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 6])
def test_output_is_that_of_a_norm_for_each_part(images, groups):
    split, norms = pair(5, groups)
    expected = torch.cat([norm(part) for norm, part in zip(norms, images.chunk(groups), strict=True)])
    torch.testing.assert_close(split(images), expected, atol=1e-6, rtol=1e-6)
    if groups > 1:
        assert (split(images) - norms[0](images)).abs().max() > 0.1


@pytest.mark.parametrize("groups", [1, 3, 4])
def test_running_statistics_are_the_mean_over_the_parts(images, groups):
    split, norms = pair(5, groups)
    for _ in range(3):
        split(images)
        for norm, part in zip(norms, images.chunk(groups), strict=True):
            norm(part)
    for name in ("running_mean", "running_var"):
        expected = torch.stack([getattr(norm, name) for norm in norms]).mean(dim=0)
        torch.testing.assert_close(getattr(split, name), expected)
    assert split.num_batches_tracked == 3


def test_gradients_are_those_of_a_norm_for_each_part(images):
    split, norms = pair(5, 4)
    toward = torch.randn(images.shape, generator=torch.Generator().manual_seed(2))
    x, y = images.clone().requires_grad_(), images.clone().requires_grad_()
    (split(x) * toward).sum().backward()
    (torch.cat([norm(part) for norm, part in zip(norms, y.chunk(4), strict=True)]) * toward).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, atol=1e-5, rtol=1e-5)
    for name in ("weight", "bias"):
        expected = sum(getattr(norm, name).grad for norm in norms)
        torch.testing.assert_close(getattr(split, name).grad, expected, atol=1e-4, rtol=1e-4)


def test_evaluation_is_plain_batch_norm(images):
    split, norms = pair(5, 4)
    assert split.eval()(images).equal(norms[0].eval()(images))
    assert split(images[:7]).shape[0] == 7  # any batch size


def test_statistics_can_be_left_alone(images):
    split, norms = pair(5, 4)
    before = copy.deepcopy(split.state_dict())
    split.track_running_stats = False
    expected = torch.cat([norm(part) for norm, part in zip(norms, images.chunk(4), strict=True)])
    torch.testing.assert_close(split(images), expected, atol=1e-6, rtol=1e-6)
    assert all(before[key].equal(value) for key, value in split.state_dict().items())


def test_a_batch_that_doesnt_divide_is_refused(images):
    split, _ = pair(5, 4)
    with pytest.raises(ValueError, match="multiple of 4 images for split batch norm, got 10"):
        split(images[:10])


def test_convert_reaches_every_norm_and_keeps_everything_else():
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(nn.BatchNorm2d(2), nn.ReLU()), nn.BatchNorm1d(2))
    before = copy.deepcopy(net.state_dict())
    assert convert(net, "plain") is net
    assert type(net[1][0]) is nn.BatchNorm2d
    converted = convert(net, "split", 2)
    assert isinstance(converted[1][0], SplitBatchNorm2d)
    assert converted[1][0].groups == 2
    assert type(converted[2]) is nn.BatchNorm1d
    assert all(before[key].equal(value) for key, value in converted.state_dict().items())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: convert(nn.ReLU(), "sunk"), "kind must be one of plain, split, sync, got 'sunk'"),
        (lambda: SplitBatchNorm2d(3, groups=0), "groups must be at least 1, got 0"),
    ],
)
def test_what_cant_be_made_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
