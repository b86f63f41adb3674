"""What measuring queue staleness costs: its share of a training run, and time and memory for a long queue.

The run is `python -m moco_core train` on digits, timed by itself. The long queue has K = 65,536 keys in 128
dimensions and 256 anchors; measuring it, and drawing every chart of the queue page from it, each happen in a
process of their own, whose memory is the growth of its peak resident size.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.report import parse_args, report
from moco_core.analysis import staleness
from moco_core.dashboard.drift import read_drift
from moco_core.dashboard.figures import staleness as figures
from moco_core.runs import RunStore

SLOTS, DIM, ANCHORS, BATCH = 65_536, 128, 256, 256
TARGETS = {
    "drift/run": ("<=", 0.05),
    "measure seconds": ("<=", 2.0),
    "measure MB": ("<=", 1000.0),
    "render seconds": ("<=", 2.0),
    "render MB": ("<=", 1000.0),
}


def main() -> None:
    """Measure, print, write."""
    args = parse_args(__doc__)
    ratios, seconds = drift_share(steps=400 if args.quick else 1500)
    measured, drawn = in_own_process("measure"), in_own_process("render")
    report(
        "staleness",
        ratios,
        TARGETS,
        {
            **seconds,
            "measure seconds": measured[0],
            "measure MB": measured[1],
            "render seconds": drawn[0],
            "render MB": drawn[1],
        },
        args.json,
    )


def drift_share(steps: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of drift over seconds of the run, with the default settings on digits."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "moco_core", "train", "--steps", str(steps), "--runs", folder]
        subprocess.run(command, check=True, capture_output=True)
        (run,) = RunStore(folder)
        spent = run.info["seconds"]
        slots = [len(checkpoint.drift["age"]) for checkpoint in run.steps if checkpoint.drift]
    figures = {
        "run seconds": spent["run"],
        "drift seconds": spent["drift"],
        "slots encoded again": float(np.mean(slots)),
    }
    return {"drift/run": spent["drift"] / spent["run"]}, figures


def in_own_process(task: str) -> tuple[float, float]:
    """Seconds and MB of a function of this module, called in a fresh process."""
    code = f"import json; from benchmarks import staleness; print(json.dumps(staleness.{task}()))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, megabytes = json.loads(done.stdout)
    return seconds, megabytes


def measure() -> tuple[float, float]:
    """`staleness.measure` on the long queue."""
    inputs = long_queue()
    before, began = peak_mb(), time.perf_counter()
    staleness.measure(**inputs)
    return time.perf_counter() - began, peak_mb() - before


def render() -> tuple[float, float]:
    """Every chart of the queue page from the arrays of one snapshot, down to what goes to the browser."""
    arrays = long_drift()
    before, began = peak_mb(), time.perf_counter()
    drift = read_drift(arrays, "long queue", step=1000)
    assert drift is not None
    by_slot = np.empty(SLOTS)
    by_slot[drift.slot] = drift.drift
    for figure in (
        figures.gradient_cosine_by_length([drift]),
        figures.drift_by_age([drift], relative=True),
        figures.lag_by_age([drift]),
        figures.weight_by_age([drift]),
        figures.logit_error_by_age([drift]),
        figures.kl_by_length([drift]),
        figures.queue_strip(SLOTS, by_slot, drift.age[::-1], np.arange(0, SLOTS, 10)),
        figures.k_star_by_step([[drift]]),
        figures.oldest_drift_by_step([[drift]]),
        figures.gradient_cosine_by_eviction(drift),
    ):
        figure.to_json()
    return time.perf_counter() - began, peak_mb() - before


def long_queue() -> dict[str, Any]:
    """Inputs of `staleness.measure`: random keys that drift with age."""
    rng = np.random.default_rng(0)
    age = np.arange(SLOTS)[::-1] // BATCH
    fresh = rng.normal(size=(SLOTS, DIM)).astype(np.float32)
    stored = fresh + (0.5 * age / age.max())[:, None] * rng.normal(size=fresh.shape)
    query = rng.normal(size=(ANCHORS, DIM)).astype(np.float32)
    return {
        "stored": stored.astype(np.float32),
        "fresh": fresh,
        "query_view": fresh,
        "age": age,
        "slot": np.arange(SLOTS),
        "query": query,
        "positive": query,
        "temperature": 0.2,
        "filled": SLOTS,
    }


def long_drift() -> dict[str, Any]:
    """Arrays as `staleness.measure` returns them for the long queue, made up: what is drawn costs the same."""
    rng = np.random.default_rng(0)
    length, kept = staleness.length_grid(SLOTS, 40), staleness.length_grid(SLOTS, 12)
    slot = np.arange(SLOTS)[::-1]
    per_slot = {
        name: 1 - rng.random(SLOTS) * slot[::-1] / SLOTS
        for name in ("cosine_key", "cosine_query", "logit_error")
    }
    return {
        **per_slot,
        "slot": slot,
        "age": np.arange(SLOTS) // BATCH,
        "weight_share": np.full(SLOTS, 1 / SLOTS),
        "length": length,
        "gradient_cosine": 1 - length / SLOTS / 2,
        "kl": length / SLOTS,
        "kept": kept,
        **{f"evict_{policy}": 1 - kept / SLOTS / 2 for policy in staleness.EVICTIONS},
        "k_star": length[-10],
        "spread": np.array(1.0),
        "filled": np.array(SLOTS),
    }


def peak_mb() -> float:
    """Peak resident size of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


if __name__ == "__main__":
    main()
