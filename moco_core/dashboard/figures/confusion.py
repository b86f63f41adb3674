"""The kNN confusion matrix, its cells to click."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import built_once, framed
from moco_core.dashboard.palette import SEQUENTIAL
from moco_core.dashboard.text import plain_html, tick_html

WRITTEN = 20  # up to this many classes the counts stand in the cells
_TICKS = np.array([0, 0.01, 0.05, 0.2, 0.5, 1])


@built_once
def confusion_chart(counts: np.ndarray, totals: np.ndarray, names: Sequence[str]) -> go.Figure:
    """Counts S×S of the shown classes (row: true, column: voted), coloured by share of the row's total (S).

    Colour follows the square root of the share, so that rare mistakes show. An invisible marker with
    `customdata` (row, column, count) sits on each cell, since heat maps themselves can't be selected.
    """
    share = counts / np.maximum(totals, 1)[:, None]
    labels = [plain_html(name) for name in names]
    ticks = [tick_html(name) for name in names]
    at = np.arange(len(names))
    column, row = (grid.ravel() for grid in np.meshgrid(at, at))
    written = len(names) <= WRITTEN
    figure = go.Figure(
        go.Heatmap(
            z=np.sqrt(share),
            x=at,
            y=at,
            zmin=0,
            zmax=1,
            colorscale=SEQUENTIAL,
            xgap=1,
            ygap=1,
            hoverinfo="skip",
            text=counts if written else None,
            texttemplate="%{text}" if written else None,
            colorbar={
                "title": "share of<br>the class",
                "tickvals": np.sqrt(_TICKS),
                "ticktext": [f"{share:.0%}" for share in _TICKS],
            },
        )
    )
    figure.add_scatter(
        x=column,
        y=row,
        mode="markers",
        marker={"symbol": "square-open", "size": max(8, 300 // max(len(names), 1)), "line": {"width": 3}},
        customdata=np.stack([row, column, counts.ravel()], axis=1),
        text=[f"{labels[r]} → {labels[c]}" for r, c in zip(row, column, strict=True)],
        opacity=0,
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 0}},
        hovertemplate="%{text}: %{customdata[2]} samples<extra></extra>",
        showlegend=False,
    )
    framed(figure, x="vote of the nearest neighbours", y="true class", height=min(900, 260 + 22 * len(names)))
    figure.update_layout(hoverdistance=-1)  # the nearest centre, so a click anywhere in a cell counts
    figure.update_xaxes(tickvals=at, ticktext=ticks, showgrid=False, zeroline=False)
    figure.update_yaxes(tickvals=at, ticktext=ticks, autorange="reversed", showgrid=False, zeroline=False)
    return figure
