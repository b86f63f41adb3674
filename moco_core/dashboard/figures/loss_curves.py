"""Loss against step for several runs, with the two lines that give a loss its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import GUIDE, framed
from moco_core.dashboard.palette import series_colour
from moco_core.dashboard.text import plain_html

DASHES = ("solid", "dash", "dot", "dashdot")
CLEAR = 6  # colours clearly apart in a line's width; further ones have another dash as well


@dataclass(frozen=True)
class LossCurve:
    """The logged losses of one run, in nats, with the chance and floor of its K, τ and D."""

    name: str
    step: np.ndarray  # L
    loss: np.ndarray  # L
    chance: float
    floor: float
    authors: tuple[tuple[int, float], ...] = ()  # (step, loss) of the authors' trace, on their task
    place: int = 0  # place of the run among those drawn together: its colour


def loss_curves(curves: Sequence[LossCurve]) -> go.Figure:
    """One line a run; a dashed line at each chance level and a dotted one at each floor among them.

    Where a run is on the task of the authors' trace, their losses are marked.
    """
    figure = go.Figure()
    for curve in curves:
        figure.add_scatter(
            x=curve.step,
            y=curve.loss,
            mode="lines" if len(curve.step) > 1 else "markers",
            name=plain_html(curve.name),
            line={
                "color": series_colour(curve.place),
                "dash": DASHES[curve.place // CLEAR % len(DASHES)],
                "width": 2,
            },
            hovertemplate="step %{x:,}: %{y:.3f} nats",
        )
    authors = sorted({point for curve in curves for point in curve.authors})
    if authors:
        step, loss = zip(*authors, strict=True)
        figure.add_scatter(
            x=step,
            y=loss,
            mode="markers",
            name="authors (He et al.)",
            marker={"color": GUIDE, "symbol": "diamond", "size": 9},
            hovertemplate="step %{x:,}: %{y:.2f} nats, mean over the epoch",
        )
    _levels(figure, "chance", "dash", {(curve.chance, curve.name) for curve in curves})
    _levels(figure, "floor", "dot", {(curve.floor, curve.name) for curve in curves})
    figure.update_layout(showlegend=True)
    return framed(figure, x="optimizer step", y="InfoNCE loss, nats", height=420)


def _levels(figure: go.Figure, kind: str, dash: str, levels: set[tuple[float, str]]) -> None:
    """A horizontal line at each distinct level; where there are several, each says whose it is."""
    by_value: dict[float, list[str]] = {}
    for value, name in sorted(levels):
        by_value.setdefault(round(value, 6), []).append(name)
    for value, names in by_value.items():
        whose = "" if len(by_value) == 1 else f" of {names[0]}" + (" and others" if len(names) > 1 else "")
        figure.add_hline(
            y=value,
            line={"color": GUIDE, "width": 1, "dash": dash},
            annotation={
                "text": plain_html(f"{kind}{whose} {value:.2f}"),
                "font": {"color": GUIDE, "size": 12},
                "showarrow": False,
            },
            annotation_position="top right",
        )
