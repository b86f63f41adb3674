"""Loss against step for several runs, with the two lines that give a loss its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import GUIDE, built_once, framed
from moco_core.dashboard.figures.thinned import thinned
from moco_core.dashboard.palette import series_colour
from moco_core.dashboard.text import plain_html

DASHES = ("solid", "dash", "dot", "dashdot")
TEXT_SHARE = 0.05  # of the chart's height, that a line of text takes
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


@built_once
def loss_curves(curves: Sequence[LossCurve]) -> go.Figure:
    """One line a run, thinned where long; a dashed line at each chance level, a dotted one at each floor among them.

    Where a run is on the task of the authors' trace, their losses are marked.
    """
    figure = go.Figure()
    for curve in curves:
        figure.add_scatter(
            x=thinned(curve.step),
            y=thinned(curve.loss),
            mode="lines" if len(curve.step) > 1 else "markers",
            name=plain_html(curve.name),
            line={
                "color": series_colour(curve.place),
                "dash": DASHES[curve.place // CLEAR % len(DASHES)],
                "width": 2,
            },
            hovertemplate="step %{x:,.0f}: %{y:.3f} nats",
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
    chances = {(curve.chance, curve.name) for curve in curves}
    floors = {(curve.floor, curve.name) for curve in curves}
    height = max(chances, default=(0.0,))[0] - min(floors, default=(0.0,))[0]
    _levels(figure, "chance", "dash", chances, TEXT_SHARE * height)
    _levels(figure, "floor", "dot", floors, TEXT_SHARE * height)
    figure.update_layout(showlegend=True)
    return framed(figure, x="optimizer step", y="InfoNCE loss, nats", height=420)


def _levels(figure: go.Figure, kind: str, dash: str, levels: set[tuple[float, str]], apart: float) -> None:
    """A horizontal line at each distinct level; levels less than `apart` from the next share one label.

    Where there are several labels, each says whose it is.
    """
    groups: list[list[tuple[float, str]]] = []
    for level in sorted(levels):
        if groups and level[0] - groups[-1][-1][0] <= apart:
            groups[-1].append(level)
        else:
            groups.append([level])
    for group in groups:
        values = sorted({round(value, 6) for value, _ in group})
        whose = "" if len(groups) == 1 else f" of {group[0][1]}" + (" and others" if len(group) > 1 else "")
        span = " to ".join(dict.fromkeys(f"{value:.2f}" for value in (values[0], values[-1])))
        for value in values:
            figure.add_hline(y=value, line={"color": GUIDE, "width": 1, "dash": dash})
        figure.add_annotation(
            text=plain_html(f"{kind}{whose} {span}"),
            font={"color": GUIDE, "size": 12},
            showarrow=False,
            xref="x domain",
            x=1,
            xanchor="right",
            y=values[-1],
            yanchor="bottom",
        )
