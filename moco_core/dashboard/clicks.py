"""Whether what someone clicked in a chart is news."""

from __future__ import annotations

from typing import Any

import streamlit as st


def news(key: str, value: Any) -> bool:
    """Whether `value` is there and differs from the last one seen under `key`.

    A chart keeps its selection, so an old click comes back with every rerun and must not undo what was
    chosen since.
    """
    known = st.session_state.get(key)
    if value is None:
        return False  # of another figure, to which the chart may return
    st.session_state[key] = value
    return bool(value != known)
