"""An experiment on the sphere as points and arrows for the drawing component."""

from __future__ import annotations

import numpy as np

from moco_core.dashboard import sphere_view
from moco_core.dashboard.sphere_lab import Experiment
from moco_core.sphere import SphereStep, tangential

LETTERS = "ABCDEF"
CLASS_NAMES = tuple(f"class {letter}" for letter in LETTERS)


def draw_experiment(experiment: Experiment, *, key: str) -> None:
    """Queries, keys and queue as they are now; at the last step's anchor what pulled and what pushed it."""
    sphere, last = experiment.sphere, experiment.last
    classes = np.arange(sphere.classes)
    queued = len(sphere.queue)
    age = np.arange(queued)[::-1]
    sphere_view.draw(
        np.vstack([sphere.queries, sphere.keys, sphere.queue]),
        np.concatenate([classes, classes, sphere.queue_classes]),
        ["query"] * sphere.classes + ["key"] * sphere.classes + ["queue"] * queued,
        ids=np.concatenate([classes, sphere.classes + classes, 2 * sphere.classes + sphere.steps - age]),
        ages=np.concatenate([np.full(2 * sphere.classes, -1), age]),
        oldest=max(sphere.queue_size - 1, 1),
        class_names=CLASS_NAMES,
        arrows=arrows(last) if last is not None else (),
        summary=f"Sphere after {sphere.steps} steps: {sphere.classes} queries, {sphere.classes} keys and "
        f"{queued} queued keys.",
        camera="experiment",
        key=key,
    )


def arrows(step: SphereStep) -> tuple[sphere_view.Arrow, ...]:
    """Where the positive pulled the anchor's query and the negatives pushed it, along the sphere."""
    scored = step.contrast
    return (
        sphere_view.Arrow(step.anchor, tangential(scored.pull, scored.query), "pull"),
        sphere_view.Arrow(step.anchor, tangential(scored.push, scored.query), "push", dashed=True),
    )
