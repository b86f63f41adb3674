"""How much of each sample's neighbourhood two embeddings share."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from moco_core.analysis.neighbors import shared_counts
from moco_core.dashboard.figures.frame import GUIDE, built_once, framed
from moco_core.dashboard.palette import series_colour


@built_once
def overlap_chart(jaccard: np.ndarray, k: int) -> go.Figure:
    """How many of N samples share how many of their k neighbours; lines at the mean and at that of unrelated spaces."""
    n = len(jaccard)
    shared = shared_counts(jaccard, k)
    figure = go.Figure(
        go.Bar(
            x=np.arange(k + 1),
            y=np.bincount(shared, minlength=k + 1),
            width=1,
            marker={"color": series_colour(0), "line": {"width": 0}},
            hovertemplate=f"%{{y}} samples share %{{x}} of {k}<extra></extra>",
        )
    )
    chance = k * k / (n - 1)  # mean of the hypergeometric distribution
    for value, text, row in ((float(shared.mean()), "mean", 0), (chance, "chance", 1)):
        figure.add_vline(value, line={"color": GUIDE, "dash": ("dash", "dot")[row]})
        figure.add_annotation(
            x=value,
            y=1 + 0.07 * row,
            yref="paper",
            yanchor="bottom",
            text=f"{text} {value:.1f}",
            showarrow=False,
        )
    framed(figure, x=f"neighbours that are among the {k} nearest both in A and in B", y="samples")
    figure.update_xaxes(range=[-0.5, k + 0.5])
    figure.update_layout(margin_t=60)
    return figure
