"""Settings of the sphere that show one lesson each, and what to watch in it."""

from __future__ import annotations

from dataclasses import dataclass

from moco_core.sphere import SphereMoCo


@dataclass(frozen=True)
class Settings:
    """What the sliders set."""

    temperature: float = 0.2  # τ
    momentum: float = 0.99  # m
    queue_size: int = 64  # K
    step_size: float = 0.25  # η

    def apply(self, sphere: SphereMoCo) -> None:
        """Set them on `sphere`, from its next step on."""
        sphere.temperature = self.temperature
        sphere.momentum = self.momentum
        sphere.queue_size = self.queue_size
        sphere.step_size = self.step_size


@dataclass(frozen=True)
class Lesson:
    """One lesson: its name, its settings, and two sentences on what to watch."""

    name: str
    settings: Settings
    watch: str


LESSONS = (
    Lesson(
        "Healthy",
        Settings(),
        "The six queries drift apart and come to rest near the corners of an octahedron, the furthest apart "
        "that six points on a sphere can be: the mean cosine between classes settles at −0.20. Each key follows "
        "its query at a distance, so the queue holds one tight, motionless cluster per class.",
    ),
    Lesson(
        "m = 0: chasing your own tail",
        Settings(momentum=0.0),
        "Each key is a copy of its query, so the positive cosine is 1.000 from the first step on and the pull "
        "has nothing left to do. Only the push is left, partly from a class's own old keys: the classes wander "
        "on and on, dragging tails of queued keys behind them, and never come to rest.",
    ),
    Lesson(
        "τ too small: only the nearest negative counts",
        Settings(temperature=0.02),
        "All the weight falls on the few keys nearest to the query, mostly its own class's; a class 40° away "
        "weighs nothing, so nothing drives the two further apart. Watch the closest two classes stay above a "
        "cosine of 0.6 while a large part of the sphere lies empty.",
    ),
    Lesson(
        "Queue too short",
        Settings(queue_size=1),
        "The only negative is the key of the step before, so each push points away from whichever class came "
        "last, and the classes need more than twice as many steps to spread. The loss falls below 0.2 all the "
        "same: one negative makes an easy question, which is why losses at different K do not compare.",
    ),
    Lesson(
        "Queue too long for this m",
        Settings(queue_size=512, momentum=0.9),
        "A quick key encoder fills a long queue with places that the classes left hundreds of steps ago: long, "
        "fading trails. The queries flee from these ghosts rather than from each other and never come to rest; "
        "now set m to 0.999, and at the same K they do.",
    ),
)


def lesson_of(settings: Settings) -> Lesson | None:
    """The lesson that has exactly these settings, if one has."""
    return next((lesson for lesson in LESSONS if lesson.settings == settings), None)
