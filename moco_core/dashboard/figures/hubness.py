"""How often each sample is among the nearest neighbours of others (Radovanović 2010)."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import GUIDE, built_once, framed
from moco_core.dashboard.palette import series_colour

BARS = 60


@built_once
def hubness_chart(occurrences: np.ndarray, k: int) -> go.Figure:
    """Histogram of the k-occurrence of N samples; its mean is always k, a long right tail means hubs."""
    highest = int(occurrences.max(initial=0))
    width = -(-(highest + 1) // BARS)  # whole numbers a bar, rounded up
    edges = np.arange(0, highest + 1 + width, width)
    counts, _ = np.histogram(occurrences, bins=edges)
    figure = go.Figure(
        go.Bar(
            x=edges[:-1] + (width - 1) / 2,
            y=counts,
            width=width,
            marker={"color": series_colour(0), "line": {"width": 0}},
            customdata=np.stack([edges[:-1], edges[1:] - 1], axis=1),
            hovertemplate="%{y} samples are neighbours of %{customdata[0]} to %{customdata[1]} others"
            "<extra></extra>",
        )
    )
    figure.add_vline(k, line={"color": GUIDE, "dash": "dash"})
    figure.add_annotation(x=k, y=1, yref="paper", yanchor="bottom", text=f"mean {k}", showarrow=False)
    framed(figure, x=f"k-occurrence: samples that have it among their {k} nearest", y="samples (log scale)")
    figure.update_yaxes(type="log", dtick=1)
    return figure
