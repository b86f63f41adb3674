"""What one process of several does in the tests: `python -m tests.training.ranks ROOT`, started for each rank.

All train the same runs, one after another, those called `…-resumed` in two goes; IMAGES is the folder
`ROOT/images`. Each process notes the digest of its dictionary after every step in `ROOT/RUN_ID.rank-N`.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from moco_core.config import TrainConfig
from moco_core.contrast.method import Method
from moco_core.nets.encoders import BACKBONES
from moco_core.runs import RunWriter
from moco_core.training.distributed import Onlooker, joined
from moco_core.training.loop import train
from moco_core.training.setup import Setup, prepare
from tests.training.small import SMALL

BARE: dict[str, Any] = {"encoder": "resnet18", "steps": 50, "snapshots": 2, "drift_share": 0.0}
RUNS: dict[str, dict[str, Any]] = {
    "moco-plain": {},
    "moco-split": {"batch_norm": "split"},
    "moco-split-resumed": {"batch_norm": "split"},
    "moco-odd-queue": {"queue_size": 23},
    "memory-bank": {"method": "memory-bank"},
    "in-batch": {"method": "in-batch"},
    "odd-evaluation": {"eval_size": 41, "bank_size": 61},
    "unlabelled": {"dataset": "folder:IMAGES/a", "image_size": 12, "eval_size": 3},
    "in-memory": {"dataset": "folder:IMAGES", "image_size": 12, "storage": "memory"},
    "streamed": {"dataset": "folder:IMAGES", "image_size": 12, "storage": "stream"},
    "bare-moco": {**BARE, "momentum": 0.9},
    "bare-moco-split": {**BARE, "momentum": 0.9, "batch_norm": "split"},
    "bare-symmetric": {**BARE, "symmetric": True, "batch_norm": "split", "momentum_schedule": "cosine"},
    "bare-memory-bank": {**BARE, "method": "memory-bank"},
    "bare-in-batch": {**BARE, "method": "in-batch"},
}


def without_batch_norm(channels: int, image_size: int) -> nn.Module:
    """A backbone whose outputs for an image don't depend on the others of its batch."""
    net = nn.Sequential(nn.Conv2d(channels, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    net.feature_dim = 32
    return net


class Watched(Setup):
    """A setup whose method notes the digest of its dictionary each time it has remembered a batch."""

    notes: Path

    def method(self) -> Method:
        method = super().method()
        remember = method.remember

        def and_note(keys: Tensor, samples: Tensor, labels: Tensor, step: int) -> None:
            remember(keys, samples, labels, step)
            digest = hashlib.sha256(keys.numpy().tobytes())
            for array in method.dictionary_state().values():
                digest.update(array.numpy().tobytes())
            with self.notes.open("a") as file:
                file.write(f"{step} {digest.hexdigest()}\n")

        method.remember = and_note  # type: ignore[method-assign]
        return method


def main(root: Path) -> None:
    torch.set_num_threads(1)
    BACKBONES["resnet18"] = without_batch_norm
    with joined() as group:
        for name, settings in RUNS.items():
            config = TrainConfig(**SMALL | settings, name=name)
            config = replace(config, dataset=config.dataset.replace("IMAGES", str(root / "images")))
            made = RunWriter.create(root, config) if group.rank == 0 else None
            path = group.share(made.path if made else root)
            setup = Watched(**vars(prepare(config, group)))
            object.__setattr__(setup, "notes", root / f"{name}.rank-{group.rank}")
            if name.endswith("-resumed"):
                train(made or Onlooker(path), setup, should_stop=lambda step: step == 5)
            train(made or Onlooker(path), setup)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
