"""Two-dimensional embeddings where they truly lie, on the circle, with their density around it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import GUIDE, framed
from moco_core.dashboard.palette import series_colour

_REACH = 0.5  # radii that the highest density stands above the circle


def circle_chart(
    angle: np.ndarray, density: np.ndarray, classes: Sequence[tuple[str, str, np.ndarray]]
) -> go.Figure:
    """Densities at G angles (radians, whole circle) drawn outward from it, and points by class on it.

    `classes` holds a name, a colour and M×2 unit vectors each. The dashed ring is the uniform density 1/2π.
    """
    figure = go.Figure()
    ring = np.linspace(0, 2 * np.pi, 361)
    figure.add_scatter(x=np.cos(ring), y=np.sin(ring), line={"color": GUIDE, "width": 1}, **_PLAIN)
    peak = max(float(density.max(initial=0)), 1 / (2 * np.pi))
    closed = np.append(np.arange(len(angle)), 0)
    outer = 1 + _REACH * density[closed] / peak
    figure.add_scatter(
        x=outer * np.cos(angle[closed]),
        y=outer * np.sin(angle[closed]),
        fill="tonext",
        customdata=density[closed],
        name="density",
        mode="lines",
        line={"color": series_colour(0), "width": 1.5},
        hovertemplate="density %{customdata:.3f} per radian",
    )
    even = 1 + _REACH / (2 * np.pi) / peak
    figure.add_scatter(
        x=even * np.cos(ring),
        y=even * np.sin(ring),
        name="if uniform",
        mode="lines",
        line={"color": GUIDE, "width": 1, "dash": "dash"},
        hoverinfo="skip",
    )
    for name, colour, points in classes:
        figure.add_scattergl(
            x=points[:, 0],
            y=points[:, 1],
            name=name,
            mode="markers",
            marker={"color": colour, "size": 6, "opacity": 0.6},
            hovertemplate="(%{x:.3f}, %{y:.3f})",
        )
    framed(figure, x="first coordinate", y="second coordinate", height=560)
    figure.update_xaxes(range=[-1.6, 1.6], zeroline=False, constrain="domain")
    figure.update_yaxes(range=[-1.6, 1.6], zeroline=False, scaleanchor="x")
    return figure


_PLAIN = {"mode": "lines", "hoverinfo": "skip", "showlegend": False}
