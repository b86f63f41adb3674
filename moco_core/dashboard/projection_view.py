"""What the projection page shows of a stored projection: points, colours, words and tables."""

from __future__ import annotations

import numpy as np
import pandas as pd

from moco_core.analysis.neighbors import local_density
from moco_core.dashboard import loaders
from moco_core.dashboard.palette import RIGHT, WRONG
from moco_core.dashboard.points import Colour, Points
from moco_core.dashboard.text import plain
from moco_core.projections import Projection, ProjectionSettings
from moco_core.projections.compute import KEY, QUERY, QUEUE, frames
from moco_core.runs import Checkpoint, EvalSet, Run, RunError

Array = np.ndarray

CLASS, VOTE, OWN_KEY, DENSITY = "class", "vote", "key", "density"
COLOURINGS = {
    CLASS: "class",
    VOTE: "kNN right or wrong",
    OWN_KEY: "cosine to own key",
    DENSITY: "local density",
}
MEANING = {
    CLASS: "Colour is the class.",
    VOTE: "Blue: the class that the nearest other evaluation samples vote for (weighted kNN) is the right one.",
    OWN_KEY: "Colour is the cosine between a sample's query embedding and its own key: 1 where both encoders agree.",
    DENSITY: "Colour is the mean cosine of a sample to its nearest neighbours in the full space: 1 is densest.",
}
HANDLING = {  # by the number of dimensions
    2: "Point at a sample to see which it is, lasso some to see them below.",
    3: "Drag to turn, point at a sample to see which it is, click one to see it below with its neighbours.",
}
LINKED = 16  # neighbours that lines lead to
MOST_RINGS = 400
FAINTEST = 0.15  # opacity of the queue's oldest key
KIND_NAMES = {QUERY: "query", KEY: "key", QUEUE: "queue key"}


def colourings(run: Run, checkpoint: Checkpoint) -> list[str]:
    """The colourings that this run has something to show for."""
    images = loaders.eval_set(run)
    keyed = loaders.embeddings(run, checkpoint).key is not None
    searched = len(images) <= loaders.MOST_SEARCHED
    there = {CLASS: images.labelled, VOTE: images.labelled and searched, OWN_KEY: keyed, DENSITY: searched}
    return [c for c in COLOURINGS if there[c]] or [CLASS]


def points_of(run: Run, checkpoint: Checkpoint, settings: ProjectionSettings, picture: Projection) -> Points:
    """The points of a picture, the queue's fading with age."""
    fade = None
    if (picture.kinds == QUEUE).any():
        age = _ages(picture, checkpoint)
        fade = np.where(np.isnan(age), 1.0, 1 - (1 - FAINTEST) * age / max(np.nanmax(age), 1))
    return Points(
        picture.coordinates,
        picture.samples,
        axis_titles(picture, settings),
        picture.kinds,
        fade,
        _frame_names(run, checkpoint, settings, picture),
    )


def axis_titles(picture: Projection, settings: ProjectionSettings) -> tuple[str, ...]:
    """One title an axis: PCA says how much of the variance it carries; UMAP's axes have no unit."""
    dim = picture.coordinates.shape[2]
    if len(picture.share):
        return tuple(f"PC {i + 1} ({share:.0%} of the variance)" for i, share in enumerate(picture.share))
    name = "PC" if settings.method == "pca" else "UMAP"
    return tuple(f"{name} {i + 1} (no unit)" for i in range(dim))


def colour_of(by: str, run: Run, checkpoint: Checkpoint, picture: Projection, k: int) -> Colour:
    """The colours of a picture's points at one step; the queue's keys have a class, and no other value."""
    images = loaders.eval_set(run)
    rows, in_queue = picture.samples, picture.samples < 0
    details = {"age (steps)": _ages(picture, checkpoint)} if in_queue.any() else {}
    if by == CLASS:
        labels = images.labels[rows]
        queue = loaders.queue(checkpoint) if in_queue.any() else None
        if queue is not None:
            labels = np.where(in_queue, queue.labels[picture.slots], labels)
        labels = np.where(labels < len(images.class_names), labels, -1)
        return Colour.by_class(COLOURINGS[by], labels, images.class_names, details=details)
    if by == VOTE:
        votes = loaders.votes(run, checkpoint, k)
        right = np.where(images.labels < 0, -1, (votes != images.labels).astype(np.int64))
        codes = np.where(in_queue, -1, right[rows])
        named = {"vote": (np.where(in_queue, -1, votes[rows]), images.class_names)}
        return Colour(
            COLOURINGS[by], codes, ("right", "wrong"), (RIGHT, WRONG), details=details, labels=named
        )
    return Colour.by_value(
        COLOURINGS[by], np.where(in_queue, np.nan, _values(by, run, checkpoint, k)[rows]), details=details
    )


def _values(by: str, run: Run, checkpoint: Checkpoint, k: int) -> Array:
    """One number a sample, N."""
    if by == DENSITY:
        return local_density(loaders.neighbours(run, checkpoint, k)[1])
    embedded = loaders.embeddings(run, checkpoint)
    if embedded.key is None:
        raise RunError(f"step {checkpoint.step} of {run.id} has no key embeddings")
    return np.einsum("nd,nd->n", embedded.query, embedded.key)


def table_of(picture: Projection, frame: int, images: EvalSet, colour: Colour) -> pd.DataFrame:
    """What is drawn: one row a point, with its coordinates and the value that colours it."""
    known = picture.samples >= 0
    rows = np.where(known, picture.samples, 0)
    flat = picture.coordinates[frame]
    table = pd.DataFrame(
        {
            "kind": [KIND_NAMES[int(kind)] for kind in picture.kinds],
            "sample_id": pd.array(np.where(known, images.sample_ids[rows], 0), dtype="Int64"),
            **({"name": [images.names[row] for row in rows]} if images.names is not None else {}),
            "class": [images.name_of(int(label)) for label in np.where(known, images.labels[rows], -1)],
            "queue_slot": pd.array(np.maximum(picture.slots, 0), dtype="Int64"),
            **{axis: flat[:, i] for i, axis in enumerate("xyz"[: flat.shape[1]])},
        }
    )
    table.loc[~known, "sample_id"] = pd.NA
    table.loc[picture.slots < 0, "queue_slot"] = pd.NA
    names = colour.names
    value = (
        colour.values
        if names is None
        else [names[code] if 0 <= code < len(names) else "" for code in colour.values]
    )
    if colour.title != "class":
        table[colour.title] = value
    elif not known.all():
        table["class"] = value
    return table


def hover_texts(table: pd.DataFrame) -> list[str]:
    """One line a point for the figure download."""
    ids = ["" if pd.isna(i) else f" #{i}" for i in table["sample_id"]]
    return [f"{kind} · {name}{i}" for kind, name, i in zip(table["kind"], table["class"], ids, strict=True)]


def faithfulness_line(picture: Projection, frame: int) -> str:
    """How far the picture can be trusted, in one line of Markdown."""
    if not picture.measured:
        return "How faithful this picture is, is being measured."
    trust, continuity = picture.trustworthiness[frame], picture.continuity[frame]
    if np.isnan(trust):
        return "A picture of fewer than three points can't be measured."
    return (
        f"**Trustworthiness {trust:.3f}** (are neighbours in the picture true neighbours?) · "
        f"**continuity {continuity:.3f}** (are true neighbours still together?); {picture.k} neighbours, "
        "1 is perfect, about ½ is chance."
    )


def distance_line(settings: ProjectionSettings, preview: bool) -> str:
    """What distances in the picture do and don't mean."""
    if settings.method == "pca" or preview:
        return (
            "PCA is a shadow of the space from its widest side: far apart here is far apart there, but points "
            "that fall together here may be far apart in the directions not shown."
        )
    return (
        "UMAP keeps *neighbours* together. Distances between clusters, their sizes and their densities mean little; "
        "axes have no unit, and another seed turns or rearranges the whole."
    )


def frame_of(run: Run, checkpoint: Checkpoint, settings: ProjectionSettings, picture: Projection) -> int:
    """Which of the pictures shows this step of this run: the only one, unless several are aligned."""
    shown = [(frame.run.id, frame.checkpoint.step) for frame in frames(run, checkpoint, settings)]
    return shown.index((run.id, checkpoint.step)) if len(picture.steps) == len(shown) else 0


def address_of(run: Run, checkpoint: Checkpoint, settings: ProjectionSettings, frame: int) -> dict[str, str]:
    """The part of the page's address that leads to one of several aligned pictures."""
    chosen = frames(run, checkpoint, settings)[frame]
    return {"run": chosen.run.id, "step": str(chosen.checkpoint.step)}


def _frame_names(
    run: Run, checkpoint: Checkpoint, settings: ProjectionSettings, picture: Projection
) -> tuple[str, ...]:
    shown = frames(run, checkpoint, settings)
    if len(shown) != len(picture.steps):  # the preview, until several are there
        return tuple(f"step {step}" for step in picture.steps)
    if settings.aligned == "sweep":
        return tuple(f"{frame.run.name}, step {frame.checkpoint.step}" for frame in shown)
    return tuple(f"step {frame.checkpoint.step}" for frame in shown)


def ringed(found: Array, clicked: int | None) -> list[int]:
    """Rows to ring: what was searched for, evenly thinned where that is much, and what was clicked."""
    step = max(1, -(-len(found) // MOST_RINGS))
    return [*(int(row) for row in found[::step]), *([] if clicked is None else [clicked])]


def links(run: Run, checkpoint: Checkpoint, clicked: int | None, layer: str) -> list[tuple[int, int]]:
    """Lines from a clicked sample to its nearest neighbours in the full space."""
    if clicked is None:
        return []
    near, _ = loaders.neighbours_of(run, checkpoint, np.array([clicked]), LINKED, layer)
    return [(clicked, int(row)) for row in near[0]]


def collapse_line(checkpoint: Checkpoint) -> str:
    """A warning, in Markdown, where the space has collapsed: a picture magnifies whatever is left; else empty."""
    reason = loaders.collapse_reason(checkpoint)
    return f"{plain(reason)} The picture magnifies what little tells them apart." if reason else ""


def sampling_lines(picture: Projection, images: EvalSet, checkpoint: Checkpoint) -> list[str]:
    """Says so where not everything is drawn."""
    lines = []
    queue = loaders.queue(checkpoint)
    filled = 0 if queue is None else queue.filled
    drawn = int((picture.kinds == QUERY).sum())
    if drawn < len(images):
        lines.append(f"A random sample of {drawn:,} of {len(images):,} samples is drawn; metrics are of all.")
    slots = int((picture.kinds == QUEUE).sum())
    if 0 < slots < filled:
        lines.append(
            f"{slots:,} of the queue's {filled:,} keys are drawn, evenly spaced from oldest to newest."
        )
    return lines


def _ages(picture: Projection, checkpoint: Checkpoint) -> Array:
    """Steps since each queue key was written, P; NaN for all other points."""
    queue = loaders.queue(checkpoint)
    if queue is None or not queue.filled:
        return np.full(len(picture.kinds), np.nan)
    ages = queue.ages(checkpoint.step).astype(np.float64)
    return np.where(picture.slots >= 0, ages[np.clip(picture.slots, 0, queue.filled - 1)], np.nan)
