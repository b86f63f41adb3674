"""Singular values of an embedding's covariance, with its effective rank (Jing 2022; RankMe, Garrido 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.frame import built_once, framed
from moco_core.dashboard.palette import series_colour
from moco_core.dashboard.text import plain_html


@dataclass(frozen=True)
class Spectrum:
    """One layer: natural logs of the singular values of its covariance, largest first, and its effective rank."""

    name: str
    log_values: np.ndarray  # D
    effective_rank: float


@built_once
def spectrum_chart(spectra: Sequence[Spectrum]) -> go.Figure:
    """Log singular values against their index; a dotted line at each effective rank."""
    figure = go.Figure()
    for number, spectrum in enumerate(spectra):
        dims = len(spectrum.log_values)
        colour = series_colour(number)
        figure.add_scatter(
            x=np.arange(1, dims + 1),
            y=spectrum.log_values,
            mode="lines+markers" if dims <= 32 else "lines",
            name=f"{plain_html(spectrum.name)}, {dims} dimensions<br>"
            f"dotted: effective rank {spectrum.effective_rank:.1f}",
            line={"color": colour, "dash": _DASHES[number % len(_DASHES)], "width": 2},
            hovertemplate="value %{x}: ln σ = %{y:.2f}",
        )
        figure.add_vline(spectrum.effective_rank, line={"color": colour, "dash": "dot", "width": 1.5})
    framed(figure, x="index of the singular value", y="ln singular value of the covariance", height=400)
    return figure


_DASHES = ("solid", "dash", "dashdot", "longdash")
