"""From a run's embeddings to the points of a picture, and how faithful that picture is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moco_core.analysis.align import align
from moco_core.analysis.checks import evenly
from moco_core.analysis.projection import METHODS, Progress, faithfulness, principal_components, project
from moco_core.runs import Checkpoint, Run, RunError, RunStore

Array = np.ndarray

LAYERS = ("query", "features")
ALIGNED = ("no", "steps", "sweep")
MOST_SAMPLES = 100_000  # drawn at once; of more, a fixed random sample
MOST_SLOTS = 10_000  # of the queue drawn at once; of more, evenly spaced ones from oldest to newest
QUERY, KEY, QUEUE = range(3)  # kinds of points


@dataclass(frozen=True)
class ProjectionSettings:
    """What a picture is made of, and how. ValueError for settings out of range or that don't go together."""

    method: str = "umap"
    dim: int = 2
    neighbors: int = 15
    min_dist: float = 0.1
    seed: int = 0
    layer: str = "query"  # the embeddings (projector output), or the backbone's features
    keys: bool = False  # the key encoder's embeddings too
    queue: bool = False  # the queue's keys too
    aligned: str = "no"  # several pictures, points kept in place: all "steps" of the run, or its "sweep"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")
        if self.dim not in (2, 3):
            raise ValueError(f"dim must be 2 or 3, got {self.dim!r}")
        if not 2 <= self.neighbors <= 1000:
            raise ValueError(f"neighbors must lie in [2, 1000], got {self.neighbors!r}")
        if not 0 <= self.min_dist <= 1:
            raise ValueError(f"min_dist must lie in [0, 1], got {self.min_dist!r}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie in [0, 2³²), got {self.seed!r}")
        if self.layer not in LAYERS:
            raise ValueError(f"layer must be one of {', '.join(LAYERS)}; got {self.layer!r}")
        if self.layer != "query" and (self.keys or self.queue):
            raise ValueError(f"keys and queue live in the query embeddings' space, not in {self.layer}")
        if self.aligned not in ALIGNED:
            raise ValueError(f"aligned must be one of {', '.join(ALIGNED)}; got {self.aligned!r}")
        if self.aligned != "no" and (self.keys or self.queue):
            raise ValueError(
                "aligned pictures show query embeddings or features alone, without keys and queue"
            )


@dataclass(frozen=True)
class Frame:
    """One of the pictures that a projection consists of."""

    run: Run
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Projection:
    """P points, sorted by kind, in S pictures: 1, or several when aligned (see `frames`)."""

    coordinates: Array  # S×P×dim float32
    kinds: Array  # P uint8: QUERY, KEY or QUEUE
    samples: Array  # P int32, row in the evaluation set; −1 for the queue's keys
    slots: Array  # P int32, row in the queue (0 the oldest); −1 for all others
    steps: Array  # S int64, the step of each picture
    share: Array  # dim float32, each axis' share of the variance; empty unless PCA
    trustworthiness: Array  # S float64, of the query points; NaN until measured
    continuity: Array  # S float64
    k: int  # neighbours of these two; 0 until measured

    @property
    def measured(self) -> bool:
        """Whether trustworthiness and continuity are known."""
        return self.k > 0


def drawn_rows(count: int, most: int = MOST_SAMPLES) -> Array:
    """Rows to draw of `count` samples, ascending: all, or beyond `most` a fixed random sample."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def frames(run: Run, checkpoint: Checkpoint, settings: ProjectionSettings) -> list[Frame]:
    """The pictures of a projection, in order.

    One; or one for each step of the run; or one for each run of its sweep that has the same evaluation images,
    at the same step or, where a run has none such, at its last.
    """
    if settings.aligned == "steps":
        return [Frame(run, step) for step in run.steps]
    if settings.aligned == "sweep":
        others = [other for other in sweep_mates(run) if other.id != run.id]
        found = [Frame(run, checkpoint), *(Frame(o, _same_step(o, checkpoint.step)) for o in others)]
        return sorted(found, key=lambda frame: (frame.run.created, frame.run.id))
    return [Frame(run, checkpoint)]


def sweep_mates(run: Run) -> list[Run]:
    """The readable runs of a run's sweep, itself included, that embed the same evaluation images."""
    images = run.info.get("eval_set_sha256")
    if not run.sweep or images is None:
        return [run]
    return [
        other
        for other in RunStore(run.path.parent)
        if other.problem is None
        and other.sweep == run.sweep
        and other.info.get("eval_set_sha256") == images
        and other.steps
    ]


def _same_step(run: Run, step: int) -> Checkpoint:
    """The snapshot of this step, or the last where there is none such."""
    return next((c for c in run.steps if c.step == step), run.steps[-1])


def compute(
    run: Run,
    checkpoint: Checkpoint,
    settings: ProjectionSettings,
    progress: Progress | None = None,
    shown: Sequence[Frame] = (),
) -> Projection:
    """The picture, not measured yet. ValueError (`RunError`) when the run lacks what it needs.

    `shown` are its `frames` where the caller has them: those of a sweep that trains change while one looks.
    """
    shown = shown or frames(run, checkpoint, settings)
    steps = [frame.checkpoint.step for frame in shown]
    rows = drawn_rows(len(run.eval_set))
    chosen = (settings.method, settings.dim, settings.seed, settings.neighbors, settings.min_dist)
    if settings.aligned != "no":
        parts = [_layer(frame.run, frame.checkpoint, settings.layer)[rows] for frame in shown]
        pictures = align(parts, *chosen, progress=progress)
        return _picture(pictures, rows, (QUERY,), np.zeros(0, np.int64), steps)
    space, kinds, slots = _space(run, checkpoint, settings, rows)
    if settings.method == "pca":
        found = principal_components(space, settings.dim)
        return _picture(found.coordinates[None], rows, kinds, slots, steps, found.share)
    return _picture(project(space, *chosen, progress=progress)[None], rows, kinds, slots, steps)


def measure(
    shown: Sequence[Frame],
    settings: ProjectionSettings,
    picture: Projection,
    progress: Progress | None = None,
) -> Projection:
    """The same picture of `shown` with its trustworthiness and continuity: of the query points, among themselves.

    Fewer than three points can't be measured; they stay NaN with `k` 1.
    """
    queries = picture.kinds == QUERY
    rows = picture.samples[queries]
    values = []
    for number, frame in enumerate(shown):
        if progress:
            progress("Measuring how faithful the picture is", number / len(picture.steps))
        if len(rows) < 3:
            continue
        space = _layer(frame.run, frame.checkpoint, settings.layer)[rows]
        values.append(faithfulness(space, picture.coordinates[number, queries]))
    nothing = np.full(len(picture.steps), np.nan)
    return dataclasses.replace(
        picture,
        trustworthiness=np.array([v.trustworthiness for v in values]) if values else nothing,
        continuity=np.array([v.continuity for v in values]) if values else nothing,
        k=values[0].k if values else 1,
    )


def _picture(
    coordinates: Array,
    rows: Array,
    kinds: tuple[int, ...],
    slots: Array,
    steps: list[int],
    share: Array | tuple[()] = (),
) -> Projection:
    images = [kind for kind in kinds if kind != QUEUE]
    unknown = np.full(len(steps), np.nan)
    return Projection(
        coordinates=coordinates.astype(np.float32),
        kinds=np.repeat(np.array([*images, QUEUE], np.uint8), [*(len(rows) for _ in images), len(slots)]),
        samples=np.concatenate([*(rows for _ in images), np.full(len(slots), -1)]).astype(np.int32),
        slots=np.concatenate([np.full(len(images) * len(rows), -1), slots]).astype(np.int32),
        steps=np.array(steps, np.int64),
        share=np.asarray(share, np.float32),
        trustworthiness=unknown,
        continuity=unknown,
        k=0,
    )


def _space(
    run: Run, checkpoint: Checkpoint, settings: ProjectionSettings, rows: Array
) -> tuple[Array, tuple[int, ...], Array]:
    """All vectors of one picture, one below another; the kinds among them; the queue's slots."""
    parts, kinds = [_layer(run, checkpoint, settings.layer)[rows]], [QUERY]
    slots = np.zeros(0, np.int64)
    if settings.keys:
        parts.append(_layer(run, checkpoint, "key")[rows])
        kinds.append(KEY)
    if settings.queue:
        queue = checkpoint.queue
        slots = evenly(queue.filled, MOST_SLOTS)
        parts.append(queue.keys[slots])
        kinds.append(QUEUE)
    widths = {part.shape[1] for part in parts}
    if len(widths) > 1:
        raise RunError(
            f"query, keys and queue of step {checkpoint.step} have different widths: {sorted(widths)}"
        )
    return np.concatenate(parts), tuple(kinds), slots


def _layer(run: Run, checkpoint: Checkpoint, layer: str) -> Array:
    rows: Array = getattr(checkpoint, layer)
    if len(rows) != len(run.eval_set):
        raise RunError(
            f"step {checkpoint.step} of {run.id} has {len(rows)} embeddings for {len(run.eval_set)} images"
        )
    return rows
