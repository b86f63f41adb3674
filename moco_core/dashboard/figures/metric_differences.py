"""The metrics of two checkpoints against each other, the better one marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import GUIDE, built_once, framed
from moco_core.dashboard.palette import series_colour
from moco_core.dashboard.text import numeral

Z_95 = 1.96  # standard errors on either side in a 95 % interval


@dataclass(frozen=True)
class MetricPair:
    """One metric of A and of B; `better` is +1 where more is better, −1 where less is, 0 where neither.

    `count` is the number of images that an accuracy is a share of; 0 for a metric whose error isn't known.
    """

    name: str
    a: float
    b: float
    better: int
    count: int = 0

    @property
    def difference(self) -> float:
        """B − A."""
        return self.b - self.a

    @property
    def winner(self) -> str:
        """`A`, `B`, or an empty string for a tie and where more is neither better nor worse."""
        gain = self.better * self.difference
        return "B" if gain > 0 else "A" if gain < 0 else ""

    @property
    def beyond_chance(self) -> bool:
        """Whether two shares of `count` images differ by more than chance: outside its 95 % interval, binomial.

        As if the two sides had seen different images. They saw the same, which makes the interval too wide at most.
        """
        if not self.count:
            return False
        variance = (self.a * (1 - self.a) + self.b * (1 - self.b)) / self.count
        return abs(self.difference) > Z_95 * math.sqrt(variance)

    @property
    def gain(self) -> float:
        """What B gains over A, as a share of the larger magnitude: in [−2, 2], above 0 where B is better."""
        size = max(abs(self.a), abs(self.b))
        return (self.better or 1) * self.difference / size if size else 0.0


def metric_text(value: float) -> str:
    """A metric to four digits; whole thousands, as K* may be, in full."""
    return numeral(value, ",.0f" if abs(value) >= 1000 else ".4g")


@built_once
def metric_differences(metrics: Sequence[MetricPair]) -> go.Figure:
    """A bar a metric: to the right where B is better, to the left where A is; its numbers stand below its name."""
    metrics = [m for m in metrics if np.isfinite(m.gain)][::-1]  # the first on top
    figure = go.Figure(
        go.Bar(
            x=[m.gain for m in metrics],
            y=[f"{m.name}<br>{metric_text(m.a)} → {metric_text(m.b)}" for m in metrics],
            orientation="h",
            marker={
                "color": [
                    {"A": series_colour(0), "B": series_colour(1)}.get(m.winner, GUIDE) for m in metrics
                ],
                "pattern": {"shape": [{"A": "/", "B": ""}.get(m.winner, ".") for m in metrics]},
            },
            customdata=[[numeral(m.difference, "+.4g"), m.winner or "neither"] for m in metrics],
            hovertemplate="%{y}: B − A = %{customdata[0]}; better: %{customdata[1]}<extra></extra>",
        )
    )
    figure.add_vline(0, line={"color": GUIDE, "width": 1})
    reach = 1.1 * max([abs(m.gain) for m in metrics], default=0) or 1.0
    framed(figure, x="", y="", height=140 + 40 * len(metrics))
    title = "relative difference<br>← A better · B better →"  # on one line it is cut off in a narrow window
    figure.update_xaxes(title_text=title, range=[-reach, reach], tickformat="~%")
    figure.update_layout(margin_t=10, showlegend=False)
    return figure
