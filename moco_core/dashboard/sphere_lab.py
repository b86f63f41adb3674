"""Spheres as someone experiments with them: one, or two side by side that step together."""

from __future__ import annotations

from collections.abc import Sequence

from moco_core.dashboard.sphere_lessons import Settings
from moco_core.dashboard.sphere_trace import Trace, readings
from moco_core.sphere import SphereMoCo, SphereStep

PATIENCE = 0.5  # seconds: what a slow machine falls behind by more than this is not made up for


class Experiment:
    """A sphere, its last step and its curves."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.sphere = SphereMoCo(seed=seed)
        settings.apply(self.sphere)
        self.last: SphereStep | None = None
        self.trace = Trace()

    def advance(self, steps: int) -> None:
        """Take so many steps. The first has no negatives to be read, so the curves begin with the second."""
        for _ in range(steps):
            self.last = self.sphere.step()
            if len(self.last.contrast.negatives):
                self.trace.add(self.sphere.steps, readings(self.sphere, self.last))


class Lab:
    """One or two experiments with the same seed that step together, and the clock they run by."""

    def __init__(self, settings: Sequence[Settings], seed: int) -> None:
        self.seed = seed
        self.experiments = [Experiment(each, seed) for each in settings]
        self._due = 0.0  # steps; a fraction is carried over
        self._looked: float | None = None  # when time was last told, seconds

    def apply(self, settings: Sequence[Settings]) -> None:
        """Set each experiment's settings, from its next step on."""
        for experiment, each in zip(self.experiments, settings, strict=True):
            each.apply(experiment.sphere)

    def advance(self, steps: int) -> None:
        """Let all take so many steps."""
        for experiment in self.experiments:
            experiment.advance(steps)

    def tick(self, now: float, rate: float) -> None:
        """At time `now` (seconds), take the steps due since the last tick at `rate` steps a second."""
        if self._looked is not None:
            self._due += rate * min(now - self._looked, PATIENCE)
        self._looked = now
        self.advance(int(self._due))
        self._due -= int(self._due)

    def rest(self) -> None:
        """Let time pass without steps until the next tick."""
        self._looked = None
