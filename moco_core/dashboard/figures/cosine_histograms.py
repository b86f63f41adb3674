"""Histograms of positive and negative cosines on one axis, and what the softmax makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moco_core.dashboard.figures.frame import built_once, framed
from moco_core.dashboard.palette import series_colour
from moco_core.dashboard.text import lines_html, plain_html

LONGEST_TITLE = 22  # letters on a line above a small chart, two of which stand side by side on a phone
SCALES = {"share": "share of its pairs", "counts": "pairs", "log": "pairs (log scale)"}


@dataclass(frozen=True)
class Histogram:
    """Pairs of one kind, counted by cosine in bins."""

    name: str
    counts: np.ndarray  # by bin
    look: int = 0  # colour and dash: the same for one kind in every chart


@dataclass(frozen=True)
class Weights:
    """Mean softmax weight by cosine at one temperature; positive and negative add up to 1."""

    temperature: float
    positive: np.ndarray  # by bin
    negative: np.ndarray  # by bin


class Panel(NamedTuple):
    """One run among several."""

    title: str
    series: Sequence[Histogram]
    place: int = 0  # its place among the runs, hence its colour


@built_once
def cosine_histograms(
    edges: np.ndarray, series: Sequence[Histogram], weights: Weights | None = None, scale: str = "share"
) -> go.Figure:
    """Histograms over the bins between `edges`, and below them the softmax weight that each bin carries.

    `scale` is one of `SCALES`. Each bar has `customdata` (kind of pair, bin, count).
    """
    rows = 2 if weights else 1
    figure = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.05)
    for histogram in series:
        for trace in _drawn(edges, histogram, scale):
            figure.add_trace(trace, row=1, col=1)
    framed(figure, x="", y="", height=300 + 240 * (rows - 1))
    if weights is not None:
        stacked = (
            ("negatives", weights.negative, 1, 0.0),
            ("positive", weights.positive, 0, weights.negative),
        )
        for name, values, number, base in stacked:
            figure.add_bar(
                x=_centres(edges),
                width=np.diff(edges),
                y=values,
                base=base,
                customdata=values,
                name=f"weight of the {name}",
                marker={"color": series_colour(number), "line": {"width": 0}},
                hovertemplate="cosine %{x:.3f}: %{customdata:.2%} of the softmax",
                showlegend=False,
                row=2,
                col=1,
            )
        title = f"softmax weight at τ = {weights.temperature:g}"
        figure.update_yaxes(title_text=title, tickformat=".1~%", row=2, col=1)
    _scale_counts(figure.update_yaxes, scale, row=1, col=1)
    figure.update_xaxes(title_text="cosine similarity", row=rows, col=1)
    figure.update_layout(barmode="overlay", bargap=0)
    return figure


@built_once
def histogram_grid(edges: np.ndarray, panels: Sequence[Panel], scale: str = "share") -> go.Figure:
    """One small chart a run over the same bins, titled with its name; a height of its own each.

    A collapsed run piles everything into one bar, beside which no other histogram could be seen.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    titles = [lines_html(panel.title, LONGEST_TITLE) for panel in panels]
    figure = make_subplots(
        rows=rows,
        cols=columns,
        shared_xaxes="all",
        subplot_titles=titles,
        vertical_spacing=0.5 / (rows + 3),
        horizontal_spacing=0.12,
    )
    told: set[str] = set()
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        for histogram in panel.series:
            for trace in _drawn(edges, histogram, scale):
                trace.showlegend = histogram.name not in told
                told.add(histogram.name)
                figure.add_trace(trace, row=row + 1, col=column + 1)
    figure.update_annotations(font_size=13)
    lines = max(title.count("<br>") for title in titles[:columns]) + 1
    framed(figure, x="", y="", height=140 + 220 * rows)
    figure.update_layout(legend_y=1 + 0.09 * (lines + 1) / rows)  # above the titles
    _scale_counts(figure.update_yaxes, scale, title=False)
    figure.update_yaxes(title_text=SCALES[scale], col=1)
    figure.update_xaxes(title_text="cosine similarity", row=rows)
    figure.update_layout(barmode="overlay", bargap=0)
    return figure


@built_once
def histogram_overlay(edges: np.ndarray, panels: Sequence[Panel], scale: str = "share") -> go.Figure:
    """All runs in one chart: colour tells the run, the dash of the line tells the kind of pair."""
    figure = go.Figure()
    for title, series, place in panels:
        for histogram in series:
            figure.add_scatter(
                x=_centres(edges),
                y=_heights(histogram.counts, scale),
                name=f"{plain_html(title)}: {histogram.name}",
                mode="lines",
                line={"color": series_colour(place), "dash": _DASHES[histogram.look], "shape": "hvh"},
                hovertemplate="cosine %{x:.3f}: %{y:.3g}",
            )
    framed(figure, x="cosine similarity", y="", height=480)
    _scale_counts(figure.update_yaxes, scale)
    return figure


def _drawn(edges: np.ndarray, histogram: Histogram, scale: str) -> Iterator[Any]:
    """Bars to click, and an outline that stays readable where histograms overlap."""
    heights = _heights(histogram.counts, scale)
    common = {
        "x": _centres(edges),
        "y": heights,
        "name": histogram.name,
        "legendgroup": histogram.name,
        "legendrank": histogram.look,
    }
    colour = series_colour(histogram.look)
    yield go.Bar(
        **common,
        width=np.diff(edges),
        marker={"color": colour, "opacity": 0.35, "line": {"width": 0}},
        customdata=[[histogram.name, b, int(count)] for b, count in enumerate(histogram.counts)],
        hovertemplate="cosine %{x:.3f}: %{customdata[2]} pairs",
    )
    yield go.Scatter(
        **common,
        mode="lines",
        line={"color": colour, "dash": _DASHES[histogram.look], "shape": "hvh", "width": 1.5},
        hoverinfo="skip",
        showlegend=False,
    )


def _centres(edges: np.ndarray) -> np.ndarray:
    return (edges[:-1] + edges[1:]) / 2


def _heights(counts: np.ndarray, scale: str) -> np.ndarray:
    return counts / max(counts.sum(), 1) if scale == "share" else counts


def _scale_counts(update_yaxes: Any, scale: str, *, title: bool = True, **where: int) -> None:
    if title:
        update_yaxes(title_text=SCALES[scale], **where)
    if scale == "share":
        update_yaxes(tickformat=".1~%", **where)
    if scale == "log":
        update_yaxes(type="log", dtick=1, exponentformat="power", **where)


_DASHES = ("solid", "dot", "dash", "dashdot")
