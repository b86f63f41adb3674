"""Charts of settings: momentum against queue length, three durations, three ways to get negatives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moco_core.dashboard.figures.frame import GUIDE, built_once, framed, in_two_lines
from moco_core.dashboard.figures.sweep_panels import MOMENTA, SMALLEST
from moco_core.dashboard.palette import series_colour, series_symbol
from moco_core.dashboard.text import numeral, plain_html
from moco_core.theory import turnover

TURNOVERS = (0.01, 0.1, 1.0, 10.0, 100.0)


@dataclass(frozen=True)
class Placed:
    """One run on the map of momentum and queue length."""

    name: str
    momentum: float
    queue_size: int
    batch_size: int
    gradient_cosine: float  # of the whole queue, lowest over training; NaN when not measured
    k_star: str  # lowest over training; empty when not measured


@dataclass(frozen=True)
class Timescale:
    """Three durations of one setting, in steps."""

    name: str
    half_life: float
    span: float
    steps: int


@built_once
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
    top = {
        "y": math.log10(y_high),
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 11, "color": GUIDE},
    }
    figure.add_annotation(text="grey: turnover", x=0, xref="paper", xanchor="left", yshift=16, **top)
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
        if x[0] < level * batch / y_high < x[1]:
            figure.add_annotation(text=f"{level:g}", x=math.log10(level * batch / y_high), **top)
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
        type="log",
        range=np.log10(x).tolist(),
        tickvals=list(MOMENTA),
        ticktext=[f"{x:g}<br>{m}" for x, m in MOMENTA.items()],
    )
    figure.update_yaxes(
        type="log", range=[math.log10(y_low), math.log10(y_high)], tickvals=np.unique(sizes), tickformat=","
    )
    return figure


def _placed_hover(run: Placed) -> str:
    """What a run's mark on the map says."""
    cosine = "not measured" if math.isnan(run.gradient_cosine) else numeral(run.gradient_cosine, ".4f")
    lines = [
        plain_html(run.name),
        f"m = {run.momentum:g}, K = {run.queue_size:,}, B = {run.batch_size:,}",
        f"turnover {turnover(run.momentum, run.queue_size, run.batch_size):.3g}",
        f"lowest gradient cosine {cosine}",
    ]
    return "<br>".join([*lines, f"lowest K* {run.k_star}"] if run.k_star else lines)


@built_once
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


@built_once
def by_method(names: Sequence[str], panels: Mapping[str, Sequence[Sequence[float]]]) -> go.Figure:
    """Methods side by side: every run a dot, the mean a bar. `panels`: quantity → method → values of its runs."""
    titles = [in_two_lines(title) for title in panels]
    figure = make_subplots(
        1, max(len(titles), 1), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03
    )
    figure.update_annotations(font_size=13)
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
    framed(figure, x="", y="", height=150 + 40 * len(names))
    figure.update_layout(margin={"t": 50})
    figure.update_yaxes(categoryorder="array", categoryarray=[plain_html(name) for name in reversed(names)])
    return figure
