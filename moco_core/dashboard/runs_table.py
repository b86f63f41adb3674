"""The table of all runs: what each one is, how far it came and how good it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from moco_core import jobs
from moco_core.dashboard.figures.thinned import thinned
from moco_core.dashboard.loaders import flaws, history
from moco_core.dashboard.losses import comparable
from moco_core.dashboard.selection import choose_runs, chosen_runs
from moco_core.dashboard.standstill import standstill
from moco_core.dashboard.text import duration
from moco_core.jobs import SlurmJob, Ticket
from moco_core.runs import Run
from moco_core.runs.files import sha256
from moco_core.runs.last_loss import last_loss

SPARK_POINTS = 60
SIGNS = {
    "finished": "✓",
    "running": "●",
    "starting": "●",
    "queued": "◌",
    "stopping": "◐",
    "stopped": "◐",
    "failed": "✕",
    "unreadable": "✕",
    "lost contact": "?",
}
METRICS = ("knn", "linear", "alignment", "uniformity")
TEXTS = ("state", "name", "sweep", "dataset", "method", "host", "note")
NUMBERS = ("momentum", "negatives", "temperature", "step", "loss", *METRICS)
RUNNING = 106  # pixels for `● running 100%`: a column is as wide as its first values, and those grow
NOTE = 150  # pixels: beside the sidebar only the loss curve, drawn large below, makes way for it


def runs_table(
    runs: Sequence[Run], tickets: Mapping[str, Ticket | SlurmJob], names: Mapping[str, str]
) -> pd.DataFrame:
    """One row a run, indexed by run id; values that a run does not have are missing.

    `names` by run id: what runs are called, in pickers too.
    """
    rows = [_row(run, tickets.get(run.id)) | {"name": names[run.id]} for run in runs]
    table = pd.DataFrame(index=[run.id for run in runs])
    for name in TEXTS:
        table[name] = [row.get(name, "") for row in rows]
    for name in NUMBERS:
        table[name] = np.array([_signed(row.get(name)) for row in rows], dtype=float)
    table["curve"] = pd.Series([row.get("curve", []) for row in rows], index=table.index, dtype=object)
    table["created"] = pd.to_datetime([row.get("created") for row in rows], utc=True, errors="coerce")
    return table


def matching(runs: Sequence[Run], text: str) -> list[Run]:
    """The runs in whose name, id, tag, state, data set, method or encoder each word of `text` occurs."""
    words = text.lower().split()
    return [run for run in runs if all(word in _searched(run) for word in words)]


def columns() -> dict[str, Any]:
    """How each column is shown, in order."""
    column = st.column_config
    return {
        "state": column.TextColumn("State"),
        "name": column.TextColumn("Run", width=155),
        "dataset": column.TextColumn("Data set"),
        "method": column.TextColumn("Method"),
        "momentum": column.NumberColumn("m", format="%g", help="Momentum of the key encoder."),
        "negatives": column.NumberColumn(
            "K", format="%d", help="Negatives: the queue size, or B − 1 in-batch."
        ),
        "temperature": column.NumberColumn("τ", format="%g", help="Temperature."),
        "step": column.NumberColumn("Steps", format="%d", help="Optimizer steps so far."),
        "loss": column.NumberColumn(
            "Loss",
            format="%.3f",
            help="InfoNCE in nats, mean of the last tenth of the log; not comparable between different K or τ.",
        ),
        "knn": column.NumberColumn(
            "kNN",
            format="%.3f",
            help="Weighted kNN accuracy, newest snapshot: training images vote, or imported vectors for each other.",
        ),
        "linear": column.NumberColumn(
            "Linear", format="%.3f", help="Accuracy of a linear probe on the features."
        ),
        "alignment": column.NumberColumn(
            "Align.", format="%.3f", help="Alignment: mean ‖x − y‖² of positive pairs; lower is closer."
        ),
        "uniformity": column.NumberColumn(
            "Unif.", format="%.3f", help="Uniformity: log mean exp(−2‖x − y‖²); lower is more uniform."
        ),
        "created": column.DatetimeColumn("Age", format="distance", help="When the run was made."),
        "note": column.TextColumn("Note", width=NOTE),
        "curve": column.LineChartColumn(
            "Loss curve", width=80, help="Loss against step, each in its own range."
        ),
        "sweep": column.TextColumn("Sweep"),
        "host": column.TextColumn("Host"),
    }


def order(table: pd.DataFrame) -> list[str]:
    """The columns that are shown until the table's toolbar shows others.

    Not a method that all have, and not what only runs of other machines or of SLURM have.
    """
    idle = {"sweep"} | {name for name in ("note", "host") if not table[name].any()}
    if table["method"].nunique() < 2:
        idle.add("method")
    return [name for name in columns() if name not in idle]


def pick_rows(table: pd.DataFrame) -> list[str]:
    """Show the table; the ids of the rows selected in it, which the URL keeps under `runs`."""
    wanted = [row for row, run_id in enumerate(table.index) if run_id in chosen_runs()]
    # Rows are told by position. Another list of runs is another widget, so that a selection never slips.
    key = f"table-{sha256('/'.join(table.index).encode())[:12]}"
    shown = columns()
    if table["state"].str.contains("%").any():
        shown["state"] = st.column_config.TextColumn("State", width=RUNNING)
    event = st.dataframe(
        table,
        key=key,
        hide_index=True,
        column_config=shown,
        column_order=order(table),
        on_select="rerun",
        selection_mode="multi-row",
        selection_default={"selection": {"rows": wanted}},
        placeholder="–",
    )
    ids = selected_ids(event.selection.rows, list(table.index))
    choose_runs(ids)
    return ids


def selected_ids(rows: Sequence[int], ids: Sequence[str]) -> list[str]:
    """The ids at the selected positions; positions that are no longer there are left out."""
    return [ids[row] for row in sorted(rows) if 0 <= row < len(ids)]


def _row(run: Run, ticket: Ticket | SlurmJob | None) -> dict[str, Any]:
    if run.problem is not None:
        return {"state": _state("unreadable")}
    config = run.config
    logged = history(run)
    return {
        "state": _state(jobs.phase(run.status, ticket), run),
        "sweep": run.sweep,
        "dataset": run.origin if config.imported else config.dataset_name,
        "method": config.method,
        "momentum": config.momentum if config.method == "moco" else None,
        "negatives": None if config.imported else config.negatives,
        "temperature": None if config.imported else config.temperature,
        "step": None if config.imported else run.status.step,
        "loss": last_loss(logged),
        "curve": sparkline(comparable(logged, config)["loss"]),
        **{name: newest_metric(run, name) for name in METRICS},
        "created": run.created,
        "host": _host(run, ticket),
        "note": _note(run, ticket, logged),
    }


def _signed(value: float | None) -> float | None:
    """The value, but for one that three decimals would show as −0.000."""
    return 0.0 if value is not None and -0.0005 <= value < 0 else value


def _state(phase: str, run: Run | None = None) -> str:
    share = ""
    if run is not None and phase in ("running", "stopping") and run.status.total_steps:
        share = f" {run.status.step / run.status.total_steps:.0%}"
    sign = "⚠" if run is not None and flaws(run) else SIGNS.get(phase, "")
    return f"{sign} {phase}{share}"


def _host(run: Run, ticket: Ticket | SlurmJob | None) -> str:
    """Where an active run trains or waits, unless that is this machine."""
    if not run.status.active or run.status.host == jobs.this_host():
        return ""
    return "" if isinstance(ticket, SlurmJob) and not ticket.launched else run.status.host


def _note(run: Run, ticket: Ticket | SlurmJob | None, logged: Mapping[str, np.ndarray]) -> str:
    notes = [str(ticket)] if isinstance(ticket, SlurmJob) else []
    if run.status.active and run.status.host != jobs.this_host():
        notes.append(_sign_of_life(run))
    notes += filter(None, [standstill(run, logged)])
    return ", ".join(notes)


def trouble(run: Run) -> str:
    """What is wrong with a run: why it can't be read, failed, or what of it is damaged. Empty when nothing is."""
    if run.problem is not None or run.status.error:
        return run.problem or run.status.error
    return "; ".join(f"{name} is damaged: {reason}" for name, reason in flaws(run).items())


def _sign_of_life(run: Run) -> str:
    seconds = jobs.silence(run.status)
    if not math.isfinite(seconds):
        return "no sign of life yet"
    what = "queued" if run.status.state == "queued" else "last sign of life"
    return f"{what} {duration(seconds)} ago"


def newest_metric(run: Run, name: str) -> float | None:
    """A metric of the newest snapshot that has it, or None."""
    for checkpoint in reversed(run.steps):
        value = checkpoint.metrics.get(name, {}).get("value")
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def sparkline(values: np.ndarray) -> list[float]:
    """At most `SPARK_POINTS` means over equal stretches of `values`, what is not finite left out."""
    return [round(float(v), 4) for v in thinned(values[np.isfinite(values)], SPARK_POINTS)]


def _searched(run: Run) -> str:
    parts = [run.id, run.name, run.sweep, "unreadable" if run.problem else run.status.state]
    if run.problem is None:
        parts += [run.config.dataset, run.config.method, run.config.encoder, run.origin]
    return " ".join(parts).lower()
