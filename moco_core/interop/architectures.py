"""Backbones by name: our own, torchvision's and timm's, each without its classifier."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torchvision
from torch import nn

from moco_core.config import ConfigError, nearest
from moco_core.nets.encoders import BACKBONES, SMALL_IMAGE, build_backbone

TIMM = "timm:"
CLASSIFIERS = ("fc", "classifier", "heads", "head")  # what torchvision's models call their last part
COMMON = (  # tried in turn when weights don't fit the architecture that was named
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "wide_resnet50_2",
    "wide_resnet101_2",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "small-cnn",
    "vit_b_16",
    "vit_b_32",
    "vit_l_16",
    "swin_t",
    "swin_s",
    "swin_b",
    "convnext_tiny",
    "convnext_small",
    "convnext_base",
    "efficientnet_b0",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "densenet121",
    "regnet_y_400mf",
    "vgg16",
    "alexnet",
)

Build = Callable[[], nn.Module]


def builds(arch: str) -> list[Build]:
    """Ways to build the backbone called `arch`; each gives a module B×C×H×W → features B×F or B×F×1×1.

    Our own have a stem for small images and one for large ones, for grey and for colour: the weights decide.
    Raises `ConfigError` for an unknown name.
    """
    if arch in BACKBONES:
        sizes = (2 * SMALL_IMAGE, SMALL_IMAGE) if arch != "small-cnn" else (SMALL_IMAGE,)
        return [partial(build_backbone, arch, channels, size) for size in sizes for channels in (3, 1)]
    if arch.startswith(TIMM):
        return [partial(_timm, arch.removeprefix(TIMM))]
    names = torchvision.models.list_models(module=torchvision.models)
    if arch not in names:
        raise ConfigError(
            f"arch must be {', '.join(BACKBONES)}, a classification model of torchvision or {TIMM}NAME; "
            f"got {arch!r}{nearest(arch, {*BACKBONES, *names})}"
        )
    return [partial(_torchvision, arch)]


class Outline(NamedTuple):
    """What weights for a backbone must look like."""

    shapes: dict[str, torch.Size]  # of its parameters and buffers
    children: tuple[str, ...]  # names of its parts, in order


def outline(build: Build) -> Outline:
    """A backbone's outline, found without memory for its weights where that goes."""
    try:
        with torch.device("meta"):
            backbone = build()
    except (RuntimeError, NotImplementedError):  # it computes with values while it is built
        backbone = build()
    shapes = {name: tensor.shape for name, tensor in backbone.state_dict().items()}
    return Outline(shapes, tuple(name for name, _ in backbone.named_children()))


def _torchvision(name: str) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow initial weights, which are replaced
        net = torchvision.models.get_model(name, weights=None)
    part = next(part for part in CLASSIFIERS if hasattr(net, part))
    _drop_last_layer(net, part)
    return net


def _drop_last_layer(parent: nn.Module, name: str) -> None:
    """Put the identity in the place of the last layer with weights at or below `parent.name`."""
    module = getattr(parent, name)
    if isinstance(module, nn.Linear | nn.Conv2d):
        setattr(parent, name, nn.Identity())
        return
    last = [child for child, below in module.named_children() if any(True for _ in below.parameters())][-1]
    _drop_last_layer(module, last)


def _timm(name: str) -> nn.Module:
    try:
        import timm
    except ImportError as error:
        raise ConfigError(f"arch {TIMM}{name} needs a package: pip install timm ({error})") from error
    if not timm.is_model(name):
        close = nearest(name, timm.list_models())
        raise ConfigError(f"timm has no model {name!r}{close}")
    return timm.create_model(name, pretrained=False, num_classes=0)
