"""Projections on disk: named after the content they come from, so that none is ever stale."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

from moco_core.projections.compute import (
    Frame,
    Progress,
    Projection,
    ProjectionSettings,
    compute,
    frames,
    measure,
)
from moco_core.runs import Checkpoint, Run
from moco_core.runs.files import NO_ARRAYS, clear_abandoned, replace_bytes
from moco_core.runs.schema import CACHE_DIR

FORMAT = 2  # raise it when the computation changes: older files are then passed over
FIELDS = tuple(field.name for field in dataclasses.fields(Projection))


def content_id(run: Run, checkpoint: Checkpoint, settings: ProjectionSettings) -> str:
    """Names a projection by what it comes from: checksums of its steps, and every setting."""
    return _content_id(run, frames(run, checkpoint, settings), settings)


def find_projection(
    run: Run, checkpoint: Checkpoint, settings: ProjectionSettings, spare: Path | None = None
) -> Projection | None:
    """The stored projection, in the run's cache or in the folder `spare`; None when there is none to read."""
    return _find(run, frames(run, checkpoint, settings), settings, spare)


def stored_projection(
    run: Run,
    checkpoint: Checkpoint,
    settings: ProjectionSettings,
    progress: Progress | None = None,
    spare: Path | None = None,
) -> Projection:
    """The projection: read, or computed, measured and stored in the run's cache.

    Where the cache can't be written it is stored in the folder `spare`. It is stored before it is measured as well,
    so that a page can show it meanwhile. ValueError when the run lacks what it needs, OSError when it can't be stored.
    """
    shown = frames(run, checkpoint, settings)  # once: a sweep may train on while its picture is made
    picture = _find(run, shown, settings, spare)
    if picture is None:
        picture = compute(run, checkpoint, settings, progress, shown)
        _write(run, shown, settings, picture, spare)
    if not picture.measured:
        picture = measure(shown, settings, picture, progress)
        _write(run, shown, settings, picture, spare)
    return picture


def _content_id(run: Run, shown: Sequence[Frame], settings: ProjectionSettings) -> str:
    images, steps = run.info.get("eval_set_sha256"), [frame.checkpoint.checksum for frame in shown]
    described = json.dumps([FORMAT, images, steps, dataclasses.asdict(settings)], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:32]


def _file_name(run: Run, shown: Sequence[Frame], settings: ProjectionSettings) -> str:
    return f"projection-{_content_id(run, shown, settings)}.safetensors"


def _find(
    run: Run, shown: Sequence[Frame], settings: ProjectionSettings, spare: Path | None
) -> Projection | None:
    name = _file_name(run, shown, settings)
    for folder in (run.path / CACHE_DIR, spare):
        if folder is not None and (found := _read(folder / name, settings.dim)) is not None:
            return found
    return None


def _write(
    run: Run, shown: Sequence[Frame], settings: ProjectionSettings, picture: Projection, spare: Path | None
) -> None:
    arrays = {name: np.ascontiguousarray(getattr(picture, name)) for name in FIELDS}
    arrays["k"] = np.array([picture.k], np.int64)
    data = save(arrays, metadata={"settings": json.dumps(dataclasses.asdict(settings))})
    name = _file_name(run, shown, settings)
    try:
        _keep(run.path / CACHE_DIR, name, data)
    except OSError:  # a read-only run
        if spare is None:
            raise
        _keep(spare, name, data)


def _keep(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    replace_bytes(folder / name, data)
    clear_abandoned(folder)


def _read(path: Path, dim: int) -> Projection | None:
    """A stored projection, or None for a file that is missing, damaged or foreign: it is computed anew."""
    try:
        arrays = load(path.read_bytes())
        picture = Projection(**{name: arrays[name] for name in FIELDS if name != "k"}, k=int(arrays["k"][0]))
    except (*NO_ARRAYS, OSError, IndexError):
        return None
    steps, points = len(picture.steps), len(picture.kinds)
    fits = (
        picture.coordinates.shape == (steps, points, dim)
        and np.isfinite(picture.coordinates).all()
        and picture.samples.shape == picture.slots.shape == (points,)
        and picture.trustworthiness.shape == picture.continuity.shape == (steps,)
    )
    return picture if fits else None
