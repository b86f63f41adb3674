"""Line charts for what changes while it is watched: drawn again in place, in a few milliseconds.

A Plotly chart is built anew whenever its data change, which takes the frames that the sphere needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

_HTML = """
<div class="curves">
  <canvas role="img"></canvas>
  <div class="tip" hidden></div>
  <p class="unavailable" hidden>This browser gives no canvas to draw on, so the curves can't be shown here;
    their data can be downloaded.</p>
</div>
"""

_CSS = """
.curves { position: relative; font-family: var(--st-font); color: var(--st-text-color); }
canvas { display: block; width: 100%; height: var(--height); }
canvas[hidden], .tip[hidden], .unavailable[hidden] { display: none; }
.tip { position: absolute; pointer-events: none; padding: 4px 8px; font-size: 13px; border-radius: 4px;
  background: var(--st-background-color); border: 1px solid var(--st-border-color); white-space: nowrap; }
"""

_component = st.components.v2.component(
    "moco_curves", html=_HTML, css=_CSS, js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Line:
    """One curve: `y` (n finite numbers) over `x` (n, ascending, n ≥ 1)."""

    label: str
    x: np.ndarray
    y: np.ndarray
    colour: str
    dotted: bool = False


@dataclass(frozen=True)
class Mark:
    """A level to compare with, drawn dashed."""

    label: str
    value: float


@dataclass(frozen=True)
class Panel:
    """One chart: its y title with the unit, curves, levels, and the range of y (what is drawn, when None)."""

    title: str
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()
    range: tuple[float, float] | None = None


def draw(panels: Sequence[Panel], *, x_title: str, summary: str, key: str, height: int = 290) -> None:
    """Panels over a common x, side by side; `summary` says what they show to those who can't see them."""
    _component(
        data={
            "panels": [_plain(panel) for panel in panels],
            "x_title": x_title,
            "summary": summary,
            "height": height,
        },
        key=key,
    )


def _plain(panel: Panel) -> dict[str, Any]:
    lines = [
        {**asdict(line), "x": np.asarray(line.x).tolist(), "y": np.round(line.y, 5).tolist()}
        for line in panel.lines
    ]
    return {
        "title": panel.title,
        "lines": lines,
        "marks": [asdict(m) for m in panel.marks],
        "range": panel.range,
    }
