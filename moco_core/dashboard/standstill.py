"""Runs whose process is there but takes no steps: it was halted, waits for storage, or hangs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from moco_core import jobs
from moco_core.dashboard.text import duration
from moco_core.runs import Run

PATIENCE_SECONDS = 60.0  # a snapshot takes seconds
PATIENCE_STEPS = 10


def standstill(run: Run, logged: Mapping[str, np.ndarray]) -> str:
    """How long ago a run took its last step where that is much longer than its steps take, else nothing."""
    seconds = jobs.standstill(run.status)
    pace = pairs_per_s(logged)
    usual = run.config.batch_size / pace if pace > 0 else 0.0
    if (
        run.status.state != "running"
        or not max(PATIENCE_SECONDS, PATIENCE_STEPS * usual) < seconds < math.inf
    ):
        return ""
    return f"last step {duration(seconds)} ago" if run.status.step else f"no step for {duration(seconds)}"


def pairs_per_s(logged: Mapping[str, np.ndarray]) -> float:
    """The newest pace of a run; 0 where none was logged."""
    rates = logged["pairs_per_s"][-5:]
    return float(np.median(rates)) if len(rates) else 0.0
