"""How many images a data set has to train on, told without loading it."""

from __future__ import annotations

from collections.abc import Iterable

from moco_core.runs import Run

# Training images of the named data sets; `digits` keeps a fifth of its 1,797 for evaluation.
TRAINING_IMAGES = {
    "digits": 1438,
    "mnist": 60000,
    "fashion-mnist": 60000,
    "cifar10": 50000,
    "cifar100": 50000,
    "stl10": 105000,
}


def training_images(dataset: str, runs: Iterable[Run]) -> int | None:
    """How many images a run on `dataset` trains on: as the newest run found, else as published, else None."""
    for run in runs:
        if run.problem is None and run.config.dataset == dataset:
            count = run.facts("dataset").get("train")
            if isinstance(count, int) and count > 0:
                return count
    return TRAINING_IMAGES.get(dataset)
