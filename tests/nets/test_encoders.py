from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from moco_core.config import ENCODERS
from moco_core.nets.encoder import build_encoder
from moco_core.nets.encoders import BACKBONES, build_backbone
from moco_core.nets.norm import SplitBatchNorm2d


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("size", [8, 16, 28, 32, 64, 96])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["small-cnn", "resnet18"])
def test_features_and_embeddings_of_every_size(name, channels, size):
    encoder = build_encoder(name, channels, size, dim=5)
    features, embedding = encoder(torch.randn(2, channels, size, size))
    assert features.shape == (2, encoder.backbone.feature_dim)
    assert embedding.shape == (2, 5)
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(2))


def test_resnet50_has_2048_features():
    encoder = build_encoder("resnet50", 3, 32, dim=2).eval()
    features, embedding = encoder(torch.randn(1, 3, 32, 32))
    assert features.shape == (1, 2048)
    assert embedding.shape == (1, 2)


def test_small_cnn_is_small():
    assert count(build_backbone("small-cnn", 1, 28)) == 9 * (32 + 32 * 48 + 48 * 96 + 96 * 128) + 2 * 304
    assert 100_000 < count(build_encoder("small-cnn", 1, 28, dim=128)) < 200_000
    assert build_backbone("small-cnn", 1, 28).feature_dim == 128


def test_resnets_are_the_published_ones():
    # torchvision's sizes, less the classifier of 1000 classes
    assert count(build_backbone("resnet18", 3, 224)) == 11_689_512 - 513_000
    assert count(build_backbone("resnet50", 3, 224)) == 25_557_032 - 2_049_000


@pytest.mark.parametrize(("size", "seen"), [(32, 32), (64, 64), (65, 17), (224, 56)])
def test_small_images_keep_their_resolution_through_the_stem(size, seen):
    backbone = build_backbone("resnet18", 3, size)
    sizes = []
    backbone.layer1.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[-1]))
    backbone(torch.randn(2, 3, size, size))
    assert sizes == [seen]
    assert backbone.conv1.kernel_size == ((3, 3) if size <= 64 else (7, 7))


@pytest.mark.parametrize("name", ["small-cnn", "resnet18"])
@pytest.mark.parametrize("batch_norm", ["plain", "split"])
def test_the_same_seed_gives_the_same_encoder(name, batch_norm):
    def made(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build_encoder(name, 1, 16, 8, batch_norm).state_dict()

    first, again, other = made(1), made(1), made(2)
    assert all(first[key].equal(again[key]) for key in first)
    assert any(not first[key].equal(other[key]) for key in first)


def test_the_kind_of_batch_norm_changes_no_weight():
    torch.manual_seed(0)
    plain = build_encoder("resnet18", 3, 32, 8, "plain")
    torch.manual_seed(0)
    split = build_encoder("resnet18", 3, 32, 8, "split")
    assert plain.state_dict().keys() == split.state_dict().keys()
    assert all(
        a.equal(b) for a, b in zip(plain.state_dict().values(), split.state_dict().values(), strict=True)
    )
    assert not any(type(m) is nn.BatchNorm2d for m in split.modules())
    assert sum(isinstance(m, SplitBatchNorm2d) for m in split.modules()) == 20


def test_every_parameter_learns():
    torch.manual_seed(0)
    encoder = build_encoder("small-cnn", 1, 16, 8)
    _, z = encoder(torch.randn(16, 1, 16, 16))
    (z * torch.randn(16, 8)).sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_memory_layout_changes_no_embedding():
    torch.manual_seed(0)
    encoder = build_encoder("small-cnn", 3, 32, 8).eval()
    x = torch.randn(4, 3, 32, 32)
    contiguous = encoder(x)[1]
    encoder.to(memory_format=torch.channels_last)
    torch.testing.assert_close(encoder(x.to(memory_format=torch.channels_last))[1], contiguous)


def test_embeddings_are_normalised_in_full_precision():
    torch.manual_seed(0)
    encoder = build_encoder("small-cnn", 1, 16, 64)
    with torch.autocast("cpu", torch.bfloat16):
        features, embedding = encoder(torch.randn(8, 1, 16, 16))
    assert features.dtype == torch.bfloat16
    assert embedding.dtype == torch.float32
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(8), atol=1e-6, rtol=0)


def test_bf16_is_for_training_and_weights_stay_in_full_precision():
    torch.manual_seed(0)
    full = build_encoder("small-cnn", 1, 16, 8)
    torch.manual_seed(0)
    half = build_encoder("small-cnn", 1, 16, 8, precision="bf16")
    images = torch.randn(8, 1, 16, 16)
    features, embedding = half.train()(images)
    assert (features.dtype, embedding.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(8), atol=1e-6, rtol=0)
    torch.testing.assert_close(embedding, full.train()(images)[1], atol=0.03, rtol=0)
    assert not torch.equal(embedding, full(images)[1])
    embedding.sum().backward()
    assert (
        {p.dtype for p in half.parameters()} == {p.grad.dtype for p in half.parameters()} == {torch.float32}
    )
    half.load_state_dict(full.state_dict())
    assert torch.equal(half.eval()(images)[1], full.eval()(images)[1])


def test_a_linear_head_has_no_hidden_layer():
    encoder = build_encoder("small-cnn", 1, 16, 8, head="linear")
    assert [tuple(p.shape) for p in encoder.head.parameters()] == [(8, 128), (8,)]
    images = torch.randn(4, 1, 16, 16)
    features, embedding = encoder.eval()(images)
    expected = features @ encoder.head.weight.T + encoder.head.bias
    torch.testing.assert_close(embedding, expected / expected.norm(dim=1, keepdim=True))


def test_known_encoders_are_those_of_the_config():
    assert tuple(BACKBONES) == ENCODERS


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("resnet-18", 3, 32, 8), "encoder must be one of small-cnn, .*'resnet-18'; did you mean 'resnet18'"),
        (("smalcnn", 3, 32, 8), "did you mean 'small-cnn'"),
        (("small-cnn", 0, 32, 8), "channels must be at least 1, got 0"),
        (("small-cnn", 1, 7, 8), "image_size must be at least 8 pixels, got 7"),
        (("small-cnn", 1, 16, 1), "dim must be at least 2, got 1"),
        (("small-cnn", 1, 16, 8, "plain", "fp32", "none"), "head must be one of mlp, linear, got 'none'"),
        (("small-cnn", 1, 16, 8, "plain", "fp16"), "precision must be fp32 or bf16, got 'fp16'"),
        (("small-cnn", 1, 16, 8, "sink"), "kind must be one of plain, split, sync, got 'sink'"),
    ],
)
def test_what_cant_be_built_is_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        build_encoder(*arguments)


def test_a_copy_lists_its_own_parameters():
    encoder = build_encoder("small-cnn", 1, 16, 8)
    assert all(a is b for a, b in zip(encoder.theta, encoder.parameters(), strict=True))
    twin = copy.deepcopy(encoder)
    assert all(a is b for a, b in zip(twin.theta, twin.parameters(), strict=True))
    assert not {id(p) for p in twin.theta} & {id(p) for p in encoder.theta}
    assert twin.state_dict().keys() == encoder.state_dict().keys()
