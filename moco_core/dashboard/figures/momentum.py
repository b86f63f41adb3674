"""Charts of sweeps: what momentum, queue length and method did to runs, beside the paper's own numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moco_core import paper
from moco_core.dashboard.figures.frame import GUIDE, framed
from moco_core.dashboard.palette import series_colour, series_symbol
from moco_core.dashboard.text import plain_html
from moco_core.theory import turnover

COLUMNS = 4
SMALLEST = 1e-5  # where m = 1 is drawn on the log axis of 1 − m
TURNOVERS = (0.01, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Curve:
    """One quantity along momentum, for settings that differ in momentum alone: G groups of runs."""

    name: str
    momentum: Sequence[float]  # G
    mean: Sequence[float]  # G, NaN where unmeasured
    deviation: Sequence[float]  # G, NaN with one run
    seeds: Sequence[Sequence[float]]  # G × runs


@dataclass(frozen=True)
class Panel:
    """One quantity: its curves, and level lines by name."""

    title: str
    curves: Sequence[Curve]
    levels: Mapping[str, float]


@dataclass(frozen=True)
class Placed:
    """One run on the map of momentum and queue length."""

    name: str
    momentum: float
    queue_size: int
    batch_size: int
    gradient_cosine: float  # of the whole queue, lowest over training; NaN when not measured
    k_star: float  # lowest over training; NaN when not measured


@dataclass(frozen=True)
class Timescale:
    """Three durations of one setting, in steps."""

    name: str
    half_life: float
    span: float
    steps: int


def quantities_by_momentum(panels: Sequence[Panel]) -> go.Figure:
    """A small chart for each quantity against 1 − m, log axis; the last one is the paper's own row."""
    rows = math.ceil((len(panels) + 1) / COLUMNS)
    figure = make_subplots(
        rows,
        COLUMNS,
        subplot_titles=[panel.title for panel in panels] + ["paper: linear, ImageNet, %"],
        horizontal_spacing=0.07,
        vertical_spacing=0.2 if rows < 3 else 0.12,
    )
    named: set[str] = set()
    for place, panel in enumerate(panels):
        row, column = place // COLUMNS + 1, place % COLUMNS + 1
        for index, curve in enumerate(panel.curves):
            _curve(figure, curve, index, row, column, show_legend=curve.name not in named)
            named.add(curve.name)
        if not any(math.isfinite(value) for curve in panel.curves for value in curve.mean):
            _note(figure, "not measured yet", row, column)
        for text, value in panel.levels.items():
            figure.add_hline(
                value,
                row=row,
                col=column,
                line={"color": GUIDE, "dash": "dash", "width": 1.5},
                annotation_text=text,
                annotation_position="top left",
                annotation_font_size=11,
            )
    _paper_panel(figure, len(panels) // COLUMNS + 1, len(panels) % COLUMNS + 1)
    framed(figure, x="", y="", height=270 * rows + 70)
    figure.update_layout(margin={"t": 90})
    figure.update_xaxes(type="log", tickvals=[10.0**-n for n in range(6)], ticktext=_tick_texts())
    for place in range(len(panels) + 1):
        if place + COLUMNS > len(panels):
            figure.update_xaxes(
                title_text="1 − m (m below)", row=place // COLUMNS + 1, col=place % COLUMNS + 1
            )
    return figure


def turnover_map(runs: Sequence[Placed]) -> go.Figure:
    """Runs by 1 − m and K, coloured by their lowest gradient cosine, over contours of turnover (1 − m)·K/B.

    Contours are drawn for the batch size that most of the runs have.
    """
    figure = go.Figure()
    if not runs:
        return framed(figure, x="1 − m", y="queue length K (slots)")
    batches = [run.batch_size for run in runs]
    batch = max(sorted(set(batches)), key=batches.count)
    moving = np.array([max(1 - run.momentum, SMALLEST) for run in runs])
    sizes = np.array([run.queue_size for run in runs])
    x = np.array([min(moving.min() / 3, 1e-4), max(moving.max() * 2, 1.0)])
    y_low, y_high = sizes.min() / 4, sizes.max() * 4
    for level in TURNOVERS:
        ends = level * batch / x
        figure.add_scatter(
            x=x,
            y=ends,
            mode="lines",
            line={
                "color": GUIDE,
                "width": 2 if level == 1 else 1,
                "dash": "solid" if level == 1 else "dot",
            },
            hoverinfo="skip",
            showlegend=False,
        )
        at = y_high / 1.25
        if x[0] < level * batch / at < x[1]:
            figure.add_annotation(
                x=math.log10(level * batch / at),
                y=math.log10(at),
                text=f"turnover {level:g}",
                showarrow=False,
                font={"size": 11, "color": GUIDE},
                xanchor="left",
                xshift=6,
            )
    cosine = np.array([run.gradient_cosine for run in runs])
    measured = np.isfinite(cosine)
    hover = [_placed_hover(run) for run in runs]
    for shown, marker in (
        (
            measured,
            {
                "color": cosine[measured],
                "colorscale": "Cividis",
                "cmin": 0,
                "cmax": 1,
                "symbol": "circle",
                "colorbar": {"title": {"text": "gradient cosine"}, "thickness": 12},
            },
        ),
        (~measured, {"color": GUIDE, "symbol": "circle-open"}),
    ):
        if shown.any():
            figure.add_scatter(
                x=moving[shown],
                y=sizes[shown],
                mode="markers",
                marker={"size": 18, "line": {"color": GUIDE, "width": 1.5}, **marker},
                text=[text for text, here in zip(hover, shown, strict=True) if here],
                hovertemplate="%{text}<extra></extra>",
                showlegend=False,
            )
    framed(figure, x="1 − m (m below)", y="queue length K (slots)", height=440)
    figure.update_xaxes(
        type="log", range=np.log10(x).tolist(), tickvals=[10.0**-n for n in range(6)], ticktext=_tick_texts()
    )
    figure.update_yaxes(
        type="log", range=[math.log10(y_low), math.log10(y_high)], tickvals=np.unique(sizes), tickformat=","
    )
    return figure


def _placed_hover(run: Placed) -> str:
    """What a run's mark on the map says."""
    cosine = "not measured" if math.isnan(run.gradient_cosine) else f"{run.gradient_cosine:.4f}"
    lines = [
        plain_html(run.name),
        f"m = {run.momentum:g}, K = {run.queue_size:,}, B = {run.batch_size:,}",
        f"turnover {turnover(run.momentum, run.queue_size, run.batch_size):.3g}",
        f"lowest gradient cosine {cosine}",
    ]
    return "<br>".join(lines if math.isnan(run.k_star) else [*lines, f"lowest K* = {run.k_star:,.0f}"])


def timescales(settings: Sequence[Timescale]) -> go.Figure:
    """EMA half-life, queue span and total steps of each setting on one log axis.

    A half-life of 0 (m = 0) is drawn at the left edge, an infinite one (m = 1) at the right.
    """
    figure = go.Figure()
    finite = [v for s in settings for v in (s.half_life, s.span, s.steps) if 0 < v < math.inf]
    low, high = min(finite, default=1) / 3, max(finite, default=1) * 3
    names = [plain_html(setting.name) for setting in settings]
    for name in names:
        figure.add_scatter(
            x=[low, high],
            y=[name, name],
            mode="lines",
            line={"color": GUIDE, "width": 0.5},
            hoverinfo="skip",
            showlegend=False,
        )
    kinds = (
        ("EMA half-life", [s.half_life for s in settings]),
        ("queue span K/B", [s.span for s in settings]),
        ("steps of the run", [float(s.steps) for s in settings]),
    )
    for index, (kind, values) in enumerate(kinds):
        figure.add_scatter(
            x=np.clip(values, low, high),
            y=names,
            customdata=[f"{value:,.3g}" for value in values],
            mode="markers",
            name=kind,
            marker={"size": 13, "symbol": series_symbol(index), "color": series_colour(index)},
            hovertemplate=f"{kind}: %{{customdata}} steps<extra></extra>",
        )
    framed(figure, x="steps", y="", height=140 + 34 * len(settings))
    figure.update_xaxes(type="log", dtick=1, exponentformat="none")
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def by_method(names: Sequence[str], panels: Mapping[str, Sequence[Sequence[float]]]) -> go.Figure:
    """Methods side by side: every run a dot, the mean a bar. `panels`: quantity → method → values of its runs."""
    titles = list(panels)
    figure = make_subplots(
        1, max(len(titles), 1), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03
    )
    for column, by_name in enumerate(panels.values(), start=1):
        place = {"row": 1, "col": column}
        for index, values in enumerate(by_name):
            if not len(values):
                continue
            name, colour = plain_html(names[index]), series_colour(index)
            figure.add_bar(
                x=[float(np.mean(values))],
                y=[name],
                orientation="h",
                marker={"color": colour, "opacity": 0.45},
                hovertemplate="mean %{x:.4g}<extra></extra>",
                showlegend=False,
                **place,
            )
            figure.add_scatter(
                x=list(values),
                y=[name] * len(values),
                mode="markers",
                marker={
                    "color": colour,
                    "size": 9,
                    "symbol": series_symbol(index),
                    "line": {"color": GUIDE, "width": 1},
                },
                hovertemplate="%{x:.4g}<extra></extra>",
                showlegend=False,
                **place,
            )
    framed(figure, x="", y="", height=140 + 40 * len(names))
    figure.update_yaxes(categoryorder="array", categoryarray=[plain_html(name) for name in reversed(names)])
    return figure


def _curve(figure: go.Figure, curve: Curve, index: int, row: int, column: int, *, show_legend: bool) -> None:
    moving = [max(1 - m, SMALLEST) for m in curve.momentum]
    colour = series_colour(index)
    figure.add_scatter(
        x=moving,
        y=curve.mean,
        error_y={"type": "data", "array": np.nan_to_num(curve.deviation), "visible": True, "width": 4},
        customdata=curve.momentum,
        mode="lines+markers",
        name=plain_html(curve.name),
        legendgroup=str(index),
        showlegend=show_legend,
        line={"color": colour, "width": 2},
        marker={"symbol": series_symbol(index), "size": 8},
        hovertemplate="m = %{customdata}<br>%{y:.4g}",
        row=row,
        col=column,
    )
    dots = [
        (x, value)
        for x, values in zip(moving, curve.seeds, strict=True)
        if len(values) > 1
        for value in values
    ]
    if dots:
        figure.add_scatter(
            x=[x for x, _ in dots],
            y=[value for _, value in dots],
            mode="markers",
            marker={"color": colour, "size": 4},
            legendgroup=str(index),
            showlegend=False,
            hovertemplate="one run: %{y:.4g}<extra></extra>",
            row=row,
            col=column,
        )


def _note(figure: go.Figure, text: str, row: int, column: int) -> None:
    """A word in the middle of an empty panel."""
    figure.add_annotation(
        text=text, x=0.5, y=0.5, xref="x domain", yref="y domain", showarrow=False, row=row, col=column
    )


def _paper_panel(figure: go.Figure, row: int, column: int) -> None:
    accuracy = {m: value for m, value in paper.MOMENTUM_ABLATION.items() if value is not None}
    failed = [m for m, value in paper.MOMENTUM_ABLATION.items() if value is None]
    where = {"row": row, "col": column}
    figure.add_scatter(
        x=[1 - m for m in accuracy],
        y=list(accuracy.values()),
        customdata=list(accuracy),
        mode="lines+markers",
        name="paper (ImageNet)",
        line={"color": GUIDE, "width": 2, "dash": "dash"},
        marker={"symbol": "square-open", "size": 9},
        hovertemplate="m = %{customdata}<br>%{y:.1f} %",
        **where,
    )
    low = min(accuracy.values())
    figure.add_scatter(
        x=[1 - m for m in failed],
        y=[low] * len(failed),
        mode="markers+text",
        text=["fails"] * len(failed),
        textposition="top left",
        marker={"symbol": "x", "size": 9, "color": GUIDE},
        hovertemplate="training failed<extra></extra>",
        showlegend=False,
        **where,
    )


def _tick_texts() -> list[str]:
    return ["1<br>0", "0.1<br>0.9", "0.01<br>0.99", "0.001<br>0.999", "1e−4<br>0.9999", "1e−5<br>1"]
