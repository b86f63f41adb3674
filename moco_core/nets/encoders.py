"""Backbones: an image in, a feature vector out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torchvision
from torch import Tensor, nn

from moco_core.config import nearest

SMALL_IMAGE = 64  # pixels up to which a ResNet keeps its full resolution through the stem


class SmallCNN(nn.Module):
    """Four convolutions for images of 8 to 64 pixels: about 0.2 million parameters, F = 128."""

    feature_dim = 128

    def __init__(self, channels: int) -> None:
        super().__init__()
        widths = (channels, 32, 48, 96, 128)
        layers: list[nn.Module] = []
        for i, (c_in, c_out) in enumerate(pairwise(widths)):
            layers += [
                nn.Conv2d(c_in, c_out, kernel_size=3, stride=1 if i == 0 else 2, padding=1, bias=False),
                nn.BatchNorm2d(c_out),
                nn.ReLU(inplace=True),
            ]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        """B×C×H×W → B×128."""
        return self.layers(x)


def _small_cnn(channels: int, image_size: int) -> nn.Module:
    return SmallCNN(channels)


def _resnet(build: Callable[..., torchvision.models.ResNet]) -> Callable[[int, int], nn.Module]:
    """A torchvision ResNet without its classifier, with a stem that suits the image size."""

    def make(channels: int, image_size: int) -> nn.Module:
        net = build(weights=None)
        net.feature_dim = net.fc.in_features
        net.fc = nn.Identity()
        small = image_size <= SMALL_IMAGE
        if small or channels != 3:
            kernel, stride = (3, 1) if small else (7, 2)
            net.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding=kernel // 2, bias=False)
            nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        if small:
            net.maxpool = nn.Identity()
        return net

    return make


BACKBONES: dict[str, Callable[[int, int], nn.Module]] = {
    "small-cnn": _small_cnn,
    "resnet18": _resnet(torchvision.models.resnet18),
    "resnet50": _resnet(torchvision.models.resnet50),
}


def build_backbone(name: str, channels: int, image_size: int) -> nn.Module:
    """A freshly initialised backbone with an attribute `feature_dim` (F): B×C×H×W → B×F.

    ResNets take images of up to 64 pixels through a 3×3 stem without pooling, larger ones through the
    standard stem. Raises `ValueError` for an unknown name, no channels, or images below 8 pixels.
    """
    if name not in BACKBONES:
        raise ValueError(
            f"encoder must be one of {', '.join(BACKBONES)}; got {name!r}{nearest(name, BACKBONES)}"
        )
    if channels < 1:
        raise ValueError(f"channels must be at least 1, got {channels}")
    if image_size < 8:
        raise ValueError(f"image_size must be at least 8 pixels, got {image_size}")
    return BACKBONES[name](channels, image_size)
