"""How much of each sample's neighbourhood two embeddings share."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import GUIDE, framed
from moco_core.dashboard.palette import series_colour


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


def shared_counts(jaccard: np.ndarray, k: int) -> np.ndarray:
    """How many of k neighbours are shared, from 0 to k: a Jaccard index J stands for `2kJ/(1 + J)`."""
    return np.rint(2 * k * jaccard / (1 + jaccard)).astype(np.int64)


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
