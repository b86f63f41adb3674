"""A run made of vectors from elsewhere: written once, whole, and read by every page like any other."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moco_core import __version__
from moco_core.analysis import geometry
from moco_core.analysis.checks import as_rows, evenly
from moco_core.analysis.neighbors import TEMPERATURE, K, knn_accuracy
from moco_core.config import IMPORTED, ConfigError, TrainConfig
from moco_core.interop.problem import VectorsError
from moco_core.runs import RunWriter, schema
from moco_core.runs.files import ABANDONED, make_folder

Array = np.ndarray

UNFINISHED = ".importing-"  # how the folder of an import under way begins
MEASURED = 20_000  # rows behind the metrics that compare all pairs; of more, this many evenly over the file


@dataclass(frozen=True)
class Vectors:
    """N samples as an encoder from elsewhere sees them; checked when made, `VectorsError` if they can't be used."""

    values: Array  # N×D, kept as float32
    labels: Array | None = None  # N class numbers, negative where unknown; all unknown when None
    class_names: tuple[str, ...] = ()
    sample_ids: Array | None = None  # N whole numbers, each once; 0 … N−1 when None
    names: tuple[str, ...] | None = None  # N
    thumbnails: Array | None = None  # N×H×W×C uint8, C 1 or 3
    second_view: Array | None = None  # N×D, the same samples seen another way: positive pairs
    features: Array | None = None  # N×F, what lies before the values in the encoder; the values when None

    def __post_init__(self) -> None:
        """Bring everything into its type and check that it belongs together."""
        values = _rows(self.values, "the vectors")
        count = len(values)
        labels = np.full(count, -1) if self.labels is None else np.asarray(self.labels)
        ids = np.arange(count) if self.sample_ids is None else np.asarray(self.sample_ids)
        for name, column in (("labels", labels), ("sample ids", ids)):
            if column.shape != (count,) or column.dtype.kind not in "iu":
                raise VectorsError(
                    f"{name} must be {count:,} whole numbers, one a vector; got {column.dtype} {column.shape}"
                )
        known, counts = np.unique(ids, return_counts=True)
        if len(known) < count:
            twice = known[counts > 1]
            raise VectorsError(
                f"sample ids must differ; {len(twice):,} occur more than once, the first is {twice[0]}"
            )
        if self.names is not None and len(self.names) != count:
            raise VectorsError(f"there must be a name for each of {count:,} vectors; got {len(self.names):,}")
        images = np.zeros((count, 0, 0, 0), np.uint8) if self.thumbnails is None else self.thumbnails
        if images.ndim != 4 or images.dtype != np.uint8 or len(images) != count:
            raise VectorsError(
                f"images must be bytes N×H×W×C, one of {count:,} a vector; got {images.dtype} {images.shape}"
            )
        second = None if self.second_view is None else _rows(self.second_view, "the second view")
        if second is not None and second.shape != values.shape:
            raise VectorsError(
                f"the second view must have the shape of the vectors, {_shape(values)}; got {_shape(second)}"
            )
        features = None if self.features is None else _rows(self.features, "the features", zero=True)
        if features is not None and len(features) != count:
            raise VectorsError(f"there must be features for each of {count:,} vectors; got {len(features):,}")
        fields = {
            "values": values,
            "labels": np.where(labels < 0, -1, labels).astype(np.int64),
            "sample_ids": ids.astype(np.int64),
            "thumbnails": images,
            "second_view": second,
            "features": features,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.values)


def write_imported(root: Path, vectors: Vectors, *, name: str, source: Mapping[str, Any]) -> Path:
    """Measure the vectors and write them as a finished run with one step, 0; returns the run directory.

    `source` goes to run.json: `kind` (import or embed), `file`, `sha256`, `format` and whatever else says where
    the vectors come from. Nothing is seen in `root` before the run is whole. `VectorsError` for more dimensions
    than a run takes, OSError when `root` can't be written.
    """
    try:
        config = TrainConfig(
            dataset=IMPORTED, method=IMPORTED, encoder=IMPORTED, dim=vectors.values.shape[1], name=name
        )
    except ConfigError as error:
        raise VectorsError(str(error)) from error
    query = as_rows(vectors.values, "values", unit=True)
    arrays = {"query": query, "features": vectors.values if vectors.features is None else vectors.features}
    if vectors.second_view is not None:
        arrays["second_view"] = as_rows(vectors.second_view, "second_view", unit=True)
    metrics = measured(vectors, query)
    make_folder(root)
    _clear_abandoned(root)
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=root) as hidden:
        writer = RunWriter.create(Path(hidden), config)
        samples = {name: getattr(vectors, name) for name in ("thumbnails", "labels", "sample_ids")}
        if vectors.names is not None:
            samples[schema.NAMES] = schema.packed_names(vectors.names)
        writer.write_eval_set(samples, vectors.class_names)
        writer.describe(
            dataset={"name": str(source.get("file", name)), "held_out": len(vectors)},
            source=dict(source),
            versions={"moco_core": __version__},
        )
        writer.write_step(0, {schema.EMBEDDINGS_FILE: arrays}, metrics)
        writer.set_status(state="finished", step=0, total_steps=0)
        writer.move_to(root)
    return writer.path


def _clear_abandoned(root: Path) -> None:
    """Remove what imports that were killed have left behind."""
    for folder in root.glob(f"{UNFINISHED}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > ABANDONED:
                shutil.rmtree(folder)


def measured(vectors: Vectors, query: Array) -> dict[str, dict[str, Any]]:
    """Metrics as training stores them, of those that need no training images; `query` N×D, unit length.

    kNN leaves each sample out in turn, where training asks a bank of training images. What compares all pairs is
    taken over at most `MEASURED` samples, and says so in its `count`.
    """
    part = query[evenly(len(query), MEASURED)]
    collapse = geometry.collapse(query)
    features = vectors.values if vectors.features is None else vectors.features
    every = {"count": len(query)}
    metrics: dict[str, dict[str, Any]] = {
        "uniformity": {
            "value": geometry.uniformity(part),
            "t": 2,
            "layer": "projector",
            "count": len(part),
        },
        "effective_rank": {"value": geometry.effective_rank(query), "layer": "projector", **every},
        "collapse": {"value": collapse.value, "verdict": collapse.verdict, "reason": collapse.sentence},
    }
    if features.any():  # else the backbone is dead, and nothing has a rank
        rank = geometry.effective_rank(features)
        metrics["effective_rank_features"] = {"value": rank, "layer": "backbone", **every}
    if vectors.second_view is not None:
        pairs = {"pairs": "a vector and its second view", **every}
        value = geometry.alignment(query, vectors.second_view)
        metrics["alignment"] = {"value": value, "alpha": 2, "layer": "projector", **pairs}
    return metrics if vectors.labels is None else metrics | _class_metrics(query, vectors.labels)


def _class_metrics(query: Array, labels: Array) -> dict[str, dict[str, Any]]:
    """What needs labels; nothing when fewer than two samples have one."""
    known = np.flatnonzero(labels >= 0)
    if len(known) < 2:
        return {}
    chosen = known[evenly(len(known), MEASURED)]
    k = min(K, len(chosen) - 1)
    metrics: dict[str, dict[str, Any]] = {
        "knn": {
            "value": knn_accuracy(query[chosen], labels[chosen], k),
            "k": k,
            "temperature": TEMPERATURE,
            "layer": "projector",
            "bank": len(chosen) - 1,
            "count": len(chosen),
            "leave_one_out": True,
        }
    }
    if np.unique(labels[known], return_counts=True)[1].max() > 1:
        tolerance = geometry.tolerance(query, labels)
        metrics["tolerance"] = {"value": tolerance, "layer": "projector", "count": len(known)}
    return metrics


def _rows(array: Array, what: str, *, zero: bool = False) -> Array:
    """`array` as N×D float32, N and D at least 2, finite; zero rows only where they may be."""
    rows = np.asarray(array)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise VectorsError(
            f"{what} must be numbers in rows, N×D; got {rows.dtype} of shape {tuple(rows.shape)}"
        )
    if len(rows) < 2 or rows.shape[1] < 2:
        raise VectorsError(f"{what} must have at least 2 rows and 2 dimensions; got {_shape(rows)}")
    with np.errstate(over="ignore"):  # what float32 can't hold becomes infinite, and is refused below
        rows = np.ascontiguousarray(rows, np.float32)
    peak = np.maximum(rows.max(1), -rows.min(1))  # NaN and infinity come through
    _refuse(~np.isfinite(peak), what, "not finite", "every value must be a finite number")
    if not zero:
        _refuse(peak == 0, what, "zero", "a vector of length 0 has no direction")
    return rows


def _refuse(bad: Array, what: str, state: str, why: str) -> None:
    if bad.any():
        raise VectorsError(
            f"{int(bad.sum()):,} of the {len(bad):,} rows of {what} are {state}, the first is row "
            f"{int(bad.argmax())} (the first row is 0): {why}"
        )


def _shape(rows: Array) -> str:
    return f"{len(rows):,}×{rows.shape[1]:,}"
