"""Small charts of every quantity along the setting that a sweep varies, the paper's accuracy the last of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moco_core import paper
from moco_core.dashboard.figures.frame import GUIDE, built_once, framed, in_two_lines
from moco_core.dashboard.palette import series_colour, series_symbol
from moco_core.dashboard.text import plain_html

COLUMNS = 4
APART = 1.5  # ticks on the axis of K are no closer than this factor
SMALLEST = 1e-5  # where m = 1 is drawn on the log axis of 1 − m
MOMENTA = {1.0: "0", 0.1: "0.9", 0.01: "0.99", 0.001: "0.999", 1e-4: "0.9999", SMALLEST: "1"}  # 1 − m → m


@dataclass(frozen=True)
class Curve:
    """One quantity along a setting, for runs that differ in this setting alone: G groups of runs."""

    name: str
    at: Sequence[float]  # G, the setting
    mean: Sequence[float]  # G, NaN where unmeasured
    deviation: Sequence[float]  # G, NaN with one run
    seeds: Sequence[Sequence[float]]  # G × runs
    at_least: Sequence[bool]  # G, whether the mean is a lower bound


@dataclass(frozen=True)
class Panel:
    """One quantity: its curves, and by name the grey lines (setting → value) to read them by."""

    title: str
    curves: Sequence[Curve]
    guides: Mapping[str, Mapping[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """The common log axis of all panels: the setting it shows, and where on it a value of the setting lies."""

    symbol: str
    title: str
    place: Callable[[float], float]
    ticks: Mapping[float, str]  # place → text


@built_once
def along_momentum(panels: Sequence[Panel]) -> go.Figure:
    """Every quantity against 1 − m, beside the paper's momentum ablation."""
    axis = Axis("m", "momentum m", lambda m: max(1 - m, SMALLEST), MOMENTA)
    return _small_charts(panels, axis, paper.MOMENTUM_ABLATION)


@built_once
def along_negatives(panels: Sequence[Panel]) -> go.Figure:
    """Every quantity against the number of negatives K, beside the paper's accuracy at two of them."""
    measured = {size for panel in panels for curve in panel.curves for size in curve.at}
    ticks = {size: f"{size:,.0f}" for size in _apart(measured | set(paper.QUEUE_LENGTHS))}
    return _small_charts(panels, Axis("K", "negatives K", float, ticks), paper.QUEUE_LENGTHS)


def _small_charts(panels: Sequence[Panel], axis: Axis, papers: Mapping[float, float | None]) -> go.Figure:
    rows = math.ceil((len(panels) + 1) / COLUMNS)
    figure = make_subplots(
        rows,
        COLUMNS,
        subplot_titles=[in_two_lines(panel.title) for panel in panels] + ["paper: linear,<br>ImageNet, %"],
        horizontal_spacing=0.07,
        vertical_spacing=0.24 if rows < 3 else 0.14,
    )
    figure.update_annotations(font_size=13)
    places = [{"row": i // COLUMNS + 1, "col": i % COLUMNS + 1} for i in range(len(panels) + 1)]
    named: set[str] = set()
    for panel, where in zip(panels, places[:-1], strict=True):
        for index, curve in enumerate(panel.curves):
            _curve(figure, curve, index, axis, where, show_legend=curve.name not in named)
            named.add(curve.name)
        for name, line in panel.guides.items():
            _guide(figure, name, {axis.place(x): y for x, y in line.items()}, where)
        if not any(math.isfinite(value) for curve in panel.curves for value in curve.mean):
            _note(figure, "not measured yet", where)
    _paper_panel(figure, papers, axis, places[-1])
    framed(figure, x="", y="", height=290 * rows + 80)
    figure.update_layout(margin={"t": 110}, legend={"y": 1.14})
    figure.update_xaxes(type="log", tickvals=list(axis.ticks), ticktext=list(axis.ticks.values()))
    for where in places[-COLUMNS:]:
        figure.update_xaxes(title_text=axis.title, **where)
    return figure


def _curve(
    figure: go.Figure, curve: Curve, index: int, axis: Axis, where: Mapping[str, int], *, show_legend: bool
) -> None:
    x, colour = [axis.place(value) for value in curve.at], series_colour(index)
    bounds = ["≥ " if bound else "" for bound in curve.at_least]
    figure.add_scatter(
        x=x,
        y=curve.mean,
        error_y={"type": "data", "array": np.nan_to_num(curve.deviation), "visible": True, "width": 4},
        text=bounds,
        textposition="top center",
        customdata=[f"{value:,g}<br>{bound}" for value, bound in zip(curve.at, bounds, strict=True)],
        mode="lines+markers+text" if any(bounds) else "lines+markers",
        name=plain_html(curve.name),
        legendgroup=str(index),
        showlegend=show_legend,
        line={"color": colour, "width": 2},
        marker={"symbol": series_symbol(index), "size": 8},
        hovertemplate=f"{axis.symbol} = %{{customdata}}%{{y:.4g}}",
        **where,
    )
    dots = [
        (at, value) for at, values in zip(x, curve.seeds, strict=True) for value in values if len(values) > 1
    ]
    if dots:
        figure.add_scatter(
            x=[at for at, _ in dots],
            y=[value for _, value in dots],
            mode="markers",
            marker={"color": colour, "size": 4},
            legendgroup=str(index),
            showlegend=False,
            hovertemplate="one run: %{y:.4g}<extra></extra>",
            **where,
        )


def _guide(figure: go.Figure, name: str, line: Mapping[float, float], where: Mapping[str, int]) -> None:
    """A grey line; one of equal values crosses the whole chart."""
    look = {"color": GUIDE, "dash": "dash", "width": 1.5}
    x, y = list(line), list(line.values())
    if len(set(y)) == 1:
        level = {"annotation_text": name, "annotation_position": "top left", "annotation_font_size": 11}
        figure.add_hline(y[0], line=look, **level, **where)
        return
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines+text",
        text=[f"{name}\u2002" if i == len(x) // 2 else "" for i in range(len(x))],
        textposition="top left",  # clear of the line, which rises, and of runs on it
        cliponaxis=False,
        textfont={"color": GUIDE, "size": 11},
        line=look,
        hoverinfo="skip",
        showlegend=False,
        **where,
    )


def _note(figure: go.Figure, text: str, where: Mapping[str, int]) -> None:
    """A word in the middle of an empty panel."""
    figure.add_annotation(text=text, x=0.5, y=0.5, xref="x domain", yref="y domain", showarrow=False, **where)


def _paper_panel(
    figure: go.Figure, papers: Mapping[float, float | None], axis: Axis, where: Mapping[str, int]
) -> None:
    accuracy = {setting: value for setting, value in papers.items() if value is not None}
    failed = [axis.place(setting) for setting, value in papers.items() if value is None]
    figure.add_scatter(
        x=[axis.place(setting) for setting in accuracy],
        y=list(accuracy.values()),
        customdata=[f"{setting:,g}" for setting in accuracy],
        mode="lines+markers",
        name="paper (ImageNet)",
        line={"color": GUIDE, "width": 2, "dash": "dash"},
        marker={"symbol": "square-open", "size": 9},
        hovertemplate=f"{axis.symbol} = %{{customdata}}<br>%{{y:.1f}}%",
        **where,
    )
    figure.add_scatter(
        x=failed,
        y=[min(accuracy.values())] * len(failed),
        mode="markers+text",
        text=["fails"] * len(failed),
        textposition="top left",
        marker={"symbol": "x", "size": 9, "color": GUIDE},
        hovertemplate="training failed<extra></extra>",
        showlegend=False,
        **where,
    )


def _apart(sizes: set[float]) -> list[float]:
    """The sizes, largest first, without those that are close to a larger one."""
    kept: list[float] = []
    for size in sorted(sizes, reverse=True):
        if not kept or APART * size <= kept[-1]:
            kept.append(size)
    return kept
