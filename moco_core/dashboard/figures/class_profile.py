"""Alignment and tolerance of each class, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moco_core.dashboard.figures.frame import GUIDE, built_once, framed
from moco_core.dashboard.palette import series_colour
from moco_core.dashboard.text import plain_html, tick_html

SHOWN = 40


def shown_classes(values: np.ndarray, shown: int = SHOWN) -> np.ndarray:
    """Class indices by ascending value (C), not-a-number last; beyond `shown`, the two ends of those that have one."""
    order = np.argsort(values, kind="stable")  # numpy sorts not-a-number to the end
    if len(order) <= shown:
        return order
    known = order[: np.count_nonzero(~np.isnan(values))]
    if len(known) <= shown:
        return known
    return np.concatenate([known[: shown // 2], known[len(known) - shown // 2 :]])


@built_once
def class_profile(names: Sequence[str], alignment: np.ndarray | None, tolerance: np.ndarray) -> go.Figure:
    """One row a class, sorted by tolerance (C values each; alignment None when there is no second view).

    Not-a-number, as for the tolerance of a class with one sample, leaves its row empty. Beyond `SHOWN`
    classes only the two ends are drawn.
    """
    rows = shown_classes(np.asarray(tolerance, float))
    labels = [plain_html(names[row]) for row in rows]
    panels = [("tolerance", "cosine in the class", tolerance)]
    if alignment is not None:
        panels.append(("alignment", "‖x − y‖² of views", alignment))
    figure = make_subplots(rows=1, cols=len(panels), shared_yaxes=True, horizontal_spacing=0.03)
    for column, (name, _, values) in enumerate(panels, start=1):
        values = np.asarray(values, float)
        figure.add_scatter(
            x=values[rows],
            y=np.arange(len(rows)),
            customdata=labels,
            mode="markers",
            name=name,
            marker={
                "color": series_colour(column - 1),
                "size": 9,
                "symbol": ("circle", "diamond")[column - 1],
            },
            hovertemplate="%{customdata}: %{x:.3f}",
            row=1,
            col=column,
        )
        if np.isfinite(values).any():
            figure.add_vline(
                float(np.nanmean(values)), line={"color": GUIDE, "dash": "dash"}, row=1, col=column
            )
    framed(figure, x="", y="", height=155 + 18 * len(rows))
    for column, (name, unit, _) in enumerate(panels, start=1):
        figure.update_xaxes(title_text=f"{name}<br>{unit}", row=1, col=column)
    ticks = [tick_html(names[row]) for row in rows]
    figure.update_yaxes(tickvals=np.arange(len(rows)), ticktext=ticks)
    figure.update_yaxes(title_text="class", row=1, col=1)
    figure.update_layout(showlegend=False, margin_t=10)
    return figure
