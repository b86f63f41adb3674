"""One small encoder, saved as the programs that people use save it."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn

FEATURES = 512


@cache
def resnet18() -> nn.Module:
    """A resnet18 of random weights, whose batch norms have seen something; its classifier is still there."""
    torch.manual_seed(1)
    net = torchvision.models.resnet18(weights=None)
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(8, 3, 64, 64))
    return net.eval()


@torch.no_grad()
def features(images: Tensor) -> Tensor:
    """What `resnet18` makes of images before its classifier, B×512."""
    net = resnet18()
    return nn.Sequential(*list(net.children())[:-1])(images).flatten(1)


def named(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with a prefix before every name."""
    return {prefix + name: tensor for name, tensor in state.items()}


def backbone() -> dict[str, Tensor]:
    """The weights of `resnet18` without its classifier."""
    return {name: tensor for name, tensor in resnet18().state_dict().items() if not name.startswith("fc.")}


def mlp(hidden: int = 24, dim: int = 8) -> nn.Sequential:
    """A head of two layers, the same at every call."""
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, dim))


def linear(dim: int = 8) -> nn.Sequential:
    """A head of one layer, the same at every call."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, dim))


def moco(path: Path, head: nn.Sequential) -> Path:
    """As the authors' main_moco.py: distributed wrapper, both encoders, the queue, the optimizer."""
    fc = head.state_dict() if len(head) > 1 else head[0].state_dict()
    encoder = {**backbone(), **named("fc.", fc)}
    slow = {name: tensor * 0 for name, tensor in encoder.items()}
    state = {
        **named("module.encoder_q.", encoder),
        **named("module.encoder_k.", slow),
        "module.queue": torch.randn(8, 32),
        "module.queue_ptr": torch.zeros(1, dtype=torch.long),
    }
    optimizer = {"state": {0: {"momentum_buffer": torch.zeros(4)}}, "param_groups": [{"lr": 0.03}]}
    torch.save({"epoch": 200, "arch": "resnet18", "state_dict": state, "optimizer": optimizer}, path)
    return path


def lightning(path: Path) -> Path:
    """As PyTorch Lightning does, with settings and counters that are no tensors."""
    content = {
        "state_dict": named("model.", resnet18().state_dict()),
        "hyper_parameters": argparse.Namespace(lr=0.1, name="x"),
        "callbacks": {"ModelCheckpoint": {"best": np.float64(0.5), "history": np.arange(3)}},
        "counts": defaultdict(int, seen=3),
        "folder": Path("/data"),
        "pytorch-lightning_version": "2.0.0",
    }
    torch.save(content, path)
    return path


def lightly(path: Path) -> Path:
    """As lightly's tutorials do: the backbone a Sequential of the network's parts, a head of batch norms beside."""
    parts = nn.Sequential(*list(resnet18().children())[:-1])
    head = nn.Sequential(nn.Linear(FEATURES, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    state = {
        **named("backbone.", parts.state_dict()),
        **named("backbone_momentum.", {name: tensor * 0 for name, tensor in parts.state_dict().items()}),
        **named("projection_head.layers.", head.state_dict()),
    }
    torch.save({"state_dict": state}, path)
    return path


def lightly_moco(path: Path) -> Path:
    """lightly with the head of MoCo v2."""
    parts = nn.Sequential(*list(resnet18().children())[:-1])
    state = named("backbone.", parts.state_dict()) | named("projection_head.layers.", mlp().state_dict())
    torch.save(state, path)
    return path


def solo_learn(path: Path) -> Path:
    """As solo-learn's MoCo v2+: backbone, projector, classifier, and the slow copies of the first two."""
    state = {
        **named("backbone.", backbone()),
        **named("projector.", mlp().state_dict()),
        **named("momentum_backbone.", {name: tensor * 0 for name, tensor in backbone().items()}),
        "classifier.weight": torch.zeros(10, FEATURES),
    }
    torch.save({"state_dict": state, "epoch": 3}, path)
    return path


def plain(path: Path) -> Path:
    """As torchvision does."""
    torch.save(resnet18().state_dict(), path)
    return path


def wrapped(path: Path) -> Path:
    """Of a network that several processes trained."""
    torch.save({"model": named("module.", resnet18().state_dict()), "epoch": 1}, path)
    return path


def old(path: Path) -> Path:
    """In the format of PyTorch before 1.6."""
    torch.save(resnet18().state_dict(), path, _use_new_zipfile_serialization=False)
    return path


def safetensors(path: Path) -> Path:
    """Without any pickle."""
    save_file(named("encoder.", backbone()), path)
    return path
