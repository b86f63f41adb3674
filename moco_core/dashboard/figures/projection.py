"""A projection as a figure of its own: for the HTML download."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.palette import DIVERGING, NEUTRAL, SEQUENTIAL_STOPS
from moco_core.dashboard.points import Colour
from moco_core.dashboard.text import plain_html

SIZE = {2: 5, 3: 3}  # of points, by dimension


def projection_figure(
    coordinates: np.ndarray, colour: Colour, texts: list[str], axes: tuple[str, ...], title: str
) -> go.Figure:
    """P points (P×2 or P×3) in their colours, one trace a class, `texts` (P) under the pointer.

    Names are shown as they are; none is taken for markup.
    """
    dim = coordinates.shape[1]
    figure = go.Figure()
    hover = np.array([plain_html(text) for text in texts], dtype=object)
    if colour.names is None:
        scale = DIVERGING if colour.diverging else SEQUENTIAL_STOPS
        marker = {
            "color": colour.values,
            "colorscale": [list(stop) for stop in scale],
            "cmin": colour.limits[0],
            "cmax": colour.limits[1],
            "colorbar": {"title": {"text": plain_html(colour.title)}, "thickness": 12},
        }
        figure.add_trace(_trace(coordinates, hover, marker, ""))
    else:
        for code in np.unique(colour.values):
            rows = colour.values == code
            known = 0 <= code < len(colour.names)
            name = plain_html(colour.names[code]) if known else "unlabelled"
            marker = {"color": colour.colours[code] if known else NEUTRAL}
            figure.add_trace(_trace(coordinates[rows], hover[rows], marker, name))
    titles: dict[str, dict[str, object]] = {
        axis: {"title": {"text": text}} for axis, text in zip(("xaxis", "yaxis", "zaxis"), axes, strict=False)
    }
    if dim == 3:
        figure.update_layout(scene={**titles, "aspectmode": "data"})
    else:
        titles["yaxis"]["scaleanchor"] = "x"
        figure.update_layout(**titles)
    figure.update_layout(
        title={"text": plain_html(title)}, template="plotly_white", legend={"itemsizing": "constant"}
    )
    return figure


def _trace(
    points: np.ndarray, hover: np.ndarray, marker: dict[str, object], name: str
) -> go.Scatter3d | go.Scattergl:
    dim = points.shape[1]
    common = {
        "mode": "markers",
        "name": name,
        "showlegend": bool(name),
        "text": hover,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": SIZE[dim], **marker},
    }
    if dim == 3:
        return go.Scatter3d(x=points[:, 0], y=points[:, 1], z=points[:, 2], **common)
    return go.Scattergl(x=points[:, 0], y=points[:, 1], **common)
