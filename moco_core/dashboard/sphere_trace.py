"""Readings of the sphere over its steps, in bounded memory however long it runs."""

from __future__ import annotations

import math

import numpy as np

from moco_core.sphere import SphereMoCo, SphereStep, pairwise_cosines

READINGS = ("loss", "positive_cosine", "mean_negative_cosine", "mean_class_cosine", "closest_classes")
LIMIT = 600  # rows kept, at most


def readings(sphere: SphereMoCo, step: SphereStep) -> tuple[float, ...]:
    """READINGS of a step: three of the step itself, then mean and largest cosine between the C queries."""
    between = pairwise_cosines(sphere.queries)
    mean, largest = (float(between.mean()), float(between.max())) if len(between) else (math.nan, math.nan)
    return step.loss, step.positive_cosine, step.mean_negative_cosine, mean, largest


class Trace:
    """Readings averaged over equal stretches of steps; the stretch doubles whenever the rows run out."""

    def __init__(self) -> None:
        self.stretch = 1  # steps a row
        self._rows: list[tuple[float, ...]] = []  # the last step of the stretch, then the mean readings
        self._open: list[tuple[float, ...]] = []

    def add(self, number: int, values: tuple[float, ...]) -> None:
        """The readings of step `number`."""
        self._open.append((number, *values))
        if len(self._open) < self.stretch:
            return
        self._rows.append(_merged(self._open))
        self._open = []
        if len(self._rows) == LIMIT:
            self._rows = [_merged(self._rows[i : i + 2]) for i in range(0, LIMIT, 2)]
            self.stretch *= 2

    def columns(self) -> dict[str, np.ndarray]:
        """`step` and READINGS, equally long; the last row may cover a shorter stretch."""
        rows = [*self._rows, _merged(self._open)] if self._open else self._rows
        table = np.array(rows, np.float64).reshape(-1, 1 + len(READINGS))
        return dict(zip(("step", *READINGS), table.T, strict=True))


def _merged(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    means = (math.fsum(column) / len(rows) for column in list(zip(*rows, strict=True))[1:])
    return (rows[-1][0], *means)
