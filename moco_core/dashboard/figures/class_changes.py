"""Classes that improved and classes that got worse from A to B."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from moco_core.dashboard.figures.class_profile import shown_classes
from moco_core.dashboard.figures.frame import GUIDE, built_once, framed
from moco_core.dashboard.palette import series_colour
from moco_core.dashboard.text import plain_html, tick_html


@built_once
def class_changes(names: Sequence[str], a: np.ndarray, b: np.ndarray, counts: np.ndarray) -> go.Figure:
    """Change of the kNN accuracy of C classes, B − A in percentage points, the most improved on top.

    `a` and `b` lie in [0, 1], not-a-number where a class has no sample; `counts` are the samples of each.
    With many classes only the ends are drawn.
    """
    change = np.asarray(b, float) - np.asarray(a, float)
    rows = shown_classes(change)
    rows = rows[np.isfinite(change[rows])]
    labels = [plain_html(names[row]) for row in rows]
    up = change[rows] >= 0
    figure = go.Figure(
        go.Bar(
            x=100 * change[rows],
            y=np.arange(len(rows)),
            orientation="h",
            marker={
                "color": np.where(up, series_colour(1), series_colour(0)).tolist(),
                "pattern": {"shape": np.where(up, "", "/").tolist()},
            },
            customdata=[[labels[i], a[row], b[row], int(counts[row])] for i, row in enumerate(rows)],
            hovertemplate="%{customdata[0]} (%{customdata[3]} samples): "
            "%{customdata[1]:.1%} → %{customdata[2]:.1%}<extra></extra>",
        )
    )
    figure.add_vline(0, line={"color": GUIDE, "width": 1})
    framed(
        figure,
        x="change of kNN accuracy from A to B, percentage points (right: B better)",
        y="class",
        height=140 + 20 * len(rows),
    )
    ticks = [tick_html(names[row]) for row in rows]
    figure.update_yaxes(tickvals=np.arange(len(rows)), ticktext=ticks)
    figure.update_layout(margin_t=10)
    return figure
