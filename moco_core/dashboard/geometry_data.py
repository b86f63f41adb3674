"""Spread, spectrum, classes and neighbours of an embedding space, computed once for each step's content."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from moco_core.analysis import geometry, neighbors
from moco_core.dashboard import loaders
from moco_core.dashboard.figures.alignment_plane import StepPath
from moco_core.dashboard.figures.spectrum import Spectrum
from moco_core.dashboard.loaders import CONTENT
from moco_core.runs import Checkpoint, EvalSet, Run, RunError
from moco_core.theory import ideal_uniformity

Array = np.ndarray

STORED_RANKS = {"query": ("effective_rank", "projector"), "features": ("effective_rank_features", "backbone")}
MATRIX = 50  # classes that a confusion matrix shows


@dataclass(frozen=True)
class Classes:
    """Alignment and tolerance of C classes; NaN where a class has too few samples."""

    names: list[str]
    count: Array  # C
    tolerance: Array  # C
    alignment: Array | None  # C; None for a run without a second view

    def table(self) -> pd.DataFrame:
        """One row a class."""
        columns = {"class": self.names, "samples": self.count, "tolerance": self.tolerance}
        return pd.DataFrame(columns | ({} if self.alignment is None else {"alignment": self.alignment}))


@dataclass(frozen=True)
class Circle:
    """Density per radian of two-dimensional embeddings at G angles."""

    angle: Array
    density: Array

    def table(self) -> pd.DataFrame:
        """One row an angle."""
        return pd.DataFrame({"angle": self.angle, "density": self.density})


@dataclass(frozen=True)
class Confusion:
    """Votes of the nearest neighbours against the true classes, for the S classes shown."""

    labels: Array  # S, ascending
    names: list[str]
    counts: Array  # S×S, row true, column voted
    totals: Array  # S, all votes on the images of a class, those for classes not shown included
    classes: int  # how many there are in all
    k: int  # neighbours that voted: fewer than asked for where there are no more
    accuracy: float

    @property
    def choices(self) -> list[str]:
        """Names to choose from, with the class number behind those that repeat."""
        return [
            name if self.names.count(name) == 1 else f"{name} ({label})"
            for name, label in zip(self.names, self.labels.tolist(), strict=True)
        ]

    def table(self) -> pd.DataFrame:
        """One row a cell."""
        row, column = np.indices(self.counts.shape).reshape(2, -1)
        names = np.array(self.names, object)
        return pd.DataFrame({"true": names[row], "vote": names[column], "samples": self.counts.ravel()})


def class_names(images: EvalSet) -> list[str]:
    """A name for each class from 0 to the highest label: the number where there is no name."""
    count = max(len(images.class_names), int(images.labels.max(initial=-1)) + 1)
    return [*images.class_names, *(f"class {label}" for label in range(len(images.class_names), count))]


def layers(run: Run, checkpoint: Checkpoint) -> list[str]:
    """The layers that this step holds, of those with the same directions one."""
    return ["query"] if loaders.same_directions(run) else _stored_layers(run, checkpoint)


def dimension(run: Run, checkpoint: Checkpoint) -> int:
    """D of the query embeddings."""
    return loaders.embeddings(run, checkpoint).query.shape[1]


def path(run: Run, name: str) -> StepPath:
    """The run's way through the alignment–uniformity plane, from its stored metrics where it has them."""
    points = [_point(run, checkpoint) for checkpoint in run.steps]
    alignment, uniformity = zip(*points, strict=True) if points else ((), ())
    return StepPath(name, [c.step for c in run.steps], alignment, uniformity)


def ideals(runs: Sequence[Run]) -> dict[int, float]:
    """Embedding dimension → uniformity of the uniform distribution on its sphere, for the runs given."""
    return {dim: ideal_uniformity(dim) for dim in {run.config.dim for run in runs}}


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=CONTENT)
def collapse(run: Run, checkpoint: Checkpoint, layer: str) -> geometry.Collapse:
    """Verdict on one layer of a step."""
    return geometry.collapse(loaders.embeddings(run, checkpoint).layer(layer))


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=CONTENT)
def circle(run: Run, checkpoint: Checkpoint) -> Circle:
    """Density of two-dimensional embeddings over the circle."""
    return Circle(*geometry.circle_density(loaders.embeddings(run, checkpoint).query))


def spectra(run: Run, checkpoint: Checkpoint) -> list[Spectrum]:
    """Spectrum and effective rank of each layer that the run has."""
    return [_spectrum(run, checkpoint, layer) for layer in _stored_layers(run, checkpoint)]


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=CONTENT)
def classes(run: Run, checkpoint: Checkpoint) -> Classes:
    """Tolerance and alignment of each class; ValueError when no label is known."""
    found, images = loaders.embeddings(run, checkpoint), loaders.eval_set(run)
    tolerance = geometry.per_class_tolerance(found.query, images.labels)
    alignment = None
    if found.second_view is not None:
        alignment = geometry.per_class_alignment(found.query, found.second_view, images.labels).value
    all_names = class_names(images)
    names = [all_names[label] for label in tolerance.labels.tolist()]
    return Classes(names, tolerance.count, tolerance.value, alignment)


def hubness(run: Run, checkpoint: Checkpoint, k: int, layer: str) -> neighbors.Hubness:
    """How often each image is among the nearest of another."""
    return neighbors.hubness(loaders.neighbours(run, checkpoint, k, layer)[0])


def confusion(run: Run, checkpoint: Checkpoint, k: int, layer: str) -> Confusion:
    """Votes against true classes; ValueError when no label is known."""
    images = loaders.eval_set(run)
    votes = loaders.votes(run, checkpoint, k, layer)
    known = images.labels >= 0
    truth, votes = images.labels[known], votes[known]
    there = np.union1d(truth, votes)
    shown = most_confused(truth, votes)
    all_names = class_names(images)
    names = [all_names[label] for label in shown.tolist()]
    both = np.isin(truth, shown) & np.isin(votes, shown)
    counts = neighbors.confusion(
        np.searchsorted(shown, truth[both]), np.searchsorted(shown, votes[both]), len(shown)
    )
    totals = np.array([np.count_nonzero(truth == label) for label in shown])
    voters = min(k, max(len(truth) - 1, 1))
    return Confusion(shown, names, counts, totals, len(there), voters, float((truth == votes).mean()))


def cell(run: Run, checkpoint: Checkpoint, k: int, layer: str, true: int, vote: int) -> Array:
    """Rows of the images of class `true` whose neighbours vote for `vote`."""
    votes = loaders.votes(run, checkpoint, k, layer)
    return np.flatnonzero((loaders.eval_set(run).labels == true) & (votes == vote))


def most_confused(truth: Array, votes: Array, most: int = MATRIX) -> Array:
    """All classes among N true and voted ones, or the `most` that take part in most mistakes; ascending."""
    there, member = np.unique(np.concatenate([truth, votes]), return_inverse=True)
    wrong = np.concatenate([truth != votes] * 2)
    mistakes = np.bincount(member[wrong], minlength=len(there))
    return np.sort(there[np.argsort(-mistakes, kind="stable")[:most]])


def _stored_layers(run: Run, checkpoint: Checkpoint) -> list[str]:
    found = loaders.embeddings(run, checkpoint)
    return [layer for layer in STORED_RANKS if getattr(found, layer) is not None]


@st.cache_data(max_entries=512, show_spinner=False, hash_funcs=CONTENT)
def _point(run: Run, checkpoint: Checkpoint) -> tuple[float, float]:
    alignment = stored(checkpoint, "alignment", {"alpha": 2})
    uniformity = stored(checkpoint, "uniformity", {"t": 2})
    if math.isfinite(alignment) and math.isfinite(uniformity):
        return alignment, uniformity
    try:
        found = loaders.embeddings(run, checkpoint)
        if found.second_view is None:
            return math.nan, math.nan
        return geometry.alignment(found.query, found.second_view), geometry.uniformity(found.query)
    except (RunError, ValueError):
        return math.nan, math.nan


def stored(checkpoint: Checkpoint, name: str, settings: Mapping[str, object]) -> float:
    """A metric as the run stored it; NaN where it has none, or one defined otherwise."""
    entry = checkpoint.metrics.get(name, {})
    value = entry.get("value")
    alike = all(entry.get(key) == setting for key, setting in settings.items())
    return float(value) if alike and isinstance(value, int | float) else math.nan


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=CONTENT)
def _spectrum(run: Run, checkpoint: Checkpoint, layer: str) -> Spectrum:
    rows = loaders.embeddings(run, checkpoint).layer(layer)
    name, stored_as = STORED_RANKS[layer]
    rank = stored(checkpoint, name, {"layer": stored_as})
    return Spectrum(
        loaders.layer_name(run, layer),
        geometry.spectrum(rows),
        rank if math.isfinite(rank) else geometry.effective_rank(rows),
    )
