"""Small real runs on digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from moco_core.config import TrainConfig
from moco_core.runs import Run, RunStore, RunWriter
from moco_core.training.loop import train
from moco_core.training.setup import prepare

SMALL: dict[str, Any] = {
    "batch_size": 16,
    "queue_size": 40,
    "dim": 8,
    "steps": 12,
    "snapshots": 3,
    "eval_size": 40,
    "bank_size": 60,
    "device": "cpu",
}


def train_small(root: Path, *, stop_after: int = 0, **settings: Any) -> Run:
    """Train a run of a few steps, up to `stop_after`."""
    config = TrainConfig(**SMALL | settings)
    run = RunWriter.create(root, config)
    train(run, prepare(config), should_stop=lambda step: step == stop_after)
    return RunStore(root)[run.run_id]


def resume(run: Run) -> Run:
    """Go on with a stopped run to its end."""
    writer = RunWriter(run.path)
    train(writer, prepare(run.config))
    return RunStore(run.path.parent)[run.id]


def everything(run: Run) -> dict[str, np.ndarray]:
    """All arrays of the last step and the history but for its timings."""
    newest = run.steps[-1]
    arrays = {
        f"{file}/{name}": array
        for file in newest.manifest["files"]
        if file.endswith("safetensors")
        for name, array in newest.arrays(file).items()
    }
    history = {f"history/{key}": column for key, column in run.history().items() if key != "pairs_per_s"}
    return arrays | history


def assert_identical(a: Run, b: Run) -> None:
    """Bit for bit the same weights, queue, embeddings, staleness and history."""
    first, second = everything(a), everything(b)
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)
