"""The sidebar's way to train: settings, how long it will take, what to beware of, and a start."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from moco_core import jobs
from moco_core.caveats import caveats
from moco_core.config import FOLDER_PREFIX, ConfigError, TrainConfig, accepted
from moco_core.dashboard.selection import choose_run, choose_runs, store
from moco_core.dashboard.text import duration, plain
from moco_core.dashboard.training_form import training_form
from moco_core.dashboard.training_place import training_place
from moco_core.dashboard.training_progress import look_after, training_progress
from moco_core.jobs import JobError
from moco_core.jobs.estimate import estimate
from moco_core.jobs.local import Queue
from moco_core.jobs.training_images import training_images
from moco_core.runs import Run
from moco_core.runs.files import reason

OPENED = "train_opened"
STARTED = "_started"


def training_panel() -> None:
    """Progress of what trains now, and below it the form for the next run."""
    _on_first_look(os.fsencode(store().root))
    _say_started()
    training_progress()
    _panel()


@st.fragment
def _panel() -> None:
    """A fragment of its own: typing in the form does not redraw the page."""
    st.session_state.setdefault(OPENED, not len(store()))
    with st.expander("Train", key=OPENED, icon=":material/play_circle:", on_change="rerun") as panel:
        if panel.open:  # closed, its dozens of fields would cost every page half a second
            _form()


def _form() -> None:
    config = _config(training_form())
    runs = list(store())
    queue = training_place()
    if config is not None:
        _outlook(config, runs, here=queue is jobs.queue)
    ready = config is not None and queue is not None
    starting = st.button("Start", type="primary", width="stretch", disabled=not ready)
    sweeping = st.button(
        "Momentum sweep",
        width="stretch",
        disabled=not ready or config is None or config.method != "moco",
        help="Four runs, one after another, at m = 0, 0.9, 0.99 and 0.999; all else as above. Needs moco.",
    )
    if (starting or sweeping) and config is not None and queue is not None:
        _begin(config, queue, sweep=sweeping)


def _config(values: dict[str, Any]) -> TrainConfig | None:
    """The config of the values entered; None, with a sentence, when one can't be used."""
    empty = [name for name, value in values.items() if value is None]
    try:
        if empty:
            raise ConfigError(f"{empty[0]} needs a number, {accepted(empty[0])}")
        return TrainConfig(**values)
    except ConfigError as error:
        st.error(plain(str(error)))
        return None


def _outlook(config: TrainConfig, runs: Sequence[Run], *, here: bool) -> None:
    if here:  # nothing is known of the nodes
        expected = estimate(config, runs)
        st.caption(f"Estimated time: about **{duration(expected.seconds)}** ({expected.source}).")
        folder = config.dataset.removeprefix(FOLDER_PREFIX)
        if folder != config.dataset and not os.path.isdir(folder):
            st.warning(f"There is no folder {plain(folder)} on this machine: training here would fail.")
    for sentence in caveats(config, training_images(config.dataset, runs)):
        st.warning(sentence)


def _begin(config: TrainConfig, queue: Queue, *, sweep: bool) -> None:
    root = store().root
    try:
        started = jobs.submit_sweep(config, root, queue=queue) if sweep else queue([config], root, "")
    except (ConfigError, JobError, OSError) as error:
        st.error(f"This run can't be started: {plain(reason(error))}")
        return
    choose_run(started[0])
    choose_runs(started if sweep else [])
    st.session_state[STARTED] = started
    st.rerun(scope="app")


def _say_started() -> None:
    """Whoever pressed Start has scrolled past the place where progress appears."""
    started = st.session_state.pop(STARTED, [])
    names = [run.name for run in store() if run.id in started] if started else []
    if names:
        what = plain(names[0]) if len(names) == 1 else f"{len(names)} runs"
        st.toast(f"Started {what}; progress is at the top of the sidebar.", icon=":material/play_circle:")


@st.cache_resource
def _on_first_look(root: bytes) -> None:
    """Once since the app started: find runs again, record the ends of others."""
    look_after(Path(os.fsdecode(root)), list(store()))
