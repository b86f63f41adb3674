"""The kNN confusion matrix, its cells to click."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import framed
from moco_core.dashboard.palette import SEQUENTIAL
from moco_core.dashboard.text import plain_html

SHOWN = 50
_TICKS = np.array([0, 0.01, 0.05, 0.2, 0.5, 1])


def shown_classes(matrix: np.ndarray, shown: int = SHOWN) -> np.ndarray:
    """All classes, or beyond `shown` those with the most mistakes (made and received), in class order."""
    mistakes = matrix.sum(axis=0) + matrix.sum(axis=1) - 2 * np.diag(matrix)
    return np.sort(np.argsort(-mistakes, kind="stable")[:shown])


def confusion_chart(matrix: np.ndarray, names: Sequence[str]) -> go.Figure:
    """Counts C×C (row: true class, column: the vote of the neighbours), coloured by share of the row.

    Colour follows the square root of the share, so that rare mistakes show. A click yields the cell through
    `clicked_cell`: an invisible marker sits on each, since heat maps themselves can't be selected.
    """
    shown = shown_classes(matrix)
    counts = matrix[np.ix_(shown, shown)]
    share = counts / np.maximum(matrix.sum(axis=1)[shown, None], 1)
    labels = [plain_html(names[i]) for i in shown]
    at = np.arange(len(shown))
    column, row = (grid.ravel() for grid in np.meshgrid(at, at))
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
            text=counts if len(shown) <= 20 else None,
            texttemplate="%{text}" if len(shown) <= 20 else None,
            colorbar={
                "title": "share of<br>the class",
                "tickvals": np.sqrt(_TICKS),
                "ticktext": _percent(_TICKS),
            },
        )
    )
    figure.add_scatter(
        x=column,
        y=row,
        mode="markers",
        marker={"symbol": "square-open", "size": max(8, 300 // max(len(shown), 1)), "line": {"width": 3}},
        customdata=np.stack([shown[row], shown[column], counts.ravel()], axis=1),
        text=[f"{labels[r]} → {labels[c]}" for r, c in zip(row, column, strict=True)],
        opacity=0,
        selected={"marker": {"opacity": 1}},
        unselected={"marker": {"opacity": 0}},
        hovertemplate="%{text}: %{customdata[2]} images<extra></extra>",
        showlegend=False,
    )
    framed(figure, x="vote of the nearest neighbours", y="true class", height=min(900, 260 + 22 * len(shown)))
    figure.update_layout(hoverdistance=-1)  # the nearest centre, so a click anywhere in a cell counts
    figure.update_xaxes(tickvals=at, ticktext=labels, side="bottom", showgrid=False, zeroline=False)
    figure.update_yaxes(tickvals=at, ticktext=labels, autorange="reversed", showgrid=False, zeroline=False)
    return figure


def clicked_cell(selection: Mapping[str, Any]) -> tuple[int, int] | None:
    """The (true class, voted class) of a chart selection, or None when nothing is selected."""
    for point in selection.get("points", ()):
        data = point.get("customdata")
        if data is not None:
            values = list(data.values()) if isinstance(data, Mapping) else list(data)
            return int(values[0]), int(values[1])
    return None


def _percent(shares: np.ndarray) -> list[str]:
    return [f"{share:.0%}" for share in shares]
