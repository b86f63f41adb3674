"""Run directories whose staleness is measured for real, on keys that turn by a known angle a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from moco_core.analysis.staleness import measure
from moco_core.runs import Run, RunWriter, schema
from tests.synthetic import unit, write_run


def turned(keys: np.ndarray, angle: np.ndarray | float) -> np.ndarray:
    """Keys (M×D) turned by an angle (radians) in the plane of their first two coordinates."""
    x, y = keys[:, 0].copy(), keys[:, 1].copy()
    result = keys.astype(np.float64)
    result[:, 0], result[:, 1] = np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y
    return result


def write_stale_run(
    root: Path,
    name: str = "stale",
    *,
    angle: float = 0.05,
    collapsed: bool = False,
    every: int = 1,
    **options: Any,
) -> Path:
    """A synthetic run with the drift that a turn of `angle` a step gives; options as for `write_run`.

    `collapsed` puts all keys in one place. With `every` = n only each n-th batch was measured.
    """
    path = write_run(root, name, drift=False, **options)
    writer, run = RunWriter(path), Run(path)
    rng = np.random.default_rng(0)
    for checkpoint in run.steps:
        files = {n: checkpoint.arrays(n) for n in checkpoint.manifest["files"] if n.endswith(".safetensors")}
        queue = files.get(schema.QUEUE_FILE)
        if queue is None or not len(queue["keys"]):
            continue
        if collapsed:
            queue["keys"] = np.ones_like(queue["keys"]) / np.sqrt(queue["keys"].shape[1]).astype(np.float32)
        age = checkpoint.step - queue["written_step"]
        slot = np.flatnonzero(age % every == 0)
        fresh = queue["keys"] if collapsed else turned(queue["keys"], angle * age)
        query = queue["keys"][:10] if collapsed else unit(rng.normal(size=(10, fresh.shape[1])))
        files[schema.DRIFT_FILE] = measure(
            stored=queue["keys"][slot],
            fresh=fresh[slot],
            query_view=fresh[slot] if collapsed else turned(fresh[slot], 0.1),
            age=age[slot],
            slot=slot,
            query=query,
            positive=query if collapsed else unit(query + 0.1 * rng.normal(size=query.shape)),
            temperature=run.config.temperature,
            filled=len(age),
            control=(fresh[:8], fresh[:8]),
        )
        k_star = int(files[schema.DRIFT_FILE]["k_star"])
        found = {"value": k_star, "filled": len(age), "measured": len(slot)}
        metrics = dict(checkpoint.metrics) | {"k_star": found}
        if collapsed:
            metrics["collapse"] = {"value": 1.0, "verdict": "complete"}
        writer.write_step(checkpoint.step, files, metrics)
    return path
