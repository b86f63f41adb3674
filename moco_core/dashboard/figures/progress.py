"""A run while it trains, small enough for the sidebar: the loss above, the two cosines below."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from moco_core.dashboard.figures.frame import GUIDE, framed
from moco_core.dashboard.figures.thinned import thinned
from moco_core.dashboard.palette import series_colour

LOSS, POSITIVE, NEGATIVE = series_colour(0), series_colour(2), series_colour(1)


def progress_chart(
    step: np.ndarray,
    loss: np.ndarray,
    positive_cosine: np.ndarray,
    negative_cosine: np.ndarray,
    *,
    chance: float,
    floor: float,
) -> go.Figure:
    """Loss (nats) with the chance and floor lines; positive and mean negative cosine; all against the step."""
    step, loss, positive_cosine, negative_cosine = map(
        thinned, (step, loss, positive_cosine, negative_cosine)
    )
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08, row_heights=(0.6, 0.4))
    figure.add_scatter(x=step, y=loss, name="loss", line={"color": LOSS, "width": 2}, row=1, col=1)
    for name, value, dash in (("chance", chance, "dash"), ("floor", floor, "dot")):
        figure.add_scatter(
            x=[step[0], step[-1]],
            y=[value, value],
            name=name,
            mode="lines+text",
            text=["", name],
            textposition="bottom left" if name == "chance" else "top left",
            textfont={"color": GUIDE, "size": 11},
            line={"color": GUIDE, "width": 1, "dash": dash},
            hoverinfo="skip",
            row=1,
            col=1,
        )
    for name, values, colour in (
        ("positive", positive_cosine, POSITIVE),
        ("mean negative", negative_cosine, NEGATIVE),
    ):
        figure.add_scatter(x=step, y=values, name=name, line={"color": colour, "width": 2}, row=2, col=1)
    figure.add_annotation(
        text=f'<span style="color:{POSITIVE}">━ positive</span>  <span style="color:{NEGATIVE}">━ mean negative</span>',
        **{"x": 0, "xref": "x2 domain", "xanchor": "left", "y": 1, "yref": "y2 domain", "yanchor": "bottom"},
        font={"size": 11},
        showarrow=False,
    )
    # Negatives may lie opposite for a while.
    lowest = float(np.nanmin([-0.2, *positive_cosine, *negative_cosine]))
    framed(figure, x="", y="", height=300)
    figure.update_layout(showlegend=False, margin={"l": 4, "r": 4, "t": 8, "b": 4}, hovermode="x")
    figure.update_yaxes(title_text="loss, nats", row=1, col=1)
    figure.update_yaxes(title_text="cosine", range=(lowest - 0.05, 1.05), row=2, col=1)
    figure.update_xaxes(title_text="step", row=2, col=1)
    return figure
