"""What the comparison of two checkpoints shows of what was computed: pictures, words, tables and cards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from moco_core.analysis import compare
from moco_core.analysis.neighbors import chance_overlap, shared_counts
from moco_core.dashboard import loaders
from moco_core.dashboard.compare_data import (
    SIDES,
    Common,
    Neighbourhoods,
    Side,
    Votes,
    called,
    neighbourhoods,
    votes,
)
from moco_core.dashboard.figures.metric_differences import MetricPair
from moco_core.dashboard.gallery import Card, card, neighbour
from moco_core.dashboard.geometry_data import class_names
from moco_core.dashboard.geometry_view import sample_columns
from moco_core.dashboard.palette import NEUTRAL, series_colour
from moco_core.dashboard.points import Colour, Pane, Points
from moco_core.dashboard.projection_view import axis_titles, frame_of
from moco_core.dashboard.projections import Shown
from moco_core.dashboard.text import numeral, plain
from moco_core.projections import Projection, ProjectionSettings
from moco_core.runs import EvalSet

Array = np.ndarray

CLASS, OVERLAP, VOTES = "class", "overlap", "votes"
COLOURINGS = {CLASS: "class", OVERLAP: "shared neighbours", VOTES: "kNN vote right in"}
RIGHT_IN = ("both", "A alone", "B alone", "neither")
LINES = 12  # samples in a gallery
BESIDE = 5  # neighbours beside each
DRAWN: loaders.Keys = {
    **SIDES,
    Side: lambda side: (side.key, side.run.name),
    Shown: lambda shown: shown.content,
}


def metrics_reading(found: Sequence[MetricPair]) -> str:
    """Which accuracies differ by more than chance, then how many metrics each side leads in (Markdown)."""
    decided = [m for m in found if m.better]
    if not decided:
        return "The two share no metric under one definition."
    ahead = {side: sum(m.winner == side for m in decided) for side in "AB"}
    first, second = sorted("AB", key=lambda side: -ahead[side])
    if not ahead[first]:
        return f"The two are equal in all metrics ({len(decided)})."
    metrics = "metric" if ahead[first] == 1 else "metrics"
    text = f"{first} leads in {ahead[first]} {metrics}, {second} in {ahead[second] or 'none'}"
    if equal := len(decided) - ahead["A"] - ahead["B"]:
        text += f", {equal} {'is' if equal == 1 else 'are'} equal"
    return f"{_chance_reading([m for m in decided if m.count])} {text}.".lstrip()


def collapse_reading(letter: str, side: Side) -> str:
    """A warning, in Markdown, where a side has collapsed, which flatters two of its metrics; else empty."""
    reason = loaders.collapse_reason(side.checkpoint)
    return f"{letter}: {plain(reason)} Low alignment and high tolerance come with that." if reason else ""


def metrics_table(found: Sequence[MetricPair]) -> pd.DataFrame:
    """One row a metric."""
    return pd.DataFrame(
        [
            {"metric": m.name, "A": m.a, "B": m.b, "B − A": m.difference, "better": m.winner or "–"}
            for m in found
        ],
        columns=["metric", "A", "B", "B − A", "better"],
    )


def overlap_reading(near: Neighbourhoods) -> str:
    """What the overlap says, in a sentence (Markdown)."""
    mean, chance = float(near.jaccard.mean()), chance_overlap(len(near.jaccard), near.k)
    kept = float(shared_counts(near.jaccard, near.k).mean())
    return (
        f"On average a sample keeps {kept:.1f} of its {near.k} nearest neighbours (mean Jaccard index "
        f"{mean:.2f}; unrelated spaces would have {chance:.2f})."
    )


def overlap_table(near: Neighbourhoods, images: EvalSet) -> pd.DataFrame:
    """One row an image."""
    return pd.DataFrame(sample_columns(images) | {"jaccard": near.jaccard})


def class_columns(found: Votes, common: Common) -> tuple[list[str], Array, Array, Array]:
    """Names, accuracy in A, accuracy in B and samples of each class."""
    names = class_names(common.images)
    labels = found.class_a.labels.tolist()
    return [names[label] for label in labels], found.class_a.value, found.class_b.value, found.class_a.count


def class_table(found: Votes, common: Common) -> pd.DataFrame:
    """One row a class."""
    names, a, b, count = class_columns(found, common)
    return pd.DataFrame({"class": names, "samples": count, "A": a, "B": b, "B − A": b - a})


def class_reading(found: Votes, common: Common) -> str:
    """The overall accuracy of both, and the classes that moved most (Markdown)."""
    names, a, b, count = class_columns(found, common)
    share = count / count.sum()
    change = b - a
    best, worst = int(change.argmax()), int(change.argmin())
    moved = [
        f"**{plain(names[i])}** {word} most ({numeral(100 * change[i], '+.1f')} points)"
        for i, word in ((best, "improved"), (worst, "lost"))
        if change[i] and (change[i] > 0) == (word == "improved")
    ]
    return (
        f"kNN accuracy by votes of these samples, each left out in turn: {a @ share:.1%} in A, {b @ share:.1%} in B."
        + (f" Class {' and class '.join(moved)}." if moved else " No class changed.")
    )


def colourings(common: Common) -> list[str]:
    """What colour can mean here."""
    return [c for c in COLOURINGS if c == OVERLAP or common.images.labelled]


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=DRAWN)
def panes(
    a: Side,
    b: Side,
    pictures: tuple[Shown, Shown],
    settings: ProjectionSettings,
    common: Common,
    searched: bool,
    colour: str,
    k: int,
) -> list[Pane]:
    """Both pictures over the common images, B's turned onto A's, coloured alike.

    Unless `searched` their tips say nothing of neighbours; the colour `OVERLAP` needs it.
    """
    near = neighbourhoods(a, b, common, k, settings.layer) if searched else None
    sides = (a, b)
    drawn = [
        _drawn(
            one.picture, frame_of(side.run, side.checkpoint, settings, one.picture), rows, len(side.images)
        )
        for one, side, rows in zip(pictures, sides, (common.rows_a, common.rows_b), strict=True)
    ]
    shown, at_a, at_b = np.intersect1d(drawn[0][0], drawn[1][0], return_indices=True)
    flat_a = drawn[0][1][at_a]
    flat_b = drawn[1][1][at_b]
    if len(shown) > 1:
        flat_b = compare.superimposed(flat_b, flat_a)
    colours = _colour(a, b, common, near, colour, k, shown, settings.layer)
    return [
        Pane(
            Points(flat[None].astype(np.float32), shown, _axes(one.picture, settings)),
            colours,
            f"{letter}: {name}",
        )
        for letter, name, flat, one in zip("AB", called(a, b), (flat_a, flat_b), pictures, strict=True)
    ]


def panes_table(drawn: Sequence[Pane], common: Common, near: Neighbourhoods | None) -> pd.DataFrame:
    """One row a drawn image: where it lies in either picture and, if known, the neighbours that it keeps."""
    rows = drawn[0].points.samples
    places = {
        f"{axis}_{letter}": pane.points.frames[0][:, i]
        for letter, pane in zip("AB", drawn, strict=True)
        for i, axis in enumerate("xy")
    }
    samples = pd.DataFrame(sample_columns(common.images)).iloc[rows].reset_index(drop=True)
    return samples.assign(**places, **({"jaccard": near.jaccard[rows]} if near else {}))


def most_changed(near: Neighbourhoods, start: int = 0) -> Array:
    """Rows of the images that share the fewest neighbours, a page of them from `start`."""
    return np.argsort(near.jaccard, kind="stable")[start : start + LINES]


def neighbour_cards(row: int, near: Neighbourhoods, common: Common) -> tuple[list[Card], list[Card]]:
    """One image with its nearest in A, and with its nearest in B."""
    images = common.images
    sides = []
    for found, cosines in ((near.a, near.cosines_a), (near.b, near.cosines_b)):
        line = [card(images, row, f"shared {near.jaccard[row]:.2f}")]
        for other, cosine in zip(found[row, :BESIDE].tolist(), cosines[row, :BESIDE].tolist(), strict=True):
            line.append(neighbour(images, row, other, f"cos {numeral(cosine, '.3f')}"))
        sides.append(line)
    return sides[0], sides[1]


def _chance_reading(accuracies: Sequence[MetricPair]) -> str:
    """Which accuracies differ by more than chance; empty without any. Other metrics have no error here."""
    if not accuracies:
        return ""
    samples = f"{min(m.count for m in accuracies):,} samples"
    beyond = [
        f"{m.name}, by {100 * abs(m.difference):.1f} points for {m.winner}"
        for m in accuracies
        if m.beyond_chance
    ]
    if not beyond:
        return f"On {samples}, chance alone may explain every difference in accuracy."
    return f"**More than chance** on {samples} (95%, binomial): {'; '.join(beyond)}."


def _drawn(picture: Projection, frame: int, rows: Array, images: int) -> tuple[Array, Array]:
    """Common images (by place among them) that a picture holds as queries, and where it puts them."""
    place = np.full(images, -1)
    place[rows] = np.arange(len(rows))
    query = picture.kinds == 0
    common = place[picture.samples[query]]
    return common[common >= 0], picture.coordinates[frame][query][common >= 0]


def _axes(picture: Projection, settings: ProjectionSettings) -> tuple[str, ...]:
    """Axes without the shares of variance, which no longer hold for a picture that was turned."""
    method = "pca" if len(picture.share) else settings.method  # components stand in while UMAP is being made
    plain_picture = dataclasses.replace(picture, share=np.zeros(0, np.float32))
    return axis_titles(plain_picture, dataclasses.replace(settings, method=method))


def _colour(
    a: Side,
    b: Side,
    common: Common,
    near: Neighbourhoods | None,
    colour: str,
    k: int,
    shown: Array,
    layer: str,
) -> Colour:
    details = {"shared neighbours (Jaccard)": near.jaccard[shown]} if near else {}
    if colour == OVERLAP and near:
        return Colour("shared neighbours", near.jaccard[shown])
    labels = common.images.labels[shown]
    if colour == CLASS:
        return Colour.by_class("class", labels, class_names(common.images), details=details)
    found = votes(a, b, common, k, layer)
    right_a, right_b = found.a[shown] == labels, found.b[shown] == labels
    codes = np.select([right_a & right_b, right_a, right_b], [0, 1, 2], 3)
    colours = (NEUTRAL, *map(series_colour, (0, 1, 3)))
    return Colour("kNN vote right in", np.where(labels < 0, -1, codes), RIGHT_IN, colours, details=details)
