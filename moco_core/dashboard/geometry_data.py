"""What the geometry page shows, computed once for each step's content."""

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
from moco_core.dashboard.gallery import Card, card, neighbour
from moco_core.dashboard.loaders import CONTENT
from moco_core.dashboard.points import Colour, Pane, Points
from moco_core.dashboard.text import numeral, plain
from moco_core.projections import drawn_rows
from moco_core.runs import Checkpoint, EvalSet, Run, RunError
from moco_core.theory import ideal_uniformity

Array = np.ndarray

STORED_RANKS = {"query": ("effective_rank", "projector"), "features": ("effective_rank_features", "backbone")}
MATRIX = 50  # classes that a confusion matrix shows
HUBS = 16  # images in the gallery of hubs
CELL = 12  # images of a cell that are shown
VOTERS = 6  # neighbours beside each of them


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


def path_table(paths: Sequence[StepPath]) -> pd.DataFrame:
    """One row a step of a run."""
    columns = ("run", "step", "alignment", "uniformity")
    rows = [
        row
        for p in paths
        for row in zip([p.name] * len(p.steps), p.steps, p.alignment, p.uniformity, strict=True)
    ]
    return pd.DataFrame(rows, columns=list(columns))


def ideals(runs: Sequence[Run]) -> dict[int, float]:
    """Embedding dimension → uniformity of the uniform distribution on its sphere, for the runs given."""
    return {dim: ideal_uniformity(dim) for dim in {run.config.dim for run in runs}}


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=CONTENT)
def collapse(run: Run, checkpoint: Checkpoint, layer: str) -> geometry.Collapse:
    """Verdict on one layer of a step."""
    return geometry.collapse(loaders.embeddings(run, checkpoint).layer(layer))


def left_out(paths: Sequence[StepPath]) -> str:
    """A sentence (Markdown) for the runs that can't stand in the plane, or an empty string."""
    missing = [plain(p.name) for p in paths if not any(map(math.isfinite, p.alignment))]
    if not missing:
        return ""
    return f" Left out, because they hold no second view: {', '.join(missing)}."


def no_plane(runs: Sequence[Run], paths: Sequence[StepPath]) -> str:
    """What stands in the plane's place when no run has an alignment (Markdown); empty when one has."""
    if not runs or any(any(map(math.isfinite, path.alignment)) for path in paths):
        return ""
    spread = [
        f"{plain(path.name)} {numeral(value, '.2f')} "
        f"(evenly spread: {numeral(ideal_uniformity(run.config.dim), '.2f')})"
        for run, path in zip(runs, paths, strict=True)
        if run.steps and math.isfinite(value := _stored(run.steps[-1], "uniformity", {"t": 2}))
    ]
    uniformity = f" Uniformity alone, t = 2: {'; '.join(spread)}." if spread else ""
    return (
        "Alignment is the distance between two views of a sample, and there is no second view here, so nothing can "
        f"stand in this plane.{uniformity}"
    )


@st.cache_data(max_entries=16, show_spinner=False, hash_funcs=CONTENT)
def circle(run: Run, checkpoint: Checkpoint) -> Circle:
    """Density of two-dimensional embeddings over the circle."""
    return Circle(*geometry.circle_density(loaders.embeddings(run, checkpoint).query))


def circle_pane(run: Run, checkpoint: Checkpoint) -> Pane:
    """Two-dimensional embeddings as they are, coloured by class."""
    query, images = loaders.embeddings(run, checkpoint).query, loaders.eval_set(run)
    rows = drawn_rows(len(query))
    points = Points(query[None, rows], rows, ("first coordinate", "second coordinate"))
    return Pane(points, Colour.by_class("class", images.labels[rows], class_names(images)))


def coordinates_table(run: Run, checkpoint: Checkpoint) -> pd.DataFrame:
    """One row an image: id, label and embedding."""
    query, images = loaders.embeddings(run, checkpoint).query, loaders.eval_set(run)
    columns = {f"z{i + 1}": query[:, i] for i in range(query.shape[1])}
    return pd.DataFrame(sample_columns(images) | columns)


def spectra(run: Run, checkpoint: Checkpoint) -> list[Spectrum]:
    """Spectrum and effective rank of each layer that the run has."""
    return [_spectrum(run, checkpoint, layer) for layer in _stored_layers(run, checkpoint)]


def spectrum_table(found: Sequence[Spectrum]) -> pd.DataFrame:
    """One row a singular value."""
    return pd.concat(
        pd.DataFrame(
            {
                "layer": s.name,
                "index": np.arange(1, len(s.log_values) + 1),
                "log_singular_value": s.log_values,
            }
        )
        for s in found
    )


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


def hubness_table(hubs: neighbors.Hubness, images: EvalSet) -> pd.DataFrame:
    """One row an image."""
    return pd.DataFrame(sample_columns(images) | {"k_occurrence": hubs.occurrence})


def hubness_reading(hubs: neighbors.Hubness) -> str:
    """What the counts say, in one sentence (Markdown)."""
    if hubs.skewness > 1:
        verdict = "**There are hubs**"
    elif hubs.skewness > 0.5:
        verdict = "**Mild hubs**"
    else:
        verdict = "**No hubs to speak of**"
    return (
        f"{verdict}: the counts have a skewness of {numeral(hubs.skewness, '.1f')} (around 0 without hubs, above 1 "
        f"with clear ones), the most popular sample is a neighbour of {int(hubs.occurrence.max()):,} others, and "
        f"{hubs.anti_hubs:.1%} of the samples are nobody's neighbour."
    )


def hub_cards(hubs: neighbors.Hubness, images: EvalSet) -> list[Card]:
    """The images that are neighbours of the most others."""
    order = np.argsort(-hubs.occurrence, kind="stable")[:HUBS]
    return [card(images, int(row), f"neighbour of {int(hubs.occurrence[row]):,}") for row in order]


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


def confusion_reading(matrix: Confusion, layer: str) -> str:
    """What the matrix shows and with which settings (Markdown); `layer` as `loaders.layer_name` calls it."""
    cut = (
        f" Of {matrix.classes:,} classes, the {len(matrix.labels)} that take part in most mistakes are shown."
        if matrix.classes > len(matrix.labels)
        else ""
    )
    return (
        f"Row: the true class; column: the vote of the {matrix.k} nearest other evaluation samples by cosine, weighted "
        f"by exp(cosine / {neighbors.TEMPERATURE:g}), in the {layer}; number: samples. {matrix.accuracy:.1%} of the "
        f"votes are right: those on the diagonal.{cut} Click a cell to see what is in it."
    )


def cell_reading(count: int) -> str:
    """How many samples a cell has and how they are laid out."""
    shown = f"The first {CELL} of {count:,} samples" if count > CELL else f"{count:,} samples"
    return (
        f"{shown}, each followed by its nearest neighbours and their cosines; a blue frame marks a neighbour of the "
        "sample's own class, an orange one any other."
    )


def cell_cards(run: Run, checkpoint: Checkpoint, k: int, layer: str, found: Array) -> list[list[Card]]:
    """One line a sample (its row in `found`), then the neighbours that voted."""
    images = loaders.eval_set(run)
    indices, cosines = loaders.neighbours(run, checkpoint, k, layer)
    lines = []
    for row in found[:CELL].tolist():
        line = [card(images, row)]
        for other, cosine in zip(indices[row, :VOTERS].tolist(), cosines[row, :VOTERS].tolist(), strict=True):
            line.append(neighbour(images, row, other, f"cos {numeral(cosine, '.3f')}"))
        lines.append(line)
    return lines


def most_confused(truth: Array, votes: Array, most: int = MATRIX) -> Array:
    """All classes among N true and voted ones, or the `most` that take part in most mistakes; ascending."""
    there, member = np.unique(np.concatenate([truth, votes]), return_inverse=True)
    wrong = np.concatenate([truth != votes] * 2)
    mistakes = np.bincount(member[wrong], minlength=len(there))
    return np.sort(there[np.argsort(-mistakes, kind="stable")[:most]])


def _stored_layers(run: Run, checkpoint: Checkpoint) -> list[str]:
    found = loaders.embeddings(run, checkpoint)
    return [layer for layer in STORED_RANKS if getattr(found, layer) is not None]


def sample_columns(images: EvalSet) -> dict[str, object]:
    """What tables say of each sample first."""
    named = {} if images.names is None else {"name": images.names}
    return {"sample_id": images.sample_ids, **named, "label": images.labels}


@st.cache_data(max_entries=512, show_spinner=False, hash_funcs=CONTENT)
def _point(run: Run, checkpoint: Checkpoint) -> tuple[float, float]:
    alignment = _stored(checkpoint, "alignment", {"alpha": 2})
    uniformity = _stored(checkpoint, "uniformity", {"t": 2})
    if math.isfinite(alignment) and math.isfinite(uniformity):
        return alignment, uniformity
    try:
        found = loaders.embeddings(run, checkpoint)
        if found.second_view is None:
            return math.nan, math.nan
        return geometry.alignment(found.query, found.second_view), geometry.uniformity(found.query)
    except (RunError, ValueError):
        return math.nan, math.nan


def _stored(checkpoint: Checkpoint, name: str, settings: Mapping[str, object]) -> float:
    """A metric as the run stored it; NaN where it has none, or one defined otherwise."""
    entry = checkpoint.metrics.get(name, {})
    value = entry.get("value")
    alike = all(entry.get(key) == setting for key, setting in settings.items())
    return float(value) if alike and isinstance(value, int | float) else math.nan


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=CONTENT)
def _spectrum(run: Run, checkpoint: Checkpoint, layer: str) -> Spectrum:
    rows = loaders.embeddings(run, checkpoint).layer(layer)
    name, stored_as = STORED_RANKS[layer]
    rank = _stored(checkpoint, name, {"layer": stored_as})
    return Spectrum(
        loaders.layer_name(run, layer),
        geometry.spectrum(rows),
        rank if math.isfinite(rank) else geometry.effective_rank(rows),
    )
