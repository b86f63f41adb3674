"""The projection page's controls, all of them in the URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from moco_core.analysis.neighbors import K
from moco_core.dashboard import loaders
from moco_core.dashboard.projection_view import COLOURINGS, colourings
from moco_core.dashboard.widgets import one_of, seed_input
from moco_core.projections import ProjectionSettings
from moco_core.projections.compute import sweep_mates
from moco_core.runs import Checkpoint, Run

METHOD_NAMES = {"umap": "UMAP", "pca": "PCA"}
DIM_NAMES = {2: "2-D", 3: "3-D"}
ALIGNED_NAMES = {"no": "nothing", "steps": "other steps", "sweep": "its sweep"}
EXTRA_NAMES = {"keys": "Keys", "queue": "Queue"}


@dataclass(frozen=True)
class Wanted:
    """What the controls ask for."""

    settings: ProjectionSettings
    colour: str  # one of `COLOURINGS`
    k: int  # neighbours that vote, and by which density is measured
    search: str


def projection_controls(run: Run, checkpoint: Checkpoint) -> Wanted:
    """A row of controls, the finer ones behind a button. `RunError` when the run's arrays can't be read."""
    offered = colourings(run, checkpoint)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method = one_of("Picture", METHOD_NAMES, "method")
        dim = one_of(
            "Dimensions",
            DIM_NAMES,
            "dim",
            help="In 2-D, lasso and box select. In 3-D, drag to turn; click points and classes.",
        )
        colour = st.selectbox(
            "Colour",
            offered,
            format_func=COLOURINGS.__getitem__,
            key="colour",
            bind="query-params",
            width=170,
        )
        aligned = _aligned(run)
        extras = _extras(run, checkpoint, aligned)
        search = st.text_input(
            "Find",
            key="find",
            bind="query-params",
            placeholder="class, name or #id",
            help="What is found is ringed in red. Separate several by commas.",
            width=160,
        )
        with st.popover("More", icon=":material/tune:"):
            finer = _finer(run, checkpoint, method)
            k = st.slider(
                "Neighbours that vote, and measure density",
                1,
                100,
                K,
                key="k",
                bind="query-params",
            )
    if extras and finer["layer"] != "query":
        st.caption(
            "Keys and queue lie in the space of the query embeddings, so the features are shown alone."
        )
        extras = []
    settings = ProjectionSettings(
        method=method, dim=dim, aligned=aligned, keys="keys" in extras, queue="queue" in extras, **finer
    )
    return Wanted(settings, colour, k, search)


def _extras(run: Run, checkpoint: Checkpoint, aligned: str) -> list[str]:
    """What is projected together with the queries."""
    offered = []
    if loaders.embeddings(run, checkpoint).key is not None:
        offered.append("keys")
    queue = loaders.queue(checkpoint)
    if queue is not None and queue.filled:
        offered.append("queue")
    if not offered:
        return []
    chosen = st.pills(
        "Together with",
        offered,
        selection_mode="multi",
        format_func=EXTRA_NAMES.__getitem__,
        key="with",
        bind="query-params",
        disabled=aligned != "no",
        help="Query embeddings are always drawn. Keys are those of the same images by the key encoder; the queue's "
        "keys fade with age. All are projected together.",
    )
    return chosen if aligned == "no" else []


def _aligned(run: Run) -> str:
    """Which pictures are kept in line with one another."""
    offered = [
        "no",
        *(["steps"] if len(run.steps) > 1 else []),
        *(["sweep"] if len(sweep_mates(run)) > 1 else []),
    ]
    if len(offered) == 1:
        return "no"
    return st.selectbox(
        "In line with",
        offered,
        format_func=ALIGNED_NAMES.__getitem__,
        key="aligned",
        bind="query-params",
        width=150,
        help="Several pictures in which points stay where they were unless their neighbours changed: the run's "
        "steps, or the runs of its sweep at this step. They can be played. Queries or features alone.",
    )


def _finer(run: Run, checkpoint: Checkpoint, method: str) -> dict[str, Any]:
    """The settings behind the button, as keywords of `ProjectionSettings`."""
    layers = ["query"]
    if loaders.embeddings(run, checkpoint).features is not None and not loaders.same_directions(run):
        layers.append("features")
    finer: dict[str, Any] = {
        "layer": st.selectbox(
            "Layer",
            layers,
            format_func=lambda layer: loaders.layer_name(run, layer),
            key="layer",
            bind="query-params",
            help="The projector's output, which the loss sees, or the backbone's, which other tasks use.",
        ),
    }
    if method == "umap":
        finer["neighbors"] = st.slider(
            "UMAP neighbours",
            2,
            100,
            15,
            key="neighbors",
            bind="query-params",
            help="Few show fine structure, many the broad one. Each point counts itself.",
        )
        finer["min_dist"] = st.slider(
            "UMAP minimum distance",
            0.0,
            1.0,
            0.1,
            0.05,
            key="min_dist",
            bind="query-params",
            help="How close points may lie in the picture, in its own units.",
        )
        finer["seed"] = seed_input()
    return finer
