"""How long a run will take: from runs like it on this machine, else from the encoder's arithmetic.

The cost model. A training pair costs the query encoder a forward and a backward pass (2×) and the key encoder
a forward pass, each forward pass two operations a multiply-add: 8·M operations for an encoder of M
multiply-adds an image, and twice that with a symmetric loss. M grows with the image's area, so a constant an
encoder does: multiply-adds a pixel, counted layer by layer. A device does `OPERATIONS_PER_S` of them. On CPU that
is per thread: 770 pairs/s of small-cnn at 28×28 on two threads, augmentation and snapshots left out, make 20e9.
The GPU rates are guesses on the low side. A guess from this model can be off by a factor of two.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from moco_core.config import TrainConfig
from moco_core.jobs.processes import this_host
from moco_core.runs import Run

STARTUP_SECONDS = 8.0  # importing PyTorch, reading a small data set
SNAPSHOT_SHARE = 0.15  # of training time, for a run of average length
LIKE_FIELDS = (
    "dataset",
    "image_size",
    "method",
    "symmetric",
    "encoder",
    "batch_size",
    "device",
    "precision",
    "threads",
    "compile",
)

# Multiply-adds a pixel of one forward pass, up to 64-pixel images (stem at full resolution) and above.
MULTIPLY_ADDS = {"small-cnn": (8.1e3, 8.1e3), "resnet18": (5.4e5, 3.6e4), "resnet50": (1.27e6, 8.2e4)}
OPERATIONS_PER_S = {"cpu": 18e9, "cuda": 5e12, "mps": 5e11}  # cpu: per thread

IMAGE_SIZES = {"digits": 16, "mnist": 28, "fashion-mnist": 28, "cifar10": 32, "cifar100": 32, "stl10": 96}
FOLDER_SIZE = 32


@dataclass(frozen=True)
class Estimate:
    """Seconds that a run is expected to take, and the phrase that says where the number comes from."""

    seconds: float
    source: str


def estimate(config: TrainConfig, runs: Iterable[Run]) -> Estimate:
    """The time from start to end of a run with these settings, waiting in the queue left out.

    `runs` is the history to learn from; the newest three finished runs like it on this machine count.
    """
    like = [run for run in runs if _is_like(config, run)][:3]
    rates = [rate for rate in map(_pairs_per_s, like) if rate > 0]
    pairs = config.steps * config.batch_size
    if rates:
        snapshots = median(_snapshot_seconds(run) for run in like)
        number = f"the last {len(rates)} runs" if len(rates) > 1 else "an earlier run"
        return Estimate(STARTUP_SECONDS + pairs / median(rates) + snapshots, f"from {number} like it here")
    seconds = pairs / _modelled_pairs_per_s(config) * (1 + SNAPSHOT_SHARE)
    return Estimate(STARTUP_SECONDS + seconds, "a rough guess: nothing like it has run here yet")


def _is_like(config: TrainConfig, run: Run) -> bool:
    return (
        run.problem is None
        and run.status.state == "finished"
        and run.status.host == this_host()
        and run.info.get("processes", 1) == 1
        and all(getattr(run.config, name) == getattr(config, name) for name in LIKE_FIELDS)
    )


def _pairs_per_s(run: Run) -> float:
    """The median rate of a run, its first logged interval (warming up) left out; 0 when none was logged."""
    rates = run.history()["pairs_per_s"][1:]
    rates = rates[np.isfinite(rates)]
    return float(np.median(rates)) if len(rates) else 0.0


def _snapshot_seconds(run: Run) -> float:
    value = run.facts("seconds").get("snapshots")
    return float(value) if isinstance(value, int | float) else 0.0


def _modelled_pairs_per_s(config: TrainConfig) -> float:
    size = config.image_size or IMAGE_SIZES.get(config.dataset, FOLDER_SIZE)
    small, large = MULTIPLY_ADDS[config.encoder]
    multiply_adds = (small if size <= 64 else large) * size**2
    kind = _device_kind(config.device)
    threads = (config.threads or os.cpu_count() or 1) if kind == "cpu" else 1
    passes = 16 if config.symmetric else 8
    return OPERATIONS_PER_S[kind] * threads / (passes * multiply_adds)


def _device_kind(device: str) -> str:
    """`cpu`, `cuda` or `mps`; `auto` is a GPU where the driver's device file is."""
    if device == "auto":
        return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"
    return device.partition(":")[0]
