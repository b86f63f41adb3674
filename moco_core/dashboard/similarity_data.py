"""Cosines of positive and negative pairs and what the softmax makes of them, computed once for each step's content."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import streamlit as st

from moco_core.analysis import similarity
from moco_core.analysis.similarity import HARDEST, Negatives, SoftmaxWeights
from moco_core.dashboard import loaders
from moco_core.dashboard.figures.cosine_histograms import Histogram, Weights
from moco_core.dashboard.loaders import CONTENT
from moco_core.projections import drawn_rows
from moco_core.runs import Checkpoint, Run, RunError

Array = np.ndarray

QUEUE, IMAGES = "queue", "images"
POSITIVES, NEGATIVES, HARD, FALSE = "positives", "negatives", f"{HARDEST} hardest of each", "false negatives"
KINDS = (POSITIVES, NEGATIVES, HARD, FALSE)
BARS = 200
MOST_PAIRS = 50_000_000  # beyond, a fixed random sample of the queries
LEAST_TAU, MOST_TAU = 0.01, 1.0  # of the slider


@dataclass(frozen=True)
class Cosines:
    """Cosines at one step of one run, towards one source of negatives."""

    name: str
    step: int
    source: str
    views: str  # what a positive pair is; empty when there is none
    positive: Array | None  # one a query
    negative: Negatives
    queries: int
    images: int
    keys: int
    place: int = 0  # place of the run among those drawn together: its colour

    def counts(self) -> dict[str, Array]:
        """Fine histogram (`similarity.BINS`) of each kind of pair that there is."""
        found = {POSITIVES: similarity.histogram(self.positive)} if self.positive is not None else {}
        found |= {NEGATIVES: self.negative.counts, HARD: similarity.histogram(self.negative.hardest)}
        if self.negative.same_class is not None:
            found[FALSE] = self.negative.same_class
        return found

    def histograms(self) -> list[Histogram]:
        """The kinds of pairs in `BARS` bins."""
        return [
            Histogram(kind, similarity.coarser(counts, BARS)[0], KINDS.index(kind))
            for kind, counts in self.counts().items()
        ]

    @property
    def overlap(self) -> float:
        """Overlap of the positives' histogram with that of the hardest negatives; NaN without positives."""
        found = {h.name: h.counts for h in self.histograms()}
        if POSITIVES not in found:
            return math.nan
        return similarity.overlap_coefficient(found[POSITIVES], found[HARD])


def edges() -> Array:
    """Edges of the bars, `BARS` + 1."""
    return np.linspace(-1, 1, BARS + 1)


def own_temperature(run: Run) -> float:
    """The τ that a run was trained at, as near as the slider comes."""
    return round(min(max(run.config.temperature, LEAST_TAU), MOST_TAU), 2)


def bar_start(bar: int) -> float:
    """The lower edge of a bar, as the slider knows it."""
    return round(-1 + 2 * bar / BARS, 2)


def bar_at(start: float) -> int:
    """The bar that begins at this cosine."""
    return min(max(round((start + 1) * BARS / 2), 0), BARS - 1)


def sources(checkpoint: Checkpoint) -> list[str]:
    """Where negatives can come from at this step."""
    queue = loaders.queue(checkpoint)
    return [QUEUE, IMAGES] if queue is not None and queue.filled else [IMAGES]


def cosines(run: Run, checkpoint: Checkpoint, source: str, name: str = "") -> Cosines:
    """All cosines of one step, under the run's name or another; ValueError when there is nothing to compare."""
    return dataclasses.replace(_cosines(run, checkpoint, source), name=name or run.name)


@st.cache_data(max_entries=256, show_spinner=False, hash_funcs=CONTENT)
def weights(run: Run, checkpoint: Checkpoint, source: str, temperature: float) -> SoftmaxWeights | None:
    """Softmax weight by cosine in fine bins; None for a run without positives."""
    positive = cosines(run, checkpoint, source).positive
    if positive is None:
        return None
    sides = _sides(run, checkpoint, source)
    return similarity.softmax_weights(sides.query, positive, sides.keys, temperature, own=sides.own)


def bars(found: SoftmaxWeights | None, temperature: float) -> Weights | None:
    """The same in `BARS` bins."""
    if found is None:
        return None
    positive, _ = similarity.coarser(found.positive, BARS)
    negative, _ = similarity.coarser(found.negative, BARS)
    return Weights(temperature, positive, negative)


def others(
    run: Run, checkpoint: Checkpoint, runs: Sequence[Run], names: Sequence[str], source: str
) -> tuple[list[Cosines], list[str]]:
    """Each run at its snapshot nearest to this step, and a sentence for each that can't be shown."""
    found, problems = [], []
    for place, (one, name) in enumerate(zip(runs, names, strict=True)):
        try:
            step = checkpoint if one.id == run.id else nearest_step(one, checkpoint.step)
            there = source if source in sources(step) else IMAGES
            found.append(dataclasses.replace(cosines(one, step, there, name), place=place))
        except ValueError as error:
            problems.append(f"{name}: {error}")
    return found, problems


def nearest_step(run: Run, step: int) -> Checkpoint:
    """The newest snapshot up to `step`, else the first; `RunError` when there is none."""
    if not run.steps:
        raise RunError(f"run {run.id} has no snapshot yet")
    earlier = [c for c in run.steps if c.step <= step]
    return earlier[-1] if earlier else run.steps[0]


def positives_behind(run: Run, checkpoint: Checkpoint, bar: int) -> tuple[Array, Array]:
    """Rows of the samples whose two views have a cosine in this bar, and the cosines, the least alike first."""
    _, view = _views(loaders.embeddings(run, checkpoint))
    if view is None:
        return np.zeros(0, int), np.zeros(0)
    sides = _sides(run, checkpoint, IMAGES)
    values = similarity.positive_cosines(sides.query, view[sides.rows])
    low, high = edges()[bar : bar + 2]
    inside = np.flatnonzero((values >= low) & ((values < high) | (bar == BARS - 1)))
    inside = inside[np.argsort(values[inside], kind="stable")]
    return sides.rows[inside], values[inside]


def pairs_behind(
    run: Run, checkpoint: Checkpoint, source: str, kind: str, bar: int, most: int
) -> similarity.Pairs:
    """The hardest pairs of a kind behind a bar: row of a sample, and slot of the queue or row of another sample."""
    sides, labels = _sides(run, checkpoint, source), loaders.eval_set(run).labels
    low, high = edges()[bar : bar + 2]
    found = similarity.pairs_between(
        sides.query,
        sides.keys,
        low,
        high,
        query_labels=labels[sides.rows] if kind == FALSE else None,
        key_labels=sides.key_labels if kind == FALSE else None,
        own=sides.own,
        hardest=HARDEST if kind == HARD else None,
        most=most,
    )
    keys = sides.rows[found.key] if source == IMAGES else found.key
    return similarity.Pairs(sides.rows[found.query], keys, found.cosine)


@dataclass(frozen=True)
class _Sides:
    """The queries and negatives of one source."""

    rows: Array  # of the evaluation set, one a query
    query: Array
    keys: Array
    key_labels: Array
    own: bool  # key i is of the same image as query i


def _sides(run: Run, checkpoint: Checkpoint, source: str) -> _Sides:
    """Both sides of one source, as many queries as `MOST_PAIRS` allows; `RunError` for a queue without keys."""
    found, images = loaders.embeddings(run, checkpoint), loaders.eval_set(run)
    if source == QUEUE:
        queue = loaders.queue(checkpoint)
        if queue is None or not queue.filled:
            raise RunError(f"step {checkpoint.step} of {run.id} has no filled queue")
        rows = drawn_rows(len(images), max(1, MOST_PAIRS // queue.filled))
        return _Sides(rows, found.query[rows], queue.keys, queue.labels, False)
    rows = drawn_rows(len(images), math.isqrt(MOST_PAIRS))
    keys = found.query if found.key is None else found.key  # imported vectors have queries alone
    return _Sides(rows, found.query[rows], keys[rows], images.labels[rows], True)


def _views(found: loaders.Embeddings) -> tuple[str, Array | None]:
    """What stands for the second view of an image, in words and as an array."""
    if found.second_view is not None:
        return "a sample and its second view, both by the same encoder", found.second_view
    if found.key is not None:
        return "a sample by the query encoder and by the key encoder", found.key
    return "", None


def paired(run: Run, checkpoint: Checkpoint) -> bool:
    """Whether this step holds a second view of its samples: without, τ weighs nothing."""
    return _views(loaders.embeddings(run, checkpoint))[1] is not None


@st.cache_data(max_entries=64, show_spinner="Comparing all pairs …", hash_funcs=CONTENT)
def _cosines(run: Run, checkpoint: Checkpoint, source: str) -> Cosines:
    found, images = loaders.embeddings(run, checkpoint), loaders.eval_set(run)
    sides = _sides(run, checkpoint, source)
    labels = images.labels[sides.rows]
    labelled = bool((labels >= 0).any() and (sides.key_labels >= 0).any())
    views, view = _views(found)
    return Cosines(
        name=run.name,
        step=checkpoint.step,
        source=source,
        views=views,
        positive=None if view is None else similarity.positive_cosines(sides.query, view[sides.rows]),
        negative=similarity.negatives(
            sides.query,
            sides.keys,
            query_labels=labels if labelled else None,
            key_labels=sides.key_labels if labelled else None,
            own=sides.own,
        ),
        queries=len(sides.rows),
        images=len(images),
        keys=len(sides.keys) - sides.own,
    )
