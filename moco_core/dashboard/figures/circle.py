"""Density of two-dimensional embeddings around the circle on which they lie."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import GUIDE, built_once, framed
from moco_core.dashboard.palette import series_colour

_REACH = 0.5  # radii that the highest density stands above the circle


@built_once
def circle_density_chart(angle: np.ndarray, density: np.ndarray) -> go.Figure:
    """Density per radian at G angles (radians, once around), drawn outward from the unit circle.

    The dashed ring is the uniform density, 1/2π.
    """
    figure = go.Figure()
    ring = np.linspace(0, 2 * np.pi, 361)
    figure.add_scatter(
        x=np.cos(ring),
        y=np.sin(ring),
        mode="lines",
        line={"color": GUIDE, "width": 1},
        hoverinfo="skip",
        showlegend=False,
    )
    even = 1 / (2 * np.pi)
    peak = max(float(density.max(initial=0)), even)
    closed = np.append(np.arange(len(angle)), 0)
    radius = 1 + _REACH * density[closed] / peak
    figure.add_scatter(
        x=radius * np.cos(angle[closed]),
        y=radius * np.sin(angle[closed]),
        fill="tonext",
        customdata=np.stack([np.degrees(angle[closed]), density[closed]], axis=1),
        name="density",
        mode="lines",
        line={"color": series_colour(0), "width": 1.5},
        hovertemplate="%{customdata[0]:.0f}°: %{customdata[1]:.3f} per radian<extra></extra>",
    )
    figure.add_scatter(
        x=(1 + _REACH * even / peak) * np.cos(ring),
        y=(1 + _REACH * even / peak) * np.sin(ring),
        name="if uniform",
        mode="lines",
        line={"color": GUIDE, "width": 1, "dash": "dash"},
        hoverinfo="skip",
    )
    framed(figure, x="first coordinate", y="second coordinate", height=520)
    figure.update_xaxes(range=[-1.6, 1.6], zeroline=False, constrain="domain")
    figure.update_yaxes(range=[-1.6, 1.6], zeroline=False, scaleanchor="x", constrain="domain")
    return figure
