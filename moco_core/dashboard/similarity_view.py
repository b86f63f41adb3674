"""What the similarity page shows of what was computed: words, tables and cards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from moco_core.analysis import similarity
from moco_core.analysis.similarity import HARDEST, SoftmaxWeights
from moco_core.dashboard import loaders
from moco_core.dashboard.figures.cosine_histograms import Panel, Weights
from moco_core.dashboard.gallery import Card, card
from moco_core.dashboard.palette import WRONG
from moco_core.dashboard.similarity_data import (
    BARS,
    FALSE,
    HARD,
    IMAGES,
    NEGATIVES,
    POSITIVES,
    QUEUE,
    Cosines,
    edges,
    pairs_behind,
    positives_behind,
)
from moco_core.dashboard.text import numeral
from moco_core.runs import Checkpoint, Run

SOURCES = {QUEUE: "the queue", IMAGES: "other evaluation samples"}
MEANING = {
    POSITIVES: "two views of one sample",
    NEGATIVES: "a sample and every negative",
    HARD: f"a sample and its {HARDEST} most similar negatives",
    FALSE: "a sample and the negatives of its own class",
}
SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
PAIRS = 24  # in a gallery
SLOTS = 100  # in the table of queue slots


def temperature_help(run: Run) -> str:
    """Where the slider of τ stands at first, and why."""
    if run.config.imported:
        return "At which τ these vectors were trained is not known here; choose one."
    return f"This run was trained at τ = {run.config.temperature:g}."


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
    images, (found, cosines) = loaders.eval_set(run), positives_behind(run, checkpoint, bar)
    shown = zip(found[:PAIRS].tolist(), cosines[:PAIRS].tolist(), strict=True)
    return [card(images, row, f"cosine {numeral(cosine, '.3f')}") for row, cosine in shown], len(found)


def pair_cards(run: Run, checkpoint: Checkpoint, kind: str, bar: int) -> list[list[Card]]:
    """Pairs of evaluation images of this kind with a cosine in this bar, hardest first: query, then negative."""
    images, found = loaders.eval_set(run), pairs_behind(run, checkpoint, IMAGES, kind, bar, PAIRS)
    lines = []
    for row, other, cosine in zip(
        found.query.tolist(), found.key.tolist(), found.cosine.tolist(), strict=True
    ):
        alike = images.labels[row] == images.labels[other] >= 0
        told = f"cosine {numeral(cosine, '.3f')}"
        lines.append([card(images, row), card(images, other, told, WRONG if alike else "")])
    return lines


def slot_table(run: Run, checkpoint: Checkpoint, kind: str, bar: int) -> pd.DataFrame:
    """Pairs of an evaluation image and a queue slot behind this bar, hardest first; at most `SLOTS` of them."""
    images, found = loaders.eval_set(run), pairs_behind(run, checkpoint, QUEUE, kind, bar, SLOTS)
    queue = loaders.queue(checkpoint)
    assert queue is not None  # or there would be no pairs
    return pd.DataFrame(
        {
            "image": images.sample_ids[found.query],
            "its class": [images.name_of(label) for label in images.labels[found.query].tolist()],
            "cosine": found.cosine,
            "training image in the slot": queue.sample_ids[found.key],
            "class in the slot": [images.name_of(label) for label in queue.labels[found.key].tolist()],
            "age (steps)": queue.ages(checkpoint.step)[found.key],
        }
    )
