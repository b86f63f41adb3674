"""The evaluation images of a run with D = 3 on the sphere."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from moco_core.dashboard import loaders, sphere_view
from moco_core.dashboard.sprite import Sprite, sprite
from moco_core.dashboard.text import plain
from moco_core.dashboard.widgets import nothing, problem
from moco_core.runs import Checkpoint, Run

DIM = 3


def on_the_sphere(runs: Iterable[Run]) -> list[Run]:
    """Those that can be read and whose embeddings have three numbers."""
    return [run for run in runs if run.problem is None and run.config.dim == DIM]


def draw_run(run: Run, checkpoint: Checkpoint, *, key: str, height: int = 520) -> None:
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
        thumbnails=_sprite(str(run.path), str(run.info.get("eval_set_sha256")), run),
        summary=f"{len(query)} images of {run.name} at step {checkpoint.step} on the unit sphere.",
        camera=f"run {run.id}",
        height=height,
        key=key,
    )


def live_run(run: Run, *, key: str) -> None:
    """The newest step of a run, or what it is waiting for; sentences instead of errors."""
    if not run.steps:
        return nothing(waiting(run))
    newest = run.steps[-1]
    try:
        draw_run(run, newest, key=key)
    except ValueError as error:
        return problem(error)
    st.caption(
        f"Step {newest.step} of {run.status.total_steps}, {plain(run.status.state)}: {len(run.eval_set)} held-out "
        "images, each a dot in the colour of its class, which training never sees. Hover to look at one."
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
    return [
        f"{images.name_of(int(label))} #{sample}"
        for label, sample in zip(images.labels, images.sample_ids, strict=True)
    ]


@st.cache_resource(max_entries=4, show_spinner=False)
def _sprite(folder: str, checksum: str, _run: Run) -> Sprite:
    return sprite(loaders.eval_set(_run).thumbnails)
