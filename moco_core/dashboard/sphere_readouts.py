"""What is read off an experiment: numbers beside the sphere, curves below it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from moco_core.dashboard.sphere_curves import Series
from moco_core.dashboard.sphere_lab import Experiment
from moco_core.dashboard.text import numeral
from moco_core.dashboard.widgets import tiles
from moco_core.sphere import octahedron_loss, pairwise_cosines
from moco_core.theory import chance_loss

SIDES = ("left", "right")


def readouts(experiment: Experiment) -> None:
    """Loss, steps and cosines; a dash before there is anything to read."""
    sphere, last = experiment.sphere, experiment.last
    between = pairwise_cosines(sphere.queries)
    values = {
        "InfoNCE loss": _shown(last.loss if last else math.nan),
        "Training steps": f"{sphere.steps:,}",
        "Positive cosine": _shown(last.positive_cosine if last else math.nan),
        "Mean negative cosine": _shown(last.mean_negative_cosine if last else math.nan),
        "Mean between classes": _shown(between.mean()),
        "Closest two classes": _shown(between.max()),
    }
    tiles(values)


def series(experiments: Sequence[Experiment]) -> list[Series]:
    """The curves of each, with the losses to compare its own with at its present settings."""
    return [
        Series(
            side,
            each.trace.columns(),
            chance_loss(each.sphere.queue_size),
            octahedron_loss(each.sphere.queue_size, each.sphere.temperature),
        )
        for side, each in zip(SIDES, experiments, strict=False)
    ]


def _shown(value: float) -> str:
    return "—" if math.isnan(value) else numeral(value, "z.3f")
