"""What is worth knowing about a config before it is started."""

from __future__ import annotations

from moco_core.config import LARS_TRUST, OPTIMIZER_MOMENTUM, TrainConfig


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
    if config.optimizer == "lars":
        found += _short_steps(config)
    return found


def _too_long(config: TrainConfig, images: int) -> str:
    if config.method == "memory-bank":
        return f"The bank has one slot for each of the {images:,} training images; K is more than that."
    return (
        f"The queue of {config.queue_size:,} is longer than the {images:,} training images: each query will "
        "meet older keys of its own image among its negatives."
    )


def _short_steps(config: TrainConfig) -> list[str]:
    """A step of LARS is at most trust · lr / (1 − momentum) of a layer's norm: too many small ones learn nothing."""
    reach = config.steps * config.peak_lr * LARS_TRUST / (1 - OPTIMIZER_MOMENTUM)
    usual = 0.3 * config.batch_size / 256  # Chen et al. 2020, SimCLR
    if reach >= 1:
        return []
    return [
        f"With LARS at a learning rate of {config.peak_lr:g}, {config.steps:,} steps move a layer's weights by at most "
        f"{reach:.2g} of their norm: raise lr or steps; a peak of 0.3·B/256 = {usual:.2g} is usual."
    ]
