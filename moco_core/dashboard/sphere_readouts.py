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
TIPS = (
    "In nats: 0 once the right key is certain, ln(K+1) where nothing is told apart.",
    "Each moves one class.",
    "Between the anchor's q and its own k: 1 when they are in one place.",
    "Between the anchor's q and the keys in the queue.",
    "The mean cosine between two classes' queries: −0.2 at the corners of an octahedron.",
    "The largest cosine between two classes' queries: 1 when they are in one place, 0 at right angles.",
)


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
    tiles(values, TIPS)


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
