"""Curves of one or two spheres: the loss with its marks, the two cosines, how far apart the classes are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from moco_core.dashboard.curves_view import Line, Mark, Panel
from moco_core.dashboard.palette import series_colour


@dataclass(frozen=True)
class Series:
    """One sphere's readings, `step` and READINGS by name, and the two losses to compare its own with."""

    name: str
    columns: dict[str, np.ndarray]
    chance: float  # nats
    octahedron: float  # nats


PANELS = (  # y title, reading → label, range
    ("InfoNCE loss, nats", {"loss": "loss"}, None),
    (
        "cosine with q",
        {"positive_cosine": "positive", "mean_negative_cosine": "mean negative"},
        (-1.05, 1.05),
    ),
    ("cosine of two classes", {"closest_classes": "closest two", "mean_class_cosine": "mean"}, (-0.3, 1.05)),
)


def panels(series: Sequence[Series]) -> list[Panel]:
    """Three panels over the steps; a second sphere's lines are dotted."""
    marks = [
        _levels(series),
        [],
        [Mark("octahedron, closest", 0.0), Mark("octahedron, mean", -0.2)],
    ]
    colours = iter(map(series_colour, range(10)))
    drawn = []
    for (title, readings, limits), levels in zip(PANELS, marks, strict=True):
        shades = {reading: next(colours) for reading in readings}
        lines = [
            Line(
                label + _suffix(each, series),
                each.columns["step"],
                each.columns[reading],
                shades[reading],
                dotted,
            )
            for dotted, each in zip((False, True), series, strict=False)
            for reading, label in readings.items()
        ]
        drawn.append(Panel(title, lines, levels, limits))
    return drawn


def table(series: Sequence[Series]) -> pd.DataFrame:
    """What the curves show, one row a stretch of steps and sphere."""
    return pd.concat([pd.DataFrame({"sphere": each.name, **each.columns}) for each in series])


def _levels(series: Sequence[Series]) -> list[Mark]:
    """The losses to compare with, once where both spheres share them."""
    if len({(each.chance, each.octahedron) for each in series}) == 1:
        return [Mark("chance", series[0].chance), Mark("octahedron", series[0].octahedron)]
    return [
        Mark(f"{name}{_suffix(each, series)}", value)
        for each in series
        for name, value in (("chance", each.chance), ("octahedron", each.octahedron))
    ]


def _suffix(each: Series, series: Sequence[Series]) -> str:
    return f", {each.name}" if len(series) > 1 else ""
