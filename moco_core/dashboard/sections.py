"""A part of a page that stands or falls alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from moco_core.dashboard.text import plain
from moco_core.dashboard.widgets import nothing, problem
from moco_core.runs import RunError


@contextmanager
def section(title: str = "") -> Iterator[None]:
    """A heading, if any, and what follows it. What can't be read or answered becomes a sentence in its place."""
    if title:
        st.subheader(title)
    try:
        yield
    except RunError as error:
        problem(error)
    except ValueError as error:
        nothing(f"Nothing to show: {plain(str(error))}.")
