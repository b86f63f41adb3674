"""What is worth knowing about a config before it is started."""

from __future__ import annotations

from collections.abc import Iterable

from moco_core.config import TrainConfig
from moco_core.runs import Run

# Training images of the named data sets; `digits` keeps a fifth of its 1,797 for evaluation.
TRAINING_IMAGES = {
    "digits": 1438,
    "mnist": 60000,
    "fashion-mnist": 60000,
    "cifar10": 50000,
    "cifar100": 50000,
}


def training_images(dataset: str, runs: Iterable[Run]) -> int | None:
    """How many images a run on `dataset` trains on: as the newest run found, else as published, else None."""
    for run in runs:
        if run.problem is None and run.config.dataset == dataset:
            facts = run.info.get("dataset")
            count = facts.get("train") if isinstance(facts, dict) else None
            if isinstance(count, int) and count > 0:
                return count
    return TRAINING_IMAGES.get(dataset)


def caveats(config: TrainConfig, images: int | None) -> list[str]:
    """One sentence for each thing that will not work, or not as one may think; `images` None when unknown."""
    found = []
    if images is not None and config.batch_size > images:
        found.append(
            f"A batch of {config.batch_size:,} can't be drawn from {images:,} training images: lower B."
        )
    if config.method == "moco" and config.batch_size > config.queue_size:
        found.append(
            f"A batch of {config.batch_size:,} keys doesn't fit a queue of {config.queue_size:,}: "
            "only its last keys are kept."
        )
    if images is not None and config.method != "in-batch" and config.queue_size > images:
        found.append(_too_long(config, images))
    if config.warmup_steps >= config.steps:
        found.append(
            f"Warming up takes {config.warmup_steps:,} of {config.steps:,} steps: "
            "the learning rate never reaches its peak."
        )
    return found


def _too_long(config: TrainConfig, images: int) -> str:
    if config.method == "memory-bank":
        return f"The bank has one slot for each of the {images:,} training images; K is more than that."
    return (
        f"The queue of {config.queue_size:,} is longer than the {images:,} training images: each query will "
        "meet older keys of its own image among its negatives."
    )
