"""What the comparison of two checkpoints shows, computed once for each pair's content."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from moco_core.analysis import compare, geometry, neighbors
from moco_core.dashboard import loaders
from moco_core.dashboard.figures.metric_differences import MetricPair
from moco_core.dashboard.figures.neighbour_overlap import chance_overlap, shared_counts
from moco_core.dashboard.gallery import Card, card
from moco_core.dashboard.geometry_data import class_names
from moco_core.dashboard.loaders import CONTENT
from moco_core.dashboard.palette import NEUTRAL, RIGHT, WRONG, series_colour
from moco_core.dashboard.points import Colour, Pane, Points
from moco_core.dashboard.projection_view import axis_titles, frame_of
from moco_core.dashboard.projections import Shown
from moco_core.dashboard.text import plain
from moco_core.projections import Projection, ProjectionSettings, drawn_rows
from moco_core.runs import Checkpoint, EvalSet, Run, RunError

Array = np.ndarray

CLASS, OVERLAP, VOTES = "class", "overlap", "votes"
COLOURINGS = {CLASS: "class", OVERLAP: "shared neighbours", VOTES: "kNN vote right in"}
RIGHT_IN = ("both", "A alone", "B alone", "neither")
LINES = 12  # samples in a gallery
MOST_COMPARED = 50_000  # images; of more, a fixed random sample
FEW = 5_000  # images whose neighbours are found in a moment
BESIDE = 5  # neighbours beside each

# What stored metrics are called, and whether more (+1) or less (−1) of it is better. Tolerance is neither alone:
# it is bought with uniformity.
METRICS: Mapping[str, tuple[str, int]] = {
    "knn": ("kNN accuracy (projector output)", +1),
    "knn_features": ("kNN accuracy (backbone features)", +1),
    "linear": ("linear probe accuracy", +1),
    "alignment": ("alignment", -1),
    "uniformity": ("uniformity", -1),
    "tolerance": ("tolerance", 0),
    "effective_rank": ("effective rank (projector output)", +1),
    "effective_rank_features": ("effective rank (backbone features)", +1),
    "k_star": ("consistent length K*", +1),
}
IMPORTED_METRICS = {
    "knn": ("kNN accuracy", +1),
    **{name: METRICS[name] for name in ("alignment", "uniformity", "tolerance")},
    "effective_rank": ("effective rank (vectors at unit length)", +1),
    "effective_rank_features": ("effective rank (vectors as they came)", +1),
}
ACCURACIES = ("knn", "knn_features", "linear")
VOTING = {"knn": "query", "knn_features": "features"}
UNNAMED = "whether equal ids mean the same samples, only who made the files can know"
LEFT_OUT = (
    ", each left out in turn"  # runs store votes of training images; here the samples vote for each other
)
NOT_SETTINGS = {
    "value",
    "count",
    "filled",
    "measured",
    "anchors",
}  # of a stored metric: what doesn't define it


@dataclass(frozen=True)
class Side:
    """One of the two checkpoints."""

    run: Run
    checkpoint: Checkpoint

    @property
    def name(self) -> str:
        """Run and step."""
        return f"{self.run.name}, step {self.checkpoint.step}"

    @property
    def key(self) -> tuple[str, int, str]:
        """Names its content for caches."""
        return loaders.place(self.checkpoint)

    @property
    def embeddings(self) -> loaders.Embeddings:
        """Its arrays, one row an image of its own evaluation set."""
        return loaders.embeddings(self.run, self.checkpoint)

    @property
    def images(self) -> EvalSet:
        """Its own evaluation set."""
        return loaders.eval_set(self.run)


@dataclass(frozen=True)
class Common:
    """The N images that both evaluation sets hold."""

    rows_a: Array  # N, in the evaluation set of A
    rows_b: Array  # N, in the evaluation set of B
    whole: bool  # the two sets are one and the same
    images: EvalSet  # the N images
    images_id: str  # names them by content
    sentence: str  # how they were matched (Markdown)

    def __len__(self) -> int:
        return len(self.rows_a)

    @property
    def labelled(self) -> bool:
        """Whether any of them has a label."""
        return bool((self.images.labels >= 0).any())


# What tells the arguments of everything cached here apart.
SIDES: loaders.Keys = {
    Side: lambda side: side.key,
    Common: lambda common: common.images_id,
}
DRAWN: loaders.Keys = {
    **SIDES,
    Side: lambda side: (side.key, side.name),
    Shown: lambda shown: shown.content,
}


@dataclass(frozen=True)
class Neighbourhoods:
    """The k nearest of N images in each of the two spaces."""

    a: Array  # N×k, rows of the common images
    b: Array
    cosines_a: Array  # N×k
    cosines_b: Array
    jaccard: Array  # N
    k: int


@dataclass(frozen=True)
class Votes:
    """What the k nearest others vote for, N each, and how well each class does."""

    a: Array
    b: Array
    class_a: geometry.PerClass
    class_b: geometry.PerClass


def counterpart(a: Side, runs: Iterable[Run]) -> str:
    """The run to compare with unless another is chosen: one with the same images, of the same sweep if it can be."""
    images = a.run.info.get("eval_set_sha256")
    others = [run for run in runs if run.id != a.run.id and run.problem is None and run.steps]
    alike = [run for run in others if run.info.get("eval_set_sha256") == images]
    sweep = [run for run in alike if a.run.sweep and run.sweep == a.run.sweep]
    return next(iter(sweep or alike), a.run).id


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs={Side: lambda side: CONTENT[Run](side.run)})
def match(a: Side, b: Side) -> Common:
    """The images that both sides have embedded; ValueError that says why there are none."""
    images, others = a.images, b.images
    set_a, set_b = (str(side.run.info.get("eval_set_sha256")) for side in (a, b))
    if set_a == set_b:
        rows_a = rows_b = np.arange(len(images))
        sentence = _same(images)
        if len(images) <= MOST_COMPARED:
            return Common(rows_a, rows_b, True, images, set_a, sentence)
    else:
        rows_a, rows_b, how = _matched(a, b)
        whole = len(rows_a) == len(images) == len(others)
        sentence = (
            f"Both embed the same {len(rows_a):,} samples, matched by {how}."
            if whole
            else f"The evaluation sets differ: everything here is about the {len(rows_a):,} samples that both hold (of "
            f"{len(images):,} in A and {len(others):,} in B), matched by {how}."
        )
    if len(rows_a) > MOST_COMPARED:
        drawn = drawn_rows(len(rows_a), MOST_COMPARED)
        rows_a, rows_b = rows_a[drawn], rows_b[drawn]
        sentence += f" A fixed random sample of {len(drawn):,} of them is compared."
    part = EvalSet(
        images.thumbnails[rows_a],
        images.labels[rows_a],
        images.sample_ids[rows_a],
        images.class_names,
        None if images.names is None else tuple(images.names[row] for row in rows_a),
    )
    name = hashlib.sha256(f"{set_a} {set_b}".encode()).hexdigest()
    return Common(rows_a, rows_b, False, part, name, sentence)


@st.cache_resource(max_entries=16, show_spinner="Finding all nearest neighbours …", hash_funcs=SIDES)
def neighbourhoods(a: Side, b: Side, common: Common, k: int, layer: str) -> Neighbourhoods:
    """Neighbours among the common images; k is at most N − 1."""
    asked, k = k, min(k, len(common) - 1)
    if common.whole:
        near_a, near_b = (loaders.neighbours(s.run, s.checkpoint, k, layer) for s in (a, b))
    else:
        near_a, near_b = (neighbors.nearest(x, k) for x in _rows(a, b, common, layer))
    jaccard = neighbors.overlap(near_a[0], near_b[0])
    _found().add((a.key, b.key, common.images_id, asked, layer))
    return Neighbourhoods(near_a[0], near_b[0], near_a[1], near_b[1], jaccard, k)


def quickly_found(a: Side, b: Side, common: Common, k: int, layer: str) -> bool:
    """Whether `neighbourhoods` answers in a moment: few images, or it has been asked before."""
    return len(common) <= FEW or (a.key, b.key, common.images_id, k, layer) in _found()


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=SIDES)
def votes(a: Side, b: Side, common: Common, k: int, layer: str) -> Votes:
    """Votes among the common images; ValueError when none has a label."""
    labels = common.images.labels
    if common.whole:
        votes_a, votes_b = (loaders.votes(s.run, s.checkpoint, k, layer) for s in (a, b))
    else:
        k = min(k, max(int((labels >= 0).sum()) - 1, 1))
        votes_a, votes_b = (neighbors.knn_predict(x, labels, k=k) for x in _rows(a, b, common, layer))
    return Votes(
        votes_a, votes_b, compare.class_accuracy(labels, votes_a), compare.class_accuracy(labels, votes_b)
    )


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=SIDES)
def likeness(a: Side, b: Side, common: Common, layer: str) -> tuple[float, float]:
    """Linear CKA and Procrustes distance of the two spaces over the common images."""
    x, y = _rows(a, b, common, layer)
    return compare.linear_cka(x, y), compare.procrustes_distance(x, y)


@st.cache_data(max_entries=64, show_spinner="Measuring both …", hash_funcs=SIDES)
def metrics(a: Side, b: Side, common: Common) -> list[MetricPair]:
    """The metrics that both sides have under one definition, of the images that they share."""
    found = []
    imported = all(loaders.same_directions(side.run) for side in (a, b))
    for key, (name, better) in (IMPORTED_METRICS if imported else METRICS).items():
        if common.whole and not any(key in side.checkpoint.metrics for side in (a, b)):
            continue  # neither run asked for it
        values = _stored(a, b, key) if common.whole or key == "k_star" else None
        count = _images(a, b, key) if key in ACCURACIES else 0
        if values is None and key in VOTING:
            values, name = _vote_accuracies(a, b, common, VOTING[key]), name + LEFT_OUT
            count = int((common.images.labels >= 0).sum())
        elif values is None:
            values = _measured(a, common.rows_a, key), _measured(b, common.rows_b, key)
        if all(map(math.isfinite, values)):
            found.append(MetricPair(name, *values, better, count))
    return found


def metrics_reading(found: Sequence[MetricPair]) -> str:
    """How many metrics each side leads in, and which differences are more than chance (Markdown)."""
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
    return f"{text}. {_chance_reading([m for m in decided if m.count])}".rstrip()


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
    named = {} if images.names is None else {"name": images.names}
    return pd.DataFrame(
        {"sample_id": images.sample_ids, **named, "label": images.labels, "jaccard": near.jaccard}
    )


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
        f"**{plain(names[i])}** {word} most ({100 * change[i]:+.1f} points)"
        for i, word in ((best, "improved"), (worst, "lost"))
        if change[i] and (change[i] > 0) == (word == "improved")
    ]
    return (
        f"kNN accuracy by votes of these samples, each left out in turn: {a @ share:.1%} in A, {b @ share:.1%} in B."
        + (f" Class {' and class '.join(moved)}." if moved else " No class changed.")
    )


def colourings(common: Common) -> list[str]:
    """What colour can mean here."""
    return [c for c in COLOURINGS if c == OVERLAP or common.labelled]


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
            f"{letter}: {side.name}",
        )
        for letter, side, flat, one in zip("AB", sides, (flat_a, flat_b), pictures, strict=True)
    ]


def panes_table(drawn: Sequence[Pane], common: Common, near: Neighbourhoods | None) -> pd.DataFrame:
    """One row a drawn image: where it lies in either picture and, if known, the neighbours that it keeps."""
    rows = drawn[0].points.samples
    places = {
        f"{axis}_{letter}": pane.points.frames[0][:, i]
        for letter, pane in zip("AB", drawn, strict=True)
        for i, axis in enumerate("xy")
    }
    return pd.DataFrame(
        {
            "sample_id": common.images.sample_ids[rows],
            "label": common.images.labels[rows],
            **places,
        }
        | ({"jaccard": near.jaccard[rows]} if near else {})
    )


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
            known = images.labels[row] >= 0 and images.labels[other] >= 0
            mark = (RIGHT if images.labels[other] == images.labels[row] else WRONG) if known else ""
            line.append(card(images, other, f"cos {cosine:.3f}", mark))
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
    return f"**More than chance** on {samples} (95 %, binomial): {'; '.join(beyond)}."


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


def _matched(a: Side, b: Side) -> tuple[Array, Array, str]:
    """Rows of the samples that both evaluation sets hold, and by what they were matched; ValueError when too few."""
    images, others = a.images, b.images
    by_name = _told_apart(images) and _told_apart(others)
    keys = (images.names, others.names) if by_name else (images.sample_ids, others.sample_ids)
    rows_a, rows_b = compare.common(*map(np.asarray, keys))
    if not len(rows_a):
        raise ValueError(
            "A and B can't be compared sample by sample: their evaluation sets have no "
            f"{'name' if by_name else 'sample id'} in common"
        )
    found = len(rows_a)
    if by_name:
        how = "name"
    elif not (images.pictured or others.pictured):  # then there is nothing else to go by
        how = f"sample id alone: {UNNAMED}"
    elif images.thumbnails.shape[1:] == others.thumbnails.shape[1:]:
        how = "sample id and picture"
        alike = (images.thumbnails[rows_a] == others.thumbnails[rows_b]).all(axis=(1, 2, 3))
        rows_a, rows_b = rows_a[alike], rows_b[alike]
    else:
        how = "sample id, in the same data set"
        if _dataset(a.run) != _dataset(b.run):
            rows_a = rows_a[:0]
    if not len(rows_a):
        raise ValueError(
            f"A and B can't be compared sample by sample: their evaluation sets share {found:,} sample ids, but not "
            "the samples behind them; they come from different data sets. To compare two encoders, make a run of one "
            "folder of images with each: python -m moco_core embed"
        )
    if len(rows_a) < 3:
        raise ValueError(
            f"A and B share {len(rows_a)} of their samples; neighbourhoods can be compared from 3 on"
        )
    return rows_a, rows_b, how


def _same(images: EvalSet) -> str:
    """What is said of two evaluation sets that are one and the same."""
    if images.pictured:
        return f"Both embed the same {len(images):,} images."
    if images.names is not None:
        return f"Both embed the same {len(images):,} samples."
    return f"Both hold {len(images):,} samples with the same ids: {UNNAMED}."


def _told_apart(images: EvalSet) -> bool:
    """Whether each sample has a name of its own."""
    return images.names is not None and len(set(images.names)) == len(images) and "" not in images.names


def _dataset(run: Run) -> Any:
    """What run.json says the images are; a value of its own where it says nothing."""
    described = run.info.get("dataset")
    return described.get("name") if isinstance(described, dict) and described.get("name") else run.id


@st.cache_resource
def _found() -> set[tuple[Any, ...]]:
    """The arguments for which `neighbourhoods` has searched since the app was started."""
    return set()


def _stored(a: Side, b: Side, key: str) -> tuple[float, float] | None:
    """A metric as both runs stored it, if both did under the same definition."""
    entries = [side.checkpoint.metrics.get(key, {}) for side in (a, b)]
    if not all(isinstance(entry.get("value"), int | float) for entry in entries):
        return None
    settings = [{k: v for k, v in entry.items() if k not in NOT_SETTINGS} for entry in entries]
    if settings[0] != settings[1]:
        return None
    return float(entries[0]["value"]), float(entries[1]["value"])


def _images(a: Side, b: Side, key: str) -> int:
    """How many images both runs took a stored metric over, at the least; 0 where one doesn't say."""
    counts = [side.checkpoint.metrics.get(key, {}).get("count", 0) for side in (a, b)]
    return min(counts) if all(isinstance(count, int) for count in counts) else 0


def _vote_accuracies(a: Side, b: Side, common: Common, layer: str) -> tuple[float, float]:
    """Share of the common images whose neighbours vote right in A and in B; NaN without labels or this layer."""
    known = common.images.labels >= 0
    try:
        found = votes(a, b, common, neighbors.K, layer)
    except ValueError:
        return math.nan, math.nan
    truth = common.images.labels[known]
    return float((found.a[known] == truth).mean()), float((found.b[known] == truth).mean())


def _measured(side: Side, rows: Array, key: str) -> float:
    """A metric of some of the images of one side; NaN where it can't be had from the embeddings alone."""
    found, labels = side.embeddings, side.images.labels[rows]
    try:
        match key:
            case "alignment":
                return math.nan if found.second_view is None else geometry.alignment(
                    found.query[rows], found.second_view[rows]
                )  # fmt: skip
            case "uniformity":
                return geometry.uniformity(found.query[rows])
            case "tolerance":
                return geometry.tolerance(found.query[rows], labels)
            case "effective_rank" | "effective_rank_features":
                return geometry.effective_rank(
                    found.layer("query" if key == "effective_rank" else "features")[rows]
                )
            case _:
                return math.nan
    except ValueError:  # no labels, no features: this metric isn't there
        return math.nan


def _rows(a: Side, b: Side, common: Common, layer: str) -> tuple[Array, Array]:
    """One layer of both sides over the common images."""
    first, second = a.embeddings.layer(layer), b.embeddings.layer(layer)
    return first[common.rows_a], second[common.rows_b]


def layer_name(a: Side, b: Side, layer: str) -> str:
    """What a layer is called on both sides."""
    names = {loaders.layer_name(side.run, layer) for side in (a, b)}
    return names.pop() if len(names) == 1 else loaders.LAYERS[layer]


def layers(a: Side, b: Side) -> list[str]:
    """The layers that both sides hold."""
    both = (a.embeddings, b.embeddings)
    found = [name for name in ("query", "features") if all(getattr(e, name) is not None for e in both)]
    if not found:
        raise RunError("A and B hold no layer in common")
    return found
