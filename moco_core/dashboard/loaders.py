"""What pages read from runs, read once.

Every cache is keyed on where the data lie and on their checksum, never on arrays. What is handed out is
shared between pages and sessions, hence read-only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from moco_core.analysis.neighbors import TEMPERATURE, K, knn_predict, nearest, nearest_in, vote
from moco_core.runs import Checkpoint, EvalSet, QueueSnapshot, Run, RunError
from moco_core.runs import flaws as cheap_look
from moco_core.runs.history import History

Array = np.ndarray
# What stands for an argument when it is looked up in a cache.
Keys = dict[str | type[Any], Callable[[Any], Any]]

LAYERS = {"query": "query embeddings", "key": "key embeddings", "features": "backbone features"}
MOST_SEARCHED = 200_000  # samples of which all nearest neighbours are found: minutes, growing with the square
MOST_RUNS = 1024  # whose histories are kept, about 40 kB each
IMPORTED_LAYERS = {"query": "vectors at unit length", "features": "vectors as they came"}


@dataclass(frozen=True)
class Embeddings:
    """One step's view of the evaluation images; None where a run (an imported one, say) has no such array."""

    query: Array  # N×D
    key: Array | None  # N×D
    second_view: Array | None  # N×D
    features: Array | None  # N×F

    def layer(self, name: str) -> Array:
        """The array of one of `LAYERS`; `RunError` when this run lacks it."""
        if name not in LAYERS:
            raise ValueError(f"layer must be one of {', '.join(LAYERS)}; got {name!r}")
        array: Array | None = getattr(self, name)
        if array is None:
            raise RunError(f"this run has no {LAYERS[name]}")
        return array


def collapse_reason(checkpoint: Checkpoint) -> str:
    """What the collapse check of this snapshot found, where it found complete or dimensional collapse; else empty."""
    found = checkpoint.metrics.get("collapse", {})
    reason = found.get("reason")
    return "" if found.get("verdict") in (None, "none") or not isinstance(reason, str) else reason


def same_directions(run: Run) -> bool:
    """Whether the features are the query embeddings before they were scaled, as in a file of vectors.

    So they are of an encoder without a head. Then one layer says all that cosines can say.
    """
    source = run.facts("source")
    return source.get("kind") == "import" or source.get("head") == ""


def layer_name(run: Run, layer: str) -> str:
    """What a layer is called for this run."""
    return (IMPORTED_LAYERS if same_directions(run) else LAYERS)[layer]


def place(checkpoint: Checkpoint) -> tuple[bytes, int, str]:
    """Where a step lies, in bytes as not every path is UTF-8, and the checksum of what it shows."""
    return os.fsencode(checkpoint.path.parent), checkpoint.step, checkpoint.checksum


# What tells runs and steps apart as arguments of everything cached.
CONTENT: Keys = {
    Run: lambda run: (os.fsencode(run.path), str(run.info.get("eval_set_sha256"))),
    Checkpoint: place,
}


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=CONTENT)
def embeddings(run: Run, checkpoint: Checkpoint) -> Embeddings:
    """The arrays of one step, one row an evaluation image; `RunError` when they can't be read."""
    query = checkpoint.query  # raises if the file as a whole can't be read
    images = len(eval_set(run))
    if len(query) != images:
        raise RunError(f"step {checkpoint.step} of {run.id} has {len(query)} embeddings for {images} images")
    others = (_optional(checkpoint, name) for name in ("key", "second_view", "features"))
    return Embeddings(_frozen(query), *others)


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=CONTENT)
def eval_set(run: Run) -> EvalSet:
    """The evaluation images of a run; `RunError` when they can't be read."""
    found = run.eval_set
    for array in (found.thumbnails, found.labels, found.sample_ids):
        _frozen(array)
    return found


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=CONTENT)
def queue(checkpoint: Checkpoint) -> QueueSnapshot | None:
    """The queue at one step, oldest first; None for a method without one."""
    if not checkpoint.has_queue:
        return None
    found = checkpoint.queue
    for array in (found.keys, found.written_steps, found.sample_ids, found.labels):
        _frozen(array)
    return found


@st.cache_resource(max_entries=256, show_spinner=False, hash_funcs=CONTENT)
def drift(checkpoint: Checkpoint) -> dict[str, Array]:
    """The staleness measured at one step; empty when none was measured."""
    return {name: _frozen(array) for name, array in checkpoint.drift.items()}


def history(run: Run) -> dict[str, Array]:
    """The logged quantities of a run, equally long arrays; of a run that trains, only what is new is read."""
    return {name: _frozen(array) for name, array in _history(run).read().items()}


def flaws(run: Run) -> dict[str, str]:
    """File or folder of a run → what is wrong with it, as far as a cheap look tells."""
    return cheap_look.flaws(run, _history(run))


def neighbours(run: Run, checkpoint: Checkpoint, k: int = K, layer: str = "query") -> tuple[Array, Array]:
    """Indices and cosines (N×k) of each evaluation image's nearest, itself left out; k is at most N − 1.

    ValueError beyond `MOST_SEARCHED` images.
    """
    check_searchable(run)
    return _neighbours(run, checkpoint, k, layer)


def neighbours_of(
    run: Run, checkpoint: Checkpoint, rows: Array, k: int = K, layer: str = "query"
) -> tuple[Array, Array]:
    """`neighbours` of a few rows alone (R×k), which needs no search over all; k is at most N − 1."""
    space = embeddings(run, checkpoint).layer(layer)
    k = min(k, len(space) - 1)
    found, cosines = nearest_in(space, space[rows], k + 1)
    others = found != np.asarray(rows)[:, None]
    others[others.all(1), -1] = False  # among equals a row may miss itself: the last one gives way
    return found[others].reshape(-1, k), cosines[others].reshape(-1, k)


def votes(run: Run, checkpoint: Checkpoint, k: int = K, layer: str = "query") -> Array:
    """The class that the k nearest other evaluation images vote for, N.

    ValueError when no label is known, and beyond `MOST_SEARCHED` images.
    """
    check_searchable(run)
    return _votes(run, checkpoint, k, layer)


def check_searchable(run: Run) -> None:
    """Raise ValueError for a run of which finding all nearest neighbours would keep a page waiting for an hour."""
    count = len(eval_set(run))
    if count > MOST_SEARCHED:
        raise ValueError(
            f"all nearest neighbours are found of up to {MOST_SEARCHED:,} samples, and this run has {count:,}; import "
            "a part of the file to see this"
        )


@st.cache_resource(max_entries=MOST_RUNS, show_spinner=False, hash_funcs=CONTENT)
def _history(run: Run) -> History:
    return History(run.path)


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=CONTENT)
def _neighbours(run: Run, checkpoint: Checkpoint, k: int, layer: str) -> tuple[Array, Array]:
    rows = embeddings(run, checkpoint).layer(layer)
    indices, cosines = nearest(rows, min(k, max(len(rows) - 1, 1)))
    return _frozen(indices), _frozen(cosines)


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=CONTENT)
def _votes(run: Run, checkpoint: Checkpoint, k: int, layer: str) -> Array:
    labels = eval_set(run).labels
    if not (labels >= 0).any():
        raise ValueError("labels must hold at least one known class; no evaluation image has one")
    if (labels >= 0).all():
        return _frozen(vote(*neighbours(run, checkpoint, k, layer), labels, TEMPERATURE))
    most = int((labels >= 0).sum()) - 1
    rows = embeddings(run, checkpoint).layer(layer)
    return _frozen(knn_predict(rows, labels, k=min(k, max(most, 1)), temperature=TEMPERATURE))


def _optional(checkpoint: Checkpoint, name: str) -> Array | None:
    try:
        return _frozen(getattr(checkpoint, name))
    except RunError:
        return None


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array
