"""What someone clicked in a chart, and whether it is news."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st


def clicked(event: Any) -> list[Any] | None:
    """The `customdata` of the point or bar chosen in a chart's event, or None when nothing is chosen.

    Indices that come with the event mix up traces; what a builder wrote into `customdata` does not.
    """
    selection = event.get("selection", {}) if isinstance(event, Mapping) else {}
    for point in selection.get("points", ()):
        data = point.get("customdata")
        if data is not None:
            return list(data.values()) if isinstance(data, Mapping) else list(data)
    return None


def news(key: str, value: Any) -> bool:
    """Whether `value` is there and differs from the last one seen under `key`.

    A chart keeps its selection, so an old click comes back with every rerun and must not undo what was
    chosen since.
    """
    known = st.session_state.get(key)
    st.session_state[key] = value
    return value is not None and value != known
