"""How much of each sample's neighbourhood two embeddings share."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import GUIDE, framed
from moco_core.dashboard.palette import series_colour

BINS = 20


def overlap_chart(jaccard: np.ndarray, k: int) -> go.Figure:
    """Histogram of N Jaccard indices; dashed lines at their mean and at what unrelated spaces would share."""
    n = len(jaccard)
    counts, edges = np.histogram(jaccard, bins=BINS, range=(0, 1))
    figure = go.Figure(
        go.Bar(
            x=(edges[:-1] + edges[1:]) / 2,
            y=counts,
            width=1 / BINS,
            marker={"color": series_colour(0), "line": {"width": 0}},
            customdata=np.stack([edges[:-1], edges[1:]], axis=1),
            hovertemplate="%{y} samples share %{customdata[0]:.2f} to %{customdata[1]:.2f}<extra></extra>",
        )
    )
    chance = chance_overlap(n, k)
    for value, text, row in ((float(np.mean(jaccard)), "mean", 0), (chance, "chance", 1)):
        figure.add_vline(value, line={"color": GUIDE, "dash": ("dash", "dot")[row]})
        figure.add_annotation(
            x=value,
            y=1 + 0.07 * row,
            yref="paper",
            yanchor="bottom",
            text=f"{text} {value:.2f}",
            showarrow=False,
        )
    framed(figure, x=f"Jaccard index of the {k} nearest in A and in B (1: the same)", y="samples")
    figure.update_xaxes(range=[0, 1])
    figure.update_layout(margin_t=60)
    return figure


def chance_overlap(n: int, k: int) -> float:
    """Expected Jaccard index of two independent random k-subsets of the other N − 1 samples.

    The intersection is hypergeometric; the mean of s / (2k − s) over its distribution is summed exactly.
    """
    from math import comb

    others = n - 1
    total = comb(others, k)
    return sum(
        comb(k, s) * comb(others - k, k - s) / total * s / (2 * k - s)
        for s in range(max(0, 2 * k - others), k + 1)
    )
