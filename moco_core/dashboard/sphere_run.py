"""The evaluation images of a run with D = 3 on the sphere."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from moco_core.dashboard import loaders, sphere_view
from moco_core.dashboard.loaders import CONTENT
from moco_core.dashboard.selection import labels, store
from moco_core.dashboard.sprite import Sprite, sprite
from moco_core.dashboard.text import plain
from moco_core.dashboard.widgets import nothing, problem
from moco_core.runs import Checkpoint, Run

DIM = 3


def on_the_sphere(runs: Iterable[Run]) -> dict[str, str]:
    """Id → what to call it, of each run that can be read and whose embeddings have three numbers."""
    found = [run for run in runs if run.problem is None and run.config.dim == DIM]
    return labels(found)


def is_active(run_id: str) -> bool:
    """Whether the run waits or trains, so that there is more to come."""
    runs = store()
    return run_id in runs and runs[run_id].status.active


def draw_run(run: Run, checkpoint: Checkpoint, *, key: str) -> None:
    """Query embeddings of one step, coloured by class, thumbnails on hover.

    Raises `RunError` when they can't be read and `ValueError` when they don't have three numbers each.
    """
    images = loaders.eval_set(run)
    query = loaders.embeddings(run, checkpoint).query
    sphere_view.draw(
        query,
        images.labels,
        "sample",
        class_names=images.class_names,
        names=_names(run),
        thumbnails=_sprite(run),
        summary=f"{len(query)} samples of {run.name} at step {checkpoint.step} on the unit sphere.",
        camera=f"run {run.id}",
        height=520,
        key=key,
    )


def live_run(run_id: str, *, key: str) -> None:
    """The newest step of a run, or what it is waiting for; sentences instead of errors."""
    runs = store()
    if run_id not in runs:
        return nothing("This run is no longer there.")
    run = runs[run_id]
    if not run.steps:
        return nothing(waiting(run))
    newest = run.steps[-1]
    try:
        draw_run(run, newest, key=key)
    except ValueError as error:
        return problem(error)
    if run.config.imported:
        st.caption(f"{len(run.eval_set):,} imported vectors, a dot each, in the colour of its class.")
        return None
    st.caption(
        f"Step {newest.step} of {run.status.total_steps}, {plain(run.status.state)}: {len(run.eval_set)} held-out "
        "images, a dot each, in the colour of its class; training saw neither them nor any class. Hover to see one."
    )
    return None


def waiting(run: Run) -> str:
    """Why a run has no step to show."""
    name = plain(run.name)
    if run.status.state == "queued":
        return f"{name} waits for its turn; its first step appears here by itself."
    if run.status.active:
        return f"{name} is getting under way; its first step appears here by itself."
    reason = f": {plain(run.status.error)}" if run.status.error else ""
    return f"{name} is {run.status.state} and has no step to show{reason}."


def _names(run: Run) -> list[str]:
    images = loaders.eval_set(run)
    return [images.title(row) for row in range(len(images))]


@st.cache_resource(max_entries=4, show_spinner=False, hash_funcs=CONTENT)
def _sprite(run: Run) -> Sprite | None:
    images = loaders.eval_set(run)
    return sprite(images.thumbnails) if images.pictured else None
