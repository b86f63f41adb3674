"""What the similarity page shows, computed once for each step's content."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from moco_core.analysis import similarity
from moco_core.analysis.similarity import HARDEST, Negatives, SoftmaxWeights
from moco_core.dashboard import loaders
from moco_core.dashboard.figures.cosine_histograms import Histogram, Panel, Weights
from moco_core.dashboard.gallery import Card, card
from moco_core.dashboard.loaders import CONTENT
from moco_core.dashboard.palette import WRONG
from moco_core.dashboard.text import numeral
from moco_core.projections import drawn_rows
from moco_core.runs import Checkpoint, Run, RunError

Array = np.ndarray

QUEUE, IMAGES = "queue", "images"
SOURCES = {QUEUE: "the queue", IMAGES: "other evaluation samples"}
POSITIVES, NEGATIVES, HARD, FALSE = "positives", "negatives", f"{HARDEST} hardest of each", "false negatives"
MEANING = {
    POSITIVES: "two views of one sample",
    NEGATIVES: "a sample and every negative",
    HARD: f"a sample and its {HARDEST} most similar negatives",
    FALSE: "a sample and the negatives of its own class",
}
KINDS = tuple(MEANING)
BARS = 200
MOST_PAIRS = 50_000_000  # beyond, a fixed random sample of the queries
LEAST_TAU, MOST_TAU = 0.01, 1.0  # of the slider
SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
PAIRS = 24  # in a gallery
SLOTS = 100  # in the table of queue slots


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


def temperature_help(run: Run) -> str:
    """Where the slider of τ stands at first, and why."""
    if run.config.imported:
        return "At which τ these vectors were trained is not known here; choose one."
    return f"This run was trained at τ = {run.config.temperature:g}."


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


def why_no_queue(checkpoint: Checkpoint) -> str:
    """A sentence for a step whose queue can't be asked; empty when it can."""
    queue = loaders.queue(checkpoint)
    if queue is None:
        return "This run keeps no queue, so its evaluation samples serve as negatives of each other."
    if not queue.filled:
        return (
            "The queue is still empty at this step, so evaluation samples serve as negatives of each other."
        )
    return ""


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


def panels(found: Sequence[Cosines]) -> list[Panel]:
    """Each run's histograms, titled with its name and step."""
    return [
        Panel(
            f"{c.name}, step {c.step}" + ("" if c.source == QUEUE else " (evaluation samples)"),
            c.histograms(),
            c.place,
        )
        for c in found
    ]


def reading(found: Cosines, weight: SoftmaxWeights | None, temperature: float) -> str:
    """What the histograms say, in a few sentences (Markdown)."""
    if weight is None:
        return "This run holds no second view of its samples, so there are no positive pairs to set them against."
    half = similarity.quantiles(weight.negative, np.array([0.5]))[0]
    pairs = similarity.quantiles(found.negative.counts, np.array([0.5]))[0]
    apart = (
        "well apart"
        if found.overlap < 0.1
        else "partly mixed"
        if found.overlap < 0.5
        else "hard to tell apart"
    )
    return (
        f"Positives and hardest negatives are **{apart}**: their histograms overlap by {found.overlap:.0%}. At "
        f"τ = {temperature:g} the positive holds {weight.positive.sum():.1%} of the softmax on average; half of what "
        f"the negatives hold is on those with a cosine above {numeral(half, '.2f')}, while half of all negatives lie "
        f"above {numeral(pairs, '.2f')}."
    )


def sampling(found: Cosines) -> str:
    """How many pairs the histograms rest on."""
    pairs = int(found.negative.counts.sum())
    if found.queries == found.images:
        return f"All {found.images:,} samples against {found.keys:,} negatives: {pairs:,} pairs."
    return (
        f"A fixed random sample of {found.queries:,} of {found.images:,} samples against {found.keys:,} negatives: "
        f"{pairs:,} pairs."
    )


def quantile_table(found: Cosines) -> pd.DataFrame:
    """One row a kind of pair: how many, and quantiles of their cosines (to 0.001)."""
    rows = []
    for kind, counts in found.counts().items():
        values = similarity.quantiles(counts, np.array(SHARES))
        named = {f"{share:.0%}": value for share, value in zip(SHARES, values, strict=True)}
        rows.append({"pairs": kind, "are": MEANING[kind], "count": int(counts.sum()), **named})
    return pd.DataFrame(rows)


def bar_table(found: Sequence[Cosines], weight: Weights | None = None) -> pd.DataFrame:
    """One row a bar."""
    parts = []
    for one in found:
        for histogram in one.histograms():
            parts.append(
                pd.DataFrame(
                    {
                        "run": one.name,
                        "step": one.step,
                        "pairs": histogram.name,
                        "from": edges()[:-1],
                        "to": edges()[1:],
                        "count": histogram.counts,
                    }
                )
            )
    table = pd.concat(parts, ignore_index=True)
    if weight is not None:
        held = {POSITIVES: weight.positive, NEGATIVES: weight.negative}
        table["softmax_weight"] = np.concatenate(
            [held.get(h.name, np.full(BARS, np.nan)) for one in found for h in one.histograms()]
        )
    return table


def overlap_table(found: Sequence[Cosines]) -> pd.DataFrame:
    """One row a run: medians and overlap."""
    rows = []
    for one in found:
        medians = {
            f"median, {kind}": float(similarity.quantiles(c, np.array([0.5]))[0])
            for kind, c in one.counts().items()
        }
        overlap = {"overlap of positives and hardest": one.overlap}
        rows.append(
            {"run": one.name, "step": one.step, "negatives": SOURCES[one.source], **overlap, **medians}
        )
    return pd.DataFrame(rows)


def positives_reading(found: Cosines, count: int) -> str:
    """How the gallery of positives is laid out."""
    shown = f"The {PAIRS} least alike of {count:,}" if count > PAIRS else f"{count:,}"
    return (
        f"{shown} samples whose two views have this cosine, the least alike first. A pair is {found.views}; of the "
        "second view the vector alone is kept, so the sample stands for both."
    )


def others_reading(run: Run, found: Cosines) -> str:
    """What the histograms of several runs show: imported vectors have no steps, and some runs no positives."""
    steps = "" if run.config.imported else ", each at its snapshot nearest to this step"
    positives = "The further the positives stand from the hardest negatives, the easier the task. "
    return (
        f"The same histograms for every run{steps}. "
        + positives * (found.positive is not None)
        + "Side by side, each has a height of its own."
    )


def pairs_reading(kind: str, source: str, count: int) -> str:
    """How the gallery of negatives is laid out."""
    shown = f"The {PAIRS} hardest pairs" if count == PAIRS else f"All {count:,} pairs"
    why = (
        " Queue slots are training images, of which runs keep no pixels: these are the evaluation images' pairs with "
        "the same cosine, and the slots are listed below."
        if source == QUEUE
        else ""
    )
    return (
        f"{shown} of evaluation samples ({MEANING[kind]}), most similar first: the query, then its negative. An orange "
        f"frame marks a negative of the query's own class.{why}"
    )


def slots_reading(count: int) -> str:
    """What the table of slots holds."""
    if not count:
        return "No slot of the queue has this cosine to any evaluation sample."
    first = f"The first {SLOTS}" if count == SLOTS else f"All {count:,}"
    return f"{first} pairs of an evaluation sample and a queue slot behind this bar, most similar first."


def positive_cards(run: Run, checkpoint: Checkpoint, bar: int) -> tuple[list[Card], int]:
    """Images whose two views have a cosine in this bar, the least alike first, and how many there are."""
    images, (_, view) = loaders.eval_set(run), _views(loaders.embeddings(run, checkpoint))
    if view is None:
        return [], 0
    sides = _sides(run, checkpoint, IMAGES)
    values = similarity.positive_cosines(sides.query, view[sides.rows])
    low, high = edges()[bar : bar + 2]
    inside = np.flatnonzero((values >= low) & ((values < high) | (bar == BARS - 1)))
    inside = inside[np.argsort(values[inside], kind="stable")]
    cards = [card(images, int(sides.rows[i]), f"cosine {numeral(values[i], '.3f')}") for i in inside[:PAIRS]]
    return cards, len(inside)


def pair_cards(run: Run, checkpoint: Checkpoint, kind: str, bar: int) -> list[list[Card]]:
    """Pairs of evaluation images of this kind with a cosine in this bar, hardest first: query, then negative."""
    images, sides = loaders.eval_set(run), _sides(run, checkpoint, IMAGES)
    found = _behind(images.labels, sides, kind, bar, PAIRS)
    lines = []
    for i, j, cosine in zip(found.query, found.key, found.cosine, strict=True):
        row, other = int(sides.rows[i]), int(sides.rows[j])
        alike = images.labels[row] == images.labels[other] >= 0
        told = f"cosine {numeral(cosine, '.3f')}"
        lines.append([card(images, row), card(images, other, told, WRONG if alike else "")])
    return lines


def slot_table(run: Run, checkpoint: Checkpoint, kind: str, bar: int) -> pd.DataFrame:
    """Pairs of an evaluation image and a queue slot behind this bar, hardest first; at most `SLOTS` of them."""
    images, queue, sides = loaders.eval_set(run), loaders.queue(checkpoint), _sides(run, checkpoint, QUEUE)
    assert queue is not None  # or there would be no sides
    found = _behind(images.labels, sides, kind, bar, SLOTS)
    mine = sides.rows[found.query]
    return pd.DataFrame(
        {
            "image": images.sample_ids[mine],
            "its class": [images.name_of(label) for label in images.labels[mine].tolist()],
            "cosine": found.cosine,
            "training image in the slot": queue.sample_ids[found.key],
            "class in the slot": [images.name_of(label) for label in queue.labels[found.key].tolist()],
            "age (steps)": queue.ages(checkpoint.step)[found.key],
        }
    )


def _behind(labels: Array, sides: _Sides, kind: str, bar: int, most: int) -> similarity.Pairs:
    """The hardest pairs of a kind behind a bar, as rows of the sides."""
    low, high = edges()[bar : bar + 2]
    return similarity.pairs_between(
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
