"""Any unit vectors in 3-D as points on a sphere that can be turned: a small canvas component of our own.

Drawing, turning and gliding between two states happen in the browser (sphere_view.js, which fetches
nothing); Python says where the points are.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from moco_core.analysis.checks import as_rows
from moco_core.dashboard.palette import class_colour
from moco_core.dashboard.sprite import Sprite

# A shape each: disc with the class's letter, diamond, triangle, dot.
KINDS = ("query", "key", "queue", "sample")
HELP = "Arrow keys turn it, plus and minus zoom, zero goes back to the first view."

_HTML = """
<div class="sphere">
  <canvas tabindex="0" role="img"></canvas>
  <div class="tip" role="status" hidden><div class="picture"></div><span class="what"></span></div>
  <p class="unavailable" hidden>This browser gives no canvas to draw on, so the sphere can't be shown here.
    Everything beside it goes on working.</p>
  <div class="legend"></div>
</div>
"""

_CSS = """
.sphere { position: relative; font-family: var(--st-font); color: var(--st-text-color); }
canvas { display: block; width: 100%; height: var(--height); cursor: grab; touch-action: none; border-radius: 8px; }
canvas[hidden], .tip[hidden], .unavailable[hidden], .picture[hidden] { display: none; }
canvas:active { cursor: grabbing; }
canvas:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: -2px; }
.tip { position: absolute; pointer-events: none; padding: 4px 8px; font-size: 13px; border-radius: 4px;
  background: var(--st-background-color); border: 1px solid var(--st-border-color); max-width: 16em; }
.picture { background-repeat: no-repeat; image-rendering: pixelated; margin: 2px auto 4px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; justify-content: center; font-size: 13px; margin-top: 6px; }
.legend span { display: inline-flex; align-items: center; gap: 4px; }
.legend canvas { width: 14px; height: 14px; cursor: auto; }
"""

_component = st.components.v2.component(
    "moco_sphere", html=_HTML, css=_CSS, js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Arrow:
    """A vector (3) at the point in row `row`; on screen its length grows with the root of its length."""

    row: int
    vector: np.ndarray
    label: str
    dashed: bool = False


def draw(
    points: np.ndarray,
    classes: np.ndarray,
    kinds: str | Sequence[str],
    *,
    class_names: Sequence[str],
    summary: str,
    key: str,
    ids: np.ndarray | None = None,
    ages: np.ndarray | None = None,
    oldest: int = 1,
    names: Sequence[str] | None = None,
    thumbnails: Sprite | None = None,
    arrows: Sequence[Arrow] = (),
    camera: str = "sphere",
    height: int = 460,
) -> None:
    """Draw `points` (N×3, N ≥ 1, scaled to unit length) with their `classes` (N; negative: none known).

    `kinds` is one of KINDS for all, or one a point. Points with the same id (N whole numbers; the row
    number unless given) in two successive calls glide from the old place to the new. `ages` (N; negative:
    none) fade points out towards `oldest`. Hovering shows `names` (N), or else kind, class and age, and the
    point's tile in `thumbnails`. Spheres with the same `camera` turn together. `summary` says what is drawn
    to those who can't see it; `height` is in pixels. Raises `ValueError` for other shapes and values.
    """
    data = payload(points, classes, kinds, class_names, ids, ages, oldest, names, thumbnails, arrows)
    _component(data={**data, "summary": f"{summary} {HELP}", "camera": camera, "height": height}, key=key)


def payload(
    points: np.ndarray,
    classes: np.ndarray,
    kinds: str | Sequence[str],
    class_names: Sequence[str],
    ids: np.ndarray | None = None,
    ages: np.ndarray | None = None,
    oldest: int = 1,
    names: Sequence[str] | None = None,
    thumbnails: Sprite | None = None,
    arrows: Sequence[Arrow] = (),
) -> dict[str, Any]:
    """What the browser is sent: columns as base64 of little-endian 4-byte numbers, the rest as JSON."""
    rows = as_rows(points, "points", unit=True, minimum=1)
    if rows.shape[1] != 3:
        raise ValueError(f"points must be N×3, got {rows.shape[1]} columns")
    count = len(rows)
    kinds = [kinds] * count if isinstance(kinds, str) else list(kinds)
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"kinds must be among {', '.join(KINDS)}; got {kind!r}")
    ids = np.arange(count) if ids is None else ids
    columns: dict[str, Any] = {"classes": classes, "kinds": kinds, "ids": ids, "ages": ages, "names": names}
    for name, column in columns.items():
        if column is not None and len(column) != count:
            raise ValueError(f"{name} must have one entry for each of the {count} points, got {len(column)}")
    return {
        "points": _base64(rows, "<f4"),
        "classes": _base64(classes, "<i4"),
        "kinds": _base64([KINDS.index(kind) for kind in kinds], "<i4"),
        "kind_names": list(KINDS),
        "ids": _base64(ids, "<i4"),
        "ages": None if ages is None else _base64(ages, "<i4"),
        "oldest": max(int(oldest), 1),
        "names": None if names is None else list(names),
        "class_names": list(class_names),
        "colours": [class_colour(label) for label in range(len(class_names))],
        "unknown": class_colour(-1),
        "sprite": None if thumbnails is None else _sprite(thumbnails),
        "arrows": [{**asdict(arrow), "vector": [float(x) for x in arrow.vector]} for arrow in arrows],
    }


def _sprite(thumbnails: Sprite) -> dict[str, Any]:
    uri = f"data:{thumbnails.mime};base64,{base64.b64encode(thumbnails.data).decode()}"
    return {"uri": uri, "side": thumbnails.side, "across": thumbnails.across}


def _base64(column: Any, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(column, dtype=kind).tobytes()).decode()
