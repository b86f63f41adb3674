"""The explorer: scatter plots of samples with thumbnails, lasso and linked panes, drawn by plotly.js.

A component of our own, because `st.plotly_chart` forgets selection and camera at each new figure. Positions,
colours and thumbnails travel in messages of their own: a new colouring moves only the colours.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from moco_core.dashboard.first_picture import first_picture
from moco_core.dashboard.packs import Pack, pack
from moco_core.dashboard.points import Pane, Points
from moco_core.dashboard.sprite import NO_SPRITE, sprite
from moco_core.dashboard.widgets import file_name
from moco_core.runs import EvalSet
from moco_core.runs.schema import packed_names

Array = np.ndarray

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Picked:
    """What someone did in the explorer."""

    rows: Array  # rows of the evaluation set inside the last lasso or box, ascending; empty without one
    row: int | None  # row of the sample clicked last


def explorer(
    key: str,
    panes: Sequence[Pane],
    images: EvalSet,
    images_id: str,
    *,
    frame: int = 0,
    view: str = "",
    caption: str = "",
    rings: Iterable[int] = (),
    links: Iterable[tuple[int, int]] = (),
    height: int = 620,
    on_frame: Callable[[int], None] | None = None,
) -> Picked:
    """Draw one pane, or two that share selection and hover, and say what was selected and clicked.

    `images_id` names the evaluation set by content: a selection made on another one is forgotten. Zoom and
    camera stay as long as `view` does. `rings` marks samples and `links` joins pairs of them, by row. `frame`
    is the one shown; the steps in between are drawn in the browser. `on_frame` is called, before the page runs
    again, with the index of the frame at which an animation was left. The legend is that of the first pane.
    """
    with st.container(gap=None):
        samples = _sample_pack(images_id, _images=images)
        shown = []
        for number, pane in enumerate(panes):
            points, colour = pane.points.packed, pane.colour.packed
            _columns(key=f"{key}_points{number}", data=points.data)
            _columns(key=f"{key}_colour{number}", data=colour.data)
            shown.append({"points": points.id, "colour": colour.id, "title": pane.title})
        spec = {
            "images": images_id,
            "samples": samples.id,
            "panes": shown,
            "frame": frame,
            "view": view,
            "rings": [int(row) for row in rings],
            "links": [[int(a), int(b)] for a, b in links],
            "height": height,
            "caption": caption,
            "file": file_name(f"{key} {caption}"),
        }

        def keep_frame() -> None:
            left = played_frame(_state(key).get("frame"), shown[0]["points"], panes[0].points)
            if on_frame is not None and left is not None:
                on_frame(left)

        with first_picture(key) as drawn_at:
            _view(
                key=key,
                data=spec | {"drawn_at": drawn_at},
                on_selected_change=_nothing,
                on_picked_change=_nothing,
                on_frame_change=keep_frame,
            )
        _columns(key=f"{key}_samples", data=samples.data)  # the largest message, which no picture waits for
    return picked(key, images_id, len(images))


def picked(key: str, images_id: str, count: int) -> Picked:
    """What someone has done so far in the explorer `key`: known before it is drawn, too."""
    state = _state(key)
    return Picked(
        selected_rows(state.get("selected"), images_id, count),
        picked_row(state.get("picked"), images_id, count),
    )


def selected_rows(event: object, images_id: str, count: int) -> Array:
    """Rows (ascending int64) that the browser's selection names: one bit a sample, lowest first, in base64.

    Empty for another evaluation set, and for anything that is no such message: it comes from outside.
    """
    nothing = np.zeros(0, np.int64)
    if not isinstance(event, Mapping) or event.get("images") != images_id:
        return nothing
    text = event.get("bits")
    if not isinstance(text, str):
        return nothing
    try:
        flags = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (binascii.Error, ValueError):
        return nothing
    if len(flags) != -(-count // 8):
        return nothing
    return np.flatnonzero(np.unpackbits(flags, bitorder="little")[:count])


def picked_row(event: object, images_id: str, count: int) -> int | None:
    """The row that was clicked, or None: as for `selected_rows`, only what makes sense is taken."""
    if not isinstance(event, Mapping) or event.get("images") != images_id:
        return None
    row = event.get("row")
    return row if isinstance(row, int) and not isinstance(row, bool) and 0 <= row < count else None


def played_frame(event: object, points_id: str, points: Points) -> int | None:
    """The frame at which an animation of these points was left, or None."""
    if not isinstance(event, Mapping) or event.get("points") != points_id:
        return None
    frame = event.get("frame")
    frames = len(points.frame_names)
    return frame if isinstance(frame, int) and not isinstance(frame, bool) and 0 <= frame < frames else None


@st.cache_resource(max_entries=8, show_spinner=False)
def _sample_pack(images_id: str, _images: EvalSet) -> Pack:
    """Thumbnails, labels, ids and names: what the browser says of a sample under the pointer."""
    sheet = sprite(_images.thumbnails) if _images.pictured else NO_SPRITE
    labels = np.where(_images.labels < 0, -1, _images.labels).astype(np.int32)
    ids = _images.sample_ids.astype(np.int64)
    called = np.zeros(0, np.uint8) if _images.names is None else packed_names(_images.names)
    return pack(
        {"sheet": np.frombuffer(sheet.data, np.uint8), "labels": labels, "ids": ids, "called": called},
        {
            "mime": sheet.mime,
            "side": sheet.side,
            "across": sheet.across,
            "names": list(_images.class_names),
            "of": images_id,
        },
    )


def _state(key: str) -> Mapping[str, Any]:
    state = st.session_state.get(key)
    return state if isinstance(state, Mapping) else {}


def _nothing() -> None:
    """Registers a state of the component; the page reads it as it runs again."""


_SCRIPTS = ("drawing", "explorer_pane", "explorer_graph", "explorer")
_columns = st.components.v2.component("moco_lens_columns", js=(_HERE / "columns.js").read_text())
_view = st.components.v2.component(
    "moco_lens_explorer",
    js="".join((_HERE / f"{name}.js").read_text("utf-8") for name in _SCRIPTS),
    css=(_HERE / "explorer.css").read_text(),
    isolate_styles=False,
)
