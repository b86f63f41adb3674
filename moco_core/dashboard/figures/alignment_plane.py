"""Alignment against uniformity, every step of a run on one path (Wang & Isola 2020, figure 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import GUIDE, built_once, framed
from moco_core.dashboard.palette import series_colour, series_symbol
from moco_core.dashboard.text import numeral, plain_html


@dataclass(frozen=True)
class StepPath:
    """One run's way through the plane: `steps`, `alignment` and `uniformity` of equal length, in step order."""

    name: str
    steps: Sequence[int]
    alignment: Sequence[float]
    uniformity: Sequence[float]


@built_once
def alignment_plane(paths: Sequence[StepPath], ideals: Mapping[int, float]) -> go.Figure:
    """Paths of runs through the plane; lower left is better.

    `ideals` gives, by embedding dimension D, the uniformity of the uniform distribution on the sphere: one
    dashed line each. Steps whose numbers aren't finite are left out.
    """
    figure = go.Figure()
    for index, path in enumerate(paths):
        alignment, uniformity = np.asarray(path.alignment, float), np.asarray(path.uniformity, float)
        shown = np.isfinite(alignment) & np.isfinite(uniformity)
        steps = np.asarray(path.steps)[shown]
        sizes = np.full(len(steps), 7)
        sizes[-1:] = 14  # the newest step stands out
        figure.add_scatter(
            x=uniformity[shown],
            y=alignment[shown],
            customdata=steps,
            name=plain_html(path.name),
            mode="lines+markers",
            line={"color": series_colour(index), "width": 2},
            marker={"size": sizes, "symbol": series_symbol(index), "color": series_colour(index)},
            hovertemplate="step %{customdata}<br>uniformity %{x:.3f}<br>alignment %{y:.3f}",
        )
    for dim, value in sorted(ideals.items()):
        figure.add_vline(value, line={"color": GUIDE, "dash": "dash", "width": 1.5})
        figure.add_annotation(
            x=value,
            y=1,
            yref="paper",
            yanchor="bottom",
            text=f"uniform, D = {dim}: {numeral(value, '.2f')}",
            showarrow=False,
        )
    figure.add_annotation(
        text="<b>better</b>",
        x=0.02,
        y=0.04,
        ax=70,
        ay=-50,
        xref="paper",
        yref="paper",
        arrowhead=2,
        arrowwidth=2,
        arrowcolor=GUIDE,
    )
    return framed(
        figure,
        x="uniformity, log E[exp(−2‖x−y‖²)] (lower: more evenly spread)",
        y="alignment, E‖x−x⁺‖² (lower: views closer)",
        height=460,
    )
