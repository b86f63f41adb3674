"""Tables for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from moco_core.runs import Run
from moco_core.theory import chance_loss

PIPED_WIDTH = 160  # columns when the output is no terminal
METRICS = {
    "knn": "kNN",
    "linear": "linear",
    "alignment": "alignment",
    "uniformity": "uniformity",
    "effective_rank": "eff. rank",
    "k_star": "K*",
}


def runs_table(runs: Sequence[Run]) -> None:
    """Print the runs with their state and newest metrics."""
    table = Table("run", "state", "steps", "loss", *METRICS.values(), "note")
    for run in runs:
        steps = f"{run.status.step}/{run.status.total_steps}"
        table.add_row(
            escape(run.id), run.status.state, steps, *results(run), escape(run.problem or run.status.error)
        )
    console().print(table)


def sweep_table(runs: Sequence[Run], over: str) -> None:
    """Print the results of a sweep beside the loss of a run that has learnt nothing."""
    table = Table(over, "seed", "state", "loss", *METRICS.values(), "chance loss", "collapse")
    for run in runs:
        config, newest = run.config, run.steps[-1].metrics if run.steps else {}
        verdict = str(newest.get("collapse", {}).get("verdict", ""))
        chance = f"{chance_loss(config.negatives):.3f}"
        value, seed = str(getattr(config, over)), str(config.seed)
        table.add_row(value, seed, run.status.state, *results(run), chance, verdict)
    console().print(table)


def results(run: Run) -> list[str]:
    """Last loss (mean of the last tenth of the log) and newest metrics, formatted; a dash where there is none."""
    newest = run.steps[-1].metrics if run.steps else {}
    return [_number(last_loss(run)), *(_number(newest.get(name, {}).get("value")) for name in METRICS)]


def last_loss(run: Run) -> float | None:
    """Mean loss over the last tenth of the logged steps, or None before the first."""
    loss = run.history()["loss"]
    return float(np.mean(loss[-max(1, len(loss) // 10) :])) if len(loss) else None


def _number(value: Any) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def console() -> Console:
    """A console as wide as the terminal; piped output has room for every column."""
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
