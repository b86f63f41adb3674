"""What all charts share: margins, axis titles, a legend above, colours that hold on light and on dark."""

from __future__ import annotations

import pickle

import plotly.graph_objects as go
import streamlit as st

from moco_core.dashboard.palette import NEUTRAL
from moco_core.dashboard.text import lines_html

LONGEST_TITLE = 39  # letters of a line below a chart: a phone has room for no more
GUIDE = NEUTRAL  # reference lines and their arrows

# A figure of the same content is built once, as plotly checks every property of it. It is shared: leave it as it is.
built_once = st.cache_resource(
    max_entries=128, show_spinner=False, hash_funcs={list: pickle.dumps, tuple: pickle.dumps}
)


def framed(figure: go.Figure, *, x: str, y: str, height: int = 360) -> go.Figure:
    """`figure` with its axis titles, height in pixels and the common layout.

    Its margins are those that most figures need: plotly.js makes room where they don't suffice, but draws all axes
    twice for that.
    """
    title = lines_html(x, LONGEST_TITLE)
    figure.update_layout(
        height=height,
        margin={"l": 68, "r": 16, "t": 40, "b": 54 + 17 * title.count("<br>")},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.08, "x": 0},
        hovermode="closest",
    )
    figure.update_xaxes(title_text=title, automargin=True)
    figure.update_yaxes(title_text=y, automargin=True)
    return figure


def in_two_lines(title: str) -> str:
    """A long title broken at the space nearest to its middle: four charts stand side by side, in narrow windows too."""
    spaces = [i for i, character in enumerate(title) if character == " " and len(title) > 14]
    if not spaces:
        return title
    at = min(spaces, key=lambda i: abs(i - len(title) / 2))
    return f"{title[:at]}<br>{title[at + 1 :]}"
