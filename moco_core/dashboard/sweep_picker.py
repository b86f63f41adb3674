"""A choice among sweeps, for people who don't want to pick their runs one by one."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from moco_core.dashboard.selection import choose_runs
from moco_core.runs import Run

KEY = "_sweep"


def sweep_picker(runs: Sequence[Run]) -> None:
    """A select box over the sweeps among `runs`; choosing one makes its runs those that the page shows."""
    tags: dict[str, list[Run]] = {}
    for run in runs:
        if run.sweep and run.problem is None:
            tags.setdefault(run.sweep, []).append(run)
    if not tags:
        return

    def take() -> None:
        tag = st.session_state[KEY]
        if tag in tags:
            choose_runs([run.id for run in tags[tag]])

    st.selectbox(
        "Show a sweep",
        list(tags),
        index=None,
        format_func=lambda tag: f"{tag} ({tags[tag][0].config.dataset}, {len(tags[tag])} runs)",
        placeholder="or choose runs below",
        key=KEY,
        on_change=take,
    )
