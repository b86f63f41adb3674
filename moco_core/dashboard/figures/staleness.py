"""Charts of queue staleness: what age does to stored keys, and what that does to learning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np
import plotly.graph_objects as go

from moco_core.analysis.staleness import CONSISTENT, AgeProfile, by_age
from moco_core.dashboard.drift import Drift
from moco_core.dashboard.figures import frame
from moco_core.dashboard.figures.frame import GUIDE, built_once
from moco_core.dashboard.palette import series_colour, series_symbol
from moco_core.dashboard.text import plain_html

Array = np.ndarray

MOST_CELLS = 65536
POLICY_NAMES = {
    "oldest_first": "oldest first (the queue)",
    "newest_first": "newest first",
    "random": "at random",
    "most_drifted_first": "most drifted first",
}


@built_once
def gradient_cosine_by_length(drifts: Sequence[Drift]) -> go.Figure:
    """Cosine between the query's gradient with stale and with fresh keys, newest keys first; K* marked.

    Lengths without a gradient leave a gap.
    """
    figure = go.Figure()
    for drift in drifts:
        _line(
            figure,
            drift,
            drift.length,
            drift.gradient_cosine,
            hover="newest %{x:,} keys<br>cosine %{y:.4f}",
        )
        held = drift.length == drift.k_star
        if held.any():
            figure.add_scatter(
                x=drift.length[held],
                y=drift.gradient_cosine[held],
                mode="markers",
                marker={
                    "symbol": "star",
                    "size": 15,
                    "color": series_colour(drift.place),
                    "line": {"color": GUIDE, "width": 1},
                },
                name=f"K* of {plain_html(drift.name)}",
                hovertemplate=f"K* {'≥' if drift.k_star_at_least else '='} %{{x:,}}",
                legendgroup=str(drift.place),
                showlegend=False,
            )
    figure.add_hline(
        CONSISTENT,
        line={"color": GUIDE, "dash": "dash", "width": 1.5},
        annotation_text=f"consistent: {CONSISTENT}",
        annotation_position="bottom left",
    )
    _framed(
        figure, x="queue length, newest keys first (slots)", y="gradient cosine, stale to fresh", height=420
    )
    figure.update_xaxes(type="log", exponentformat="none", dtick=1, minor={"dtick": "D1"})
    return figure


@built_once
def drift_by_age(drifts: Sequence[Drift], *, relative: bool, log: bool = False) -> go.Figure:
    """Drift of the stored keys by age, mean and 10–90% band, with the control at age 0.

    `relative` divides by the spread of the keys; a collapsed run then has no line. A `log` axis shows runs
    of very different drift, but no 0: neither the control nor keys of age 0.
    """
    figure = go.Figure()
    for drift in drifts:
        values = drift.relative if relative else drift.drift
        if np.isfinite(values).all():
            profile = by_age(drift.age, values)
            _band(figure, drift, _above_zero(profile) if log else profile, "drift %{y:.5f}")
    controls = [drift.control for drift in drifts if math.isfinite(drift.control)]
    if controls:
        figure.add_scatter(
            x=[0],
            y=[max(controls)],
            mode="markers",
            marker={"symbol": "x-thin", "size": 13, "line": {"color": GUIDE, "width": 3}},
            name="control: written by the current weights",
            hovertemplate="control %{y:.1e}<extra></extra>",
        )
    _framed(figure, x="age (steps since written)", y="drift ÷ spread" if relative else "drift, 1 − cos")
    figure.update_yaxes(type="log" if log else "linear")
    return figure


@built_once
def lag_by_age(drifts: Sequence[Drift]) -> go.Figure:
    """Distance of the stored keys from the current *query* encoder, by age."""
    figure = go.Figure()
    for drift in drifts:
        _band(figure, drift, by_age(drift.age, drift.lag), "lag %{y:.5f}")
    return _framed(figure, x="age (steps since written)", y="query–key lag, 1 − cos")


@built_once
def logit_error_by_age(drifts: Sequence[Drift]) -> go.Figure:
    """Mean absolute error of a negative's logit by age."""
    figure = go.Figure()
    for drift in drifts:
        if len(drift.logit_error):
            _band(figure, drift, by_age(drift.age, drift.logit_error), "error %{y:.4f}")
    return _framed(figure, x="age (steps since written)", y="logit error |q·Δk|/τ")


@built_once
def weight_by_age(drifts: Sequence[Drift]) -> go.Figure:
    """Softmax weight of an average slot by age, in units of an even share (1)."""
    figure = go.Figure()
    for drift in drifts:
        if len(drift.weight_share):
            even = drift.stands_for / drift.stands_for.sum()
            profile, total = (
                by_age(drift.age, drift.weight_share / even),
                by_age(drift.age, drift.weight_share),
            )
            _line(
                figure,
                drift,
                profile.age,
                profile.mean,
                hover="age %{x:.0f}<br>%{y:.3f} × even share<br>%{customdata:.2%} of all weight",
                customdata=total.mean * total.count,
            )
    figure.add_hline(1, line={"color": GUIDE, "dash": "dash", "width": 1.5})
    return _framed(figure, x="age (steps since written)", y="softmax weight ÷ even share")


@built_once
def kl_by_length(drifts: Sequence[Drift]) -> go.Figure:
    """KL(softmax with stale keys ‖ softmax with fresh keys) by queue length."""
    figure = go.Figure()
    for drift in drifts:
        if len(drift.kl):
            _line(figure, drift, drift.length, drift.kl, hover="newest %{x:,} keys<br>%{y:.2e} nats")
    _framed(figure, x="queue length, newest keys first (slots)", y="KL(stale ‖ fresh), nats")
    figure.update_xaxes(type="log", exponentformat="none", dtick=1)
    return figure


@built_once
def queue_strip(size: int, drift: Array, age: Array, marked: Array) -> go.Figure:
    """The queue slot by slot, oldest top left, newest last, coloured by drift.

    size: K; drift, age: of the filled slots (F each), NaN drift where not measured; marked: rows to mark as
    false negatives. Filled slots that were not measured are grey, empty ones stay blank. Of a queue longer
    than `MOST_CELLS`, snapshots hold that many slots, and they are all there is to draw.
    """
    filled = len(drift)
    size = max(min(size, MOST_CELLS), filled)
    width = _strip_width(size)
    rows = math.ceil(size / width)
    flat = np.full((3, rows * width), np.nan)  # measured drift; 0 where filled; age
    flat[0, :filled], flat[1, :filled], flat[2, :filled] = drift, 0, age
    cells = flat.reshape(3, rows, width)
    gap = 0.5 if size <= 4096 else 0  # cells of a long queue are too small for one
    grid = {"x": np.arange(width), "y": np.arange(rows), "xgap": gap, "ygap": gap}
    figure = go.Figure()
    figure.add_heatmap(
        z=cells[1],
        **grid,
        colorscale=[[0, GUIDE], [1, GUIDE]],
        showscale=False,
        opacity=0.35,
        customdata=cells[2],
        hovertemplate="age %{customdata} steps, drift not measured<extra></extra>",
        hoverongaps=False,
    )
    figure.add_heatmap(
        z=cells[0],
        **grid,
        customdata=cells[2],
        colorscale="Cividis",
        zmin=0,
        colorbar={"title": {"text": "drift"}, "thickness": 12, "exponentformat": "power"},
        hovertemplate="drift %{z:.5f}<br>age %{customdata} steps<extra></extra>",
        hoverongaps=False,
    )
    if len(marked):
        figure.add_scattergl(
            x=marked % width,
            y=marked // width,
            mode="markers",
            marker={
                "symbol": "circle-open" if size <= 4096 else "circle",
                "size": 7 if size <= 4096 else 2.5,
                "color": "#d55e00",
                "line": {"width": 1.5, "color": "#d55e00"},
            },
            name="false negative",
            hoverinfo="skip",
        )
    _framed(figure, x="slot within a row, oldest first", y="row", height=max(190, min(560, 110 + 14 * rows)))
    figure.update_yaxes(autorange="reversed", showgrid=False, dtick=max(1, rows // 8), zeroline=False)
    figure.update_xaxes(showgrid=False, zeroline=False)
    return figure


@built_once
def k_star_by_step(series: Sequence[Sequence[Drift]]) -> go.Figure:
    """K* at each snapshot, one line a run; filled slots, the most it can be, dotted."""
    figure = _by_step(series, lambda drift: float(drift.k_star), "K* %{y:,} slots")
    for drifts in filter(None, series):
        figure.add_scatter(
            x=[drift.step for drift in drifts],
            y=[drift.filled for drift in drifts],
            mode="lines",
            line={"color": series_colour(drifts[0].place), "dash": "dot", "width": 1},
            hovertemplate="%{y:,} slots filled<extra></extra>",
            legendgroup=str(drifts[0].place),
            showlegend=False,
        )
    return _framed(figure, x="step", y="consistent length K* (slots)")


@built_once
def oldest_drift_by_step(series: Sequence[Sequence[Drift]]) -> go.Figure:
    """Drift of the oldest slots at each snapshot, divided by the spread of the keys then."""
    figure = _by_step(series, lambda drift: drift.oldest_relative, "drift %{y:.4f}")
    _framed(figure, x="step", y="oldest slots' drift ÷ spread")
    figure.update_yaxes(type="log")
    return figure


@built_once
def gradient_cosine_by_eviction(drift: Drift) -> go.Figure:
    """The counterfactual: gradient cosine of what each eviction policy would have kept."""
    figure = go.Figure()
    for index, (policy, curve) in enumerate(drift.evictions.items()):
        figure.add_scatter(
            x=drift.kept,
            y=curve,
            mode="lines+markers",
            name=POLICY_NAMES[policy],
            line={"color": series_colour(index), "width": 2},
            marker={"symbol": series_symbol(index), "size": 7},
            hovertemplate="%{x:,} kept<br>cosine %{y:.4f}",
        )
    figure.add_hline(CONSISTENT, line={"color": GUIDE, "dash": "dash", "width": 1.5})
    _framed(figure, x="slots kept", y="gradient cosine, stale to fresh")
    figure.update_xaxes(type="log", exponentformat="none", dtick=1)
    return figure


def _framed(figure: go.Figure, *, x: str, y: str, height: int = 360) -> go.Figure:
    """The common layout, with small numbers as powers of ten."""
    frame.framed(figure, x=x, y=y, height=height)
    figure.update_yaxes(exponentformat="power")
    return figure


def _line(
    figure: go.Figure,
    drift: Drift,
    x: Array,
    y: Array,
    *,
    hover: str,
    customdata: Array | None = None,
) -> None:
    figure.add_scatter(
        x=x,
        y=y,
        customdata=customdata,
        mode="lines+markers" if len(x) < 60 else "lines",
        name=plain_html(drift.name),
        legendgroup=str(drift.place),
        line={"color": series_colour(drift.place), "width": 2},
        marker={"symbol": series_symbol(drift.place), "size": 6},
        hovertemplate=hover,
    )


def _band(figure: go.Figure, drift: Drift, profile: AgeProfile, hover: str) -> None:
    """Mean line over a 10–90% band."""
    figure.add_scatter(
        x=np.concatenate([profile.age, profile.age[::-1]]),
        y=np.concatenate([profile.high, profile.low[::-1]]),
        fill="toself",
        fillcolor=series_colour(drift.place),
        opacity=0.18,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        legendgroup=str(drift.place),
        showlegend=False,
        name=f"{plain_html(drift.name)}, 10–90%",
    )
    _line(figure, drift, profile.age, profile.mean, hover=f"age %{{x:.0f}}<br>{hover}")


def _above_zero(profile: AgeProfile) -> AgeProfile:
    """The groups that a log axis can show."""
    shown = profile.low > 0
    return AgeProfile(*(getattr(profile, field.name)[shown] for field in fields(profile)))


def _by_step(series: Sequence[Sequence[Drift]], value: Callable[[Drift], float], hover: str) -> go.Figure:
    figure = go.Figure()
    for drifts in filter(None, series):
        place, steps = drifts[0].place, np.array([drift.step for drift in drifts])
        figure.add_scatter(
            x=steps,
            y=[value(drift) for drift in drifts],
            mode="lines+markers",
            name=plain_html(drifts[0].name),
            legendgroup=str(place),
            line={"color": series_colour(place), "width": 2},
            marker={"symbol": series_symbol(place), "size": 7},
            hovertemplate=f"step %{{x}}<br>{hover}",
        )
    return figure


def _strip_width(size: int) -> int:
    """Slots a row: a power of two that makes the strip about eight times as wide as high, a pixel a slot at least."""
    return min(size, 512, max(64, 2 ** math.ceil(math.log2(math.sqrt(8 * size)))))
