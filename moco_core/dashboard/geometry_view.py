"""What the geometry page shows of what was computed: words, tables, pictures and cards."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from moco_core.analysis import neighbors
from moco_core.dashboard import loaders
from moco_core.dashboard.figures.alignment_plane import StepPath
from moco_core.dashboard.figures.spectrum import Spectrum
from moco_core.dashboard.gallery import Card, card, neighbour
from moco_core.dashboard.geometry_data import Confusion, class_names, stored
from moco_core.dashboard.points import Colour, Pane, Points
from moco_core.dashboard.text import numeral, plain
from moco_core.projections import drawn_rows
from moco_core.runs import Checkpoint, EvalSet, Run
from moco_core.theory import ideal_uniformity

Array = np.ndarray

HUBS = 16  # images in the gallery of hubs
CELL = 12  # images of a cell that are shown
VOTERS = 6  # neighbours beside each of them


def path_table(paths: Sequence[StepPath]) -> pd.DataFrame:
    """One row a step of a run."""
    columns = ("run", "step", "alignment", "uniformity")
    rows = [
        row
        for p in paths
        for row in zip([p.name] * len(p.steps), p.steps, p.alignment, p.uniformity, strict=True)
    ]
    return pd.DataFrame(rows, columns=list(columns))


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
        if run.steps and math.isfinite(value := stored(run.steps[-1], "uniformity", {"t": 2}))
    ]
    uniformity = f" Uniformity alone, t = 2: {'; '.join(spread)}." if spread else ""
    return (
        "Alignment is the distance between two views of a sample, and there is no second view here, so nothing can "
        f"stand in this plane.{uniformity}"
    )


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


def sample_columns(images: EvalSet) -> dict[str, object]:
    """What tables say of each sample first."""
    named = {} if images.names is None else {"name": images.names}
    return {"sample_id": images.sample_ids, **named, "label": images.labels}
