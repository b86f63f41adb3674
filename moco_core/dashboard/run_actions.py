"""What can be done with selected runs: open, rename, stop, go on, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import streamlit as st

from moco_core import jobs
from moco_core.config import ConfigError
from moco_core.dashboard.runs_table import trouble
from moco_core.dashboard.selection import RUN, forget_runs, labels, store
from moco_core.dashboard.text import plain
from moco_core.jobs import JobError
from moco_core.runs import Run, RunError, RunWriter
from moco_core.runs.files import reason

LONGEST_NAME = 100
MOST_TROUBLES = 4  # sentences in the box above the buttons


def run_actions(runs: Sequence[Run], shown: Sequence[Run]) -> None:
    """What is wrong with the selected runs and buttons for them; when there are none, with those that are `shown`."""
    _troubles(runs or shown)
    if not runs:
        st.caption(
            "Select rows by their left edge: one to open or rename it, two to compare them, any to delete them."
        )
        return
    for run in runs:
        for sentence in _warnings(run):
            st.caption(f":material/info: {plain(run.name)}: {plain(sentence)}")
    with st.container(horizontal=True, vertical_alignment="center"):
        readable = [run for run in runs if run.problem is None]
        if len(runs) == len(readable) == 1:
            _one(runs[0])
        if len(runs) == len(readable) == 2:
            _two(*runs)
        active = [run for run in readable if run.status.active]
        if active:
            _button("Stop", ":material/stop_circle:", active, jobs.stop)
        idle = [run for run in readable if run.status.state in ("stopped", "failed")]
        if idle:
            _button("Go on", ":material/play_circle:", idle, jobs.resume)
        _delete(runs)


def _troubles(runs: Sequence[Run]) -> None:
    """One box for all runs that have failed or are damaged: as a column, their sentences would widen the table."""
    troubles = {run.id: sentence for run in runs if (sentence := trouble(run))}
    names = labels(list(store())) if troubles else {}
    said = [f"{plain(names[run_id])}: {plain(sentence)}." for run_id, sentence in troubles.items()]
    if len(said) > MOST_TROUBLES:
        more = len(said) - MOST_TROUBLES
        said[MOST_TROUBLES:] = [
            f"{more} more with ✕ or ⚠ in the table: select one to read what is wrong with it."
        ]
    if said:
        st.warning("  \n".join(said), icon=":material/warning:")


def _warnings(run: Run) -> list[str]:
    """What was said when the run began, or when its vectors were imported."""
    said = (run.info.get("warnings"), run.facts("source").get("said"))
    lists = [sentences for sentences in said if isinstance(sentences, list) and run.problem is None]
    return [sentence for sentences in lists for sentence in sentences if isinstance(sentence, str)]


def _one(run: Run) -> None:
    st.page_link(
        "pages/projection.py", label="Open", icon=":material/scatter_plot:", query_params={RUN: run.id}
    )
    with st.popover("Rename", icon=":material/edit:"), st.form(f"rename-{run.id}", border=False):
        name = st.text_input("New name", value=run.name, max_chars=LONGEST_NAME)
        if st.form_submit_button("Rename") and name.strip() and name.strip() != run.name:
            _attempt(lambda root, run_id: RunWriter(root / run_id).describe(name=name.strip()), [run.id])
            st.rerun(scope="app")


def _two(a: Run, b: Run) -> None:
    st.page_link(
        "pages/compare.py",
        label="Compare",
        icon=":material/compare:",
        query_params={"a": a.id, "b": b.id},
    )


def _button(label: str, icon: str, runs: Sequence[Run], act: Callable[[Path, str], None]) -> None:
    ids = [run.id for run in runs]
    st.button(label, icon=icon, key=f"{label}-{'/'.join(ids)}", on_click=_attempt, args=(act, ids))


def _delete(runs: Sequence[Run]) -> None:
    ids = [run.id for run in runs]
    with st.popover("Delete", icon=":material/delete:"):
        names = ", ".join(f"**{plain(run.name)}**" for run in runs)
        st.write(f"Delete {names} with all snapshots? This can't be undone.")
        label = "Delete for good" if len(ids) == 1 else f"Delete {len(ids)} runs for good"
        if st.button(label, type="primary", key=f"delete-{'/'.join(ids)}"):
            _attempt(jobs.delete, ids)
            forget_runs(set(ids) - {run.id for run in store()})
            st.rerun(scope="app")


def _attempt(act: Callable[[Path, str], None], ids: Sequence[str]) -> None:
    """Do something to each run; say in a sentence what can't be done."""
    for run_id in ids:
        try:
            act(store().root, run_id)
        except (JobError, RunError, ConfigError, OSError) as error:
            st.toast(plain(reason(error)), icon=":material/error:")
