"""Tables for the terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from moco_core.runs import Run
from moco_core.runs.last_loss import last_loss
from moco_core.theory import chance_loss
from moco_core.trace import Milestone, deviations, milestones

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
        imported = run.problem is None and run.config.imported
        steps = "–" if imported else f"{run.status.step}/{run.status.total_steps}"
        state = "imported" if imported else run.status.state
        note = run.problem or run.status.error or (run.origin and f"from {run.origin}")
        table.add_row(escape(run.id), state, steps, *results(run), escape(note))
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


def trace_line(run: Run, step: int) -> str:
    """What a run has reached at the end of an epoch of the authors' trace; empty at any other step."""
    reached = next((milestone for milestone in milestones(run) if milestone.step == step), None)
    if reached is None:
        return ""
    loss, knn, authors_loss, authors_knn = _trace_cells(reached)
    return (
        f"epoch {reached.authors.epoch}: loss {loss} (authors {authors_loss}), "
        f"kNN {knn}% (authors {authors_knn}%)"
    )


def trace_table(run: Run) -> None:
    """Print a run on the authors' task beside their trace, to stderr; nothing for any other run."""
    reached = milestones(run)
    if not reached:
        return
    table = Table("epoch", "step", "loss", "kNN, %", "loss, authors", "kNN, %, authors")
    for milestone in reached:
        table.add_row(str(milestone.authors.epoch), str(milestone.step), *_trace_cells(milestone))
    config, out = run.config, console(error=True)
    out.print(table)
    out.print(
        "loss: mean over the epoch, ours over its logged steps with a full queue; "
        f"kNN: k = {config.knn_k}, τ = {config.knn_temperature:g}, on the embedding; "
        "authors: their CIFAR-10 demo"
    )
    differing = deviations(config)
    if differing:
        out.print(escape(f"not the authors' recipe, so the comparison is loose: {', '.join(differing)}"))


def _trace_cells(milestone: Milestone) -> list[str]:
    values = (milestone.loss, milestone.knn, milestone.authors.loss, milestone.authors.knn)
    return [
        "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"
        for value, digits in zip(values, (2, 1, 2, 1), strict=True)
    ]


def results(run: Run) -> list[str]:
    """Last loss (mean of the last tenth of the log) and newest metrics, formatted; a dash where there is none."""
    newest = run.steps[-1].metrics if run.steps else {}
    return [
        _number(last_loss(run.history())),
        *(_bound(newest.get(name, {})) + _number(newest.get(name, {}).get("value")) for name in METRICS),
    ]


def _number(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    return f"{value:z.3f}" if abs(value) < 1e6 else f"{value:.3e}"


def _bound(metric: Mapping[str, Any]) -> str:
    """≥ before a K* that is a lower bound, because part of the keys alone was encoded again."""
    filled = metric.get("filled", 0)
    return "≥ " if metric.get("measured", filled) < filled and 0 < metric["value"] < filled else ""


def console(*, error: bool = False) -> Console:
    """A console as wide as the terminal, on stdout or stderr; piped output has room for every column."""
    stream = sys.stderr if error else sys.stdout
    return Console(stderr=error, width=None if stream.isatty() else PIPED_WIDTH)
