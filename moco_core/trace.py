"""The authors' training trace on CIFAR-10, laid beside a run on the same task."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from moco_core.config import WITHOUT_EFFECT, TrainConfig
from moco_core.paper import CIFAR10_TRACE, RECIPES, TracePoint
from moco_core.runs import Checkpoint, Run

RECIPE = TrainConfig(**RECIPES["moco-cifar10"])
TASK = ("dataset", "method", "encoder")


@dataclass(frozen=True)
class Milestone:
    """An epoch of the authors' trace, and what a run has reached there; NaN for what it has not."""

    step: int  # the last of the epoch, in the run
    loss: float  # mean over the epoch's logged steps, from that on at which the queue was full
    knn: float  # %, on the embedding
    authors: TracePoint


def authors_steps(config: TrainConfig, images: int) -> dict[int, TracePoint]:
    """The authors' trace by the step at which a run on `images` images ends each epoch; empty for another task."""
    epoch = images // config.batch_size  # steps
    if epoch < 1 or any(getattr(config, name) != getattr(RECIPE, name) for name in TASK):
        return {}
    return {point.epoch * epoch: point for point in CIFAR10_TRACE}


def authors_beside(run: Run) -> dict[int, TracePoint]:
    """`authors_steps` of a readable run; empty until it has started."""
    images = run.facts("dataset").get("train")
    return authors_steps(run.config, images) if isinstance(images, int) else {}


def milestones(run: Run) -> list[Milestone]:
    """All epochs of the authors' trace beside a readable run; empty where `authors_beside` is."""
    points = authors_beside(run)
    if not points:
        return []
    logged = run.history()
    taken = {checkpoint.step: checkpoint for checkpoint in run.steps}
    return [
        Milestone(step, _mean_loss(logged, run.config, step, point.epoch), _knn(taken.get(step)), point)
        for step, point in points.items()
    ]


def deviations(config: TrainConfig) -> list[str]:
    """The settings that differ from the authors' recipe, as `lr 0.1 instead of 0.06`."""
    own, recipe = config.to_dict(), RECIPE.to_dict()
    return [
        f"{name} {own[name]} instead of {recipe[name]}"
        for name in own
        if name not in WITHOUT_EFFECT and own[name] != recipe[name]
    ]


def _mean_loss(logged: dict[str, np.ndarray], config: TrainConfig, last: int, epoch: int) -> float:
    """Mean over the epoch that ends with step `last`; NaN while it isn't over.

    The authors' queue starts full of random keys. Ours starts empty, and with fewer negatives losses are lower.
    """
    steps, full = logged["step"], logged["filled"] >= config.negatives
    counted = full & (steps > last - last // epoch) & (steps <= last)
    over = len(steps) > 0 and steps[-1] + config.log_interval > last
    return float(logged["loss"][counted].mean()) if over and counted.any() else nan


def _knn(checkpoint: Checkpoint | None) -> float:
    value = checkpoint.metrics.get("knn", {}).get("value") if checkpoint else None
    return 100 * value if isinstance(value, int | float) else nan
