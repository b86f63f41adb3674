"""Plotly charts in a component of our own: drawn when they come into sight, redrawn in place.

`st.plotly_chart` builds all charts of a page at once before any is seen, and builds each anew whenever its data
change: zoom and hidden legend entries are lost, and a step takes as long as opening the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
import streamlit as st

from moco_core.dashboard.first_picture import first_picture

HEIGHT = 450  # pixels of a figure that names none
COLUMN = 115  # pixels that each of several charts side by side needs; a narrower page scrolls sideways

pio.templates.default = "none"  # the browser brings a template in the colours of the app's theme

_HERE = Path(__file__).parent


def draw_chart(
    figure: go.Figure,
    *,
    key: str,
    summary: str,
    file: str = "chart",
    clickable: bool = False,
    mode_bar: bool = True,
) -> list[Any] | None:
    """Draw `figure` in the app's colours; returns the `customdata` of the point or bar that was clicked last.

    `summary` is read to those who can't see the chart, `file` names the picture that the mode bar downloads. Only
    a `clickable` chart marks what is clicked and runs the page again.
    """
    with first_picture(key) as drawn_at:
        click = _view(
            key=key,
            data={
                "figure": _written(figure)[1],
                "height": figure.layout.height or HEIGHT,
                "width": COLUMN * len({axis.domain for axis in figure.select_xaxes()}),
                "summary": summary,
                "file": file,
                "clickable": clickable,
                "mode_bar": mode_bar,
                "drawn_at": drawn_at,
            },
            on_clicked_change=_nothing,
        ).clicked
    return click if _is_drawn(figure, click) else None


def _is_drawn(figure: go.Figure, click: object) -> bool:
    """Whether `click` is the `customdata` of something in the figure: it comes from outside, and who clicks while
    another figure is on its way has clicked in the one before."""
    rows = (row for trace in figure.data if trace.customdata is not None for row in trace.customdata)
    return isinstance(click, list) and any(list(row) == click for row in rows if np.ndim(row) == 1)


@st.cache_resource(max_entries=128, show_spinner=False, hash_funcs={go.Figure: id})
def _written(figure: go.Figure) -> tuple[go.Figure, str]:
    """`figure` as JSON, written once. It stays beside it, so that no other figure can come to have its id."""
    return figure, plain_json(figure)


def plain_json(figure: go.Figure) -> str:
    """The figure as JSON, without a template."""
    spec = figure.to_dict()
    spec["layout"].pop("template", None)
    return pio.to_json(spec, validate=False)


def _nothing() -> None:
    """Registers a state of the component; the page reads it as it runs again."""


_view = st.components.v2.component(
    "moco_lens_chart",
    js="".join((_HERE / f"{name}.js").read_text("utf-8") for name in ("drawing", "chart_view")),
    css=(_HERE / "chart_view.css").read_text(encoding="utf-8"),
    isolate_styles=False,
)
