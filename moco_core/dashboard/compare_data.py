"""Two checkpoints over the samples that both have embedded, compared once for each pair's content."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from moco_core.analysis import compare, geometry, neighbors
from moco_core.dashboard import loaders
from moco_core.dashboard.figures.metric_differences import MetricPair
from moco_core.dashboard.loaders import CONTENT
from moco_core.dashboard.selection import labels
from moco_core.projections import drawn_rows
from moco_core.runs import Checkpoint, EvalSet, Run, RunError

Array = np.ndarray

MOST_COMPARED = 50_000  # images; of more, a fixed random sample
FEW = 5_000  # images whose neighbours are found in a moment

# What stored metrics are called, and whether more (+1) or less (−1) of it is better. Tolerance is neither alone:
# it is bought with uniformity.
METRICS: Mapping[str, tuple[str, int]] = {
    "knn": ("kNN accuracy (query embeddings)", +1),
    "knn_features": ("kNN accuracy (backbone features)", +1),
    "linear": ("linear probe accuracy", +1),
    "alignment": ("alignment", -1),
    "uniformity": ("uniformity", -1),
    "tolerance": ("tolerance", 0),
    "effective_rank": ("effective rank (query embeddings)", +1),
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
LEFT_OUT = ", each left out in turn"  # runs store votes of training images; here samples vote for each other
# Of a stored metric, what doesn't define it.
NOT_SETTINGS = {"value", "count", "filled", "measured", "anchors"}


@dataclass(frozen=True)
class Side:
    """One of the two checkpoints."""

    run: Run
    checkpoint: Checkpoint

    @property
    def key(self) -> tuple[bytes, int, str]:
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


def called(a: Side, b: Side) -> list[str]:
    """What A and B are called: the run, told apart as where it is picked, and its step unless it was imported."""
    names = labels(list({side.run.id: side.run for side in (a, b)}.values()))
    return [
        names[side.run.id] + ("" if side.run.config.imported else f", step {side.checkpoint.step}")
        for side in (a, b)
    ]


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


# What tells the arguments of everything cached here apart.
SIDES: loaders.Keys = {
    Side: lambda side: side.key,
    Common: lambda common: common.images_id,
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


def counterpart(a: Run, runs: Iterable[Run]) -> str:
    """The run to compare with unless another is chosen: one with the same images, of the same sweep if it can be."""
    images = a.info.get("eval_set_sha256")
    others = [run for run in runs if run.id != a.id and run.problem is None and run.steps]
    alike = [run for run in others if run.info.get("eval_set_sha256") == images]
    sweep = [run for run in alike if a.sweep and run.sweep == a.sweep]
    return next(iter(sweep or alike), a).id


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
    return run.facts("dataset").get("name") or run.id


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
