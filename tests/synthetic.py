"""Valid run directories made in milliseconds, without torch, for tests of everything that reads them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from moco_core.config import TrainConfig
from moco_core.runs import RunWriter, schema


def unit(x: np.ndarray) -> np.ndarray:
    """Rows scaled to unit length, float32."""
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def write_run(
    root: Path,
    name: str = "synthetic",
    *,
    samples: int = 60,
    classes: int = 4,
    dim: int = 8,
    steps: tuple[int, ...] = (0, 10, 20),
    queue_size: int = 32,
    seed: int = 0,
    labelled: bool = True,
    queue: bool = True,
    drift: bool = True,
    state: str = "finished",
    sweep: str = "",
    class_names: tuple[str, ...] | None = None,
    **config: Any,
) -> Path:
    """A run whose classes pull apart as training goes on; its keys turn away from their views with age.

    `config` overrides fields of `TrainConfig`. Returns the run directory.
    """
    rng = np.random.default_rng(seed)
    settings = TrainConfig(
        name=name,
        dim=dim,
        queue_size=queue_size,
        steps=max(steps[-1], 1),
        batch_size=8,
        seed=seed,
        **({} if queue else {"method": "in-batch"}) | config,
    )
    writer = RunWriter.create(root, settings, sweep=sweep)
    labels = np.arange(samples) % classes if labelled else np.full(samples, -1)
    names = class_names or (tuple(f"class {i}" for i in range(classes)) if labelled else ())
    pixels = rng.integers(0, 200, (classes, 8, 8, 1))
    thumbnails = (pixels[np.arange(samples) % classes] + rng.integers(0, 56, (samples, 8, 8, 1))).astype(
        np.uint8
    )
    writer.write_eval_set(
        {
            "thumbnails": thumbnails,
            "labels": labels.astype(np.int64),
            "sample_ids": np.arange(samples) + 1000,
        },
        names,
    )
    writer.describe(dataset={"name": settings.dataset, "train": 500, "held_out": samples}, device="cpu")
    centres = rng.normal(size=(classes, dim))
    for number in steps:
        progress = number / max(steps[-1], 1)
        noise = rng.normal(size=(samples, dim)) * (1.5 - progress)
        query = unit(centres[np.arange(samples) % classes] * (0.2 + progress) + noise)
        files = {
            schema.EMBEDDINGS_FILE: {
                "query": query,
                "key": unit(query + 0.1 * rng.normal(size=query.shape)),
                "second_view": unit(query + 0.2 * rng.normal(size=query.shape)),
                "features": np.abs(rng.normal(size=(samples, dim * 2))).astype(np.float32),
            }
        }
        if queue:
            files[schema.QUEUE_FILE] = _queue(rng, settings, number, centres, labelled)
            filled = len(files[schema.QUEUE_FILE]["keys"])
            if drift and filled:
                files[schema.DRIFT_FILE] = _drift(number - files[schema.QUEUE_FILE]["written_step"][::-1])
        writer.write_step(number, files, _metrics(progress, settings))
    writer.append_history([_record(step, settings) for step in range(1, steps[-1] + 1)])
    writer.set_status(state=state, step=steps[-1])
    return writer.path


def _queue(
    rng: np.random.Generator, config: TrainConfig, step: int, centres: np.ndarray, labelled: bool
) -> dict[str, np.ndarray]:
    filled = min(config.queue_size, step * config.batch_size)
    age = np.arange(filled)[::-1] // config.batch_size  # oldest first
    label = rng.integers(0, len(centres), filled)
    keys = (
        centres[label] + rng.normal(size=(filled, config.dim)) if filled else np.zeros((0, config.dim)) + 1.0
    )
    return {
        "keys": unit(keys),
        "written_step": (step - age).astype(np.int64),
        "sample_id": rng.integers(0, 500, filled).astype(np.int64),
        "label": label.astype(np.int64) if labelled else np.full(filled, -1, np.int64),
        "size": np.array([config.queue_size], np.int64),
    }


def _drift(age: np.ndarray) -> dict[str, np.ndarray]:
    """Newest first: keys that turned by 0.05 rad a step since they were written."""
    length = np.unique(np.geomspace(1, len(age), 12).astype(np.int64))
    gradient_cosine = 1 - 0.0005 * length
    return {
        "age": age.astype(np.int64),
        "cosine_key": np.cos(0.05 * age).astype(np.float32),
        "cosine_query": np.cos(0.05 * age + 0.1).astype(np.float32),
        "length": length,
        "gradient_cosine": gradient_cosine.astype(np.float32),
        "k_star": np.array(length[gradient_cosine >= 0.99].max(initial=0)),
        "spread": np.array(0.8, np.float32),
    }


def _metrics(progress: float, config: TrainConfig) -> dict[str, Any]:
    return {
        "knn": {"value": 0.4 + 0.5 * progress, "k": 20, "temperature": 0.1, "layer": "backbone"},
        "linear": {"value": 0.5 + 0.4 * progress, "layer": "backbone"},
        "alignment": {"value": 1 - 0.5 * progress, "alpha": 2},
        "uniformity": {"value": -1 - 2 * progress, "t": 2},
        "tolerance": {"value": 0.2 + 0.3 * progress},
        "effective_rank": {"value": 1 + 0.5 * config.dim * progress, "layer": "projector"},
        "k_star": {"value": 20, "threshold": 0.99},
        "collapse": {"value": 0.2, "verdict": "none"},
    }


def _record(step: int, config: TrainConfig) -> dict[str, float]:
    return {
        "step": step,
        "loss": math.log(config.negatives + 1) * (0.5 + 0.5 / step),
        "positive_cosine": 1 - 1 / (step + 1),
        "negative_cosine": 0.5 / step,
        "contrast_accuracy": 1 - 1 / (step + 1),
        "lr": config.lr,
        "momentum": config.momentum,
        "encoder_gap": 0.01,
        "grad_norm": 1.0,
        "pairs_per_s": 1000.0,
        "filled": min(config.queue_size, step * config.batch_size),
    }
