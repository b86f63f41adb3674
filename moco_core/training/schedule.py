"""What happens at which step: the learning rate, the momentum of the key encoder and the snapshots."""

from __future__ import annotations

import math

import numpy as np

from moco_core.config import TrainConfig
from moco_core.trace import authors_steps


def learning_rate(config: TrainConfig, step: int) -> float:
    """Learning rate of step 1 … steps: a linear rise over the warm-up times the schedule.

    That is a half cosine (Loshchilov 2017), or steps down to a tenth after 60 % and 80 % of the run: epochs 120 and
    160 of 200 (He et al. 2019).
    """
    rise = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
    if config.lr_schedule == "step":
        falls = sum(step > share * config.steps for share in (0.6, 0.8))
        return config.peak_lr * rise * 0.1**falls
    return config.peak_lr * rise * 0.5 * (1 + math.cos(math.pi * (step - 1) / config.steps))


def momentum(config: TrainConfig, step: int) -> float:
    """Momentum of the key encoder in step 1 … steps; 0 for methods whose key encoder is the query encoder.

    The cosine schedule is 1 − (1 − m)·(cos(π·t) + 1)/2, t the share of steps done (Grill et al. 2020, BYOL).
    """
    if config.method != "moco":
        return 0.0
    if config.momentum_schedule == "constant":
        return config.momentum
    return 1 - (1 - config.momentum) * (math.cos(math.pi * (step - 1) / config.steps) + 1) / 2


def planned_snapshots(config: TrainConfig, images: int) -> list[int]:
    """Steps of a run on `images` images that end with a snapshot: `snapshot_steps`, and the authors' if it is theirs.

    A run on the task of the authors' trace takes one at each of its epochs, so that the two can be compared.
    """
    authors = [step for step in authors_steps(config, images) if step <= config.steps]
    return sorted({*snapshot_steps(config.steps, config.snapshots), *authors})


def snapshot_steps(steps: int, count: int) -> list[int]:
    """At most `count` steps: 0, then geometrically from steps/32 to the last, as staleness bites early."""
    if count == 2:
        return [0, steps]
    spaced = np.geomspace(max(1.0, steps / 32), steps, count - 1)
    return sorted({0, *(round(s) for s in spaced)})
