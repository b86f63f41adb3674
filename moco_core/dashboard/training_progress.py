"""Runs that train or wait, live: how far, how fast, how well, and a way to stop them.

All of it is read from the runs root, nothing is kept in the page: a reload, another tab or a restart of the
app finds the same runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import streamlit as st

from moco_core import jobs, theory
from moco_core.dashboard.chart_view import draw_chart
from moco_core.dashboard.figures.progress import progress_chart
from moco_core.dashboard.loaders import history
from moco_core.dashboard.selection import shown_runs, store
from moco_core.dashboard.standstill import pairs_per_s, standstill
from moco_core.dashboard.text import duration, numeral, plain
from moco_core.jobs import JobError, SlurmJob, Ticket
from moco_core.runs import Run, RunError
from moco_core.runs.files import reason

TICK = 2.0  # seconds between looks while something trains
IDLE_TICK = 5.0  # and while nothing does: runs may be started elsewhere
SEEN = "_runs_seen"


def training_progress() -> None:
    """Draw the active runs of this machine and of SLURM and keep them up to date; the page follows when runs change."""
    runs = list(store())
    _announce(runs)
    st.session_state[SEEN] = _digest(runs)
    tickets = jobs.tickets(store().root, runs)
    tick = TICK if any(_is_shown(run, tickets) for run in runs) else IDLE_TICK
    st.fragment(_live, run_every=tick)()


def look_after(root: Path, runs: Sequence[Run]) -> None:
    """Tidy the runs root; where that can't be written, say so and show what is there."""
    try:
        jobs.tidy(root, runs)
    except OSError as error:
        st.caption(f"Runs can't be looked after: {plain(reason(error))}")


def _live() -> None:
    root = store().root
    runs = list(store())
    if any(run.status.active for run in runs):
        look_after(root, runs)
    if st.session_state.get(SEEN) != _digest(runs):
        st.rerun(scope="app")
    tickets = jobs.tickets(root, runs)
    active = {run.id: run for run in runs if _is_shown(run, tickets)}
    waiting = [run_id for run_id, ticket in tickets.items() if run_id in active and not ticket.launched]
    for run_id, run in active.items():
        if run_id not in waiting:
            _training(run, tickets.get(run_id))
    for run_id in waiting:
        _waiting(active[run_id], tickets[run_id])


def _training(run: Run, ticket: Ticket | SlurmJob | None) -> None:
    phase = jobs.phase(run.status, ticket)
    logged = history(run)
    done = run.status.step / max(run.status.total_steps, 1)
    where = f" on {plain(ticket.host)}, {ticket}" if isinstance(ticket, SlurmJob) else ""
    st.progress(min(done, 1.0), f"**{plain(run.name)}** · {phase}{where}")
    st.caption(_readout(run, logged))
    if len(logged["step"]) > 1:
        config = run.config
        draw_chart(
            progress_chart(
                logged["step"],
                logged["loss"],
                logged["positive_cosine"],
                logged["negative_cosine"],
                chance=theory.chance_loss(config.negatives),
                floor=theory.loss_floor(config.negatives, config.temperature, config.dim),
            ),
            key=f"progress-{run.id}",
            summary="Loss with the chance and floor lines; positive and mean negative cosine; against the step.",
            mode_bar=False,
        )
    stopping = phase == "stopping"
    again = stopping and isinstance(ticket, SlurmJob)  # SLURM can be asked twice
    st.button(
        "Stopping …" if stopping else "Stop",
        key=f"stop-{run.id}",
        icon=":material/stop_circle:",
        help="Press once more to have SLURM end the job without waiting for its checkpoint."
        if again
        else "Writes a checkpoint first, so that everything up to here can be looked at.",
        disabled=stopping and not again,
        on_click=_stop,
        args=(run.id,),
    )


def _waiting(run: Run, ticket: Ticket | SlurmJob) -> None:
    name, cross = st.columns((5, 1), vertical_alignment="center")
    where = f" ({ticket})" if isinstance(ticket, SlurmJob) else ""
    name.caption(f"waiting: {plain(run.name)}{where}")
    cross.button(
        "",
        key=f"stop-{run.id}",
        icon=":material/close:",
        type="tertiary",
        help="Take it out of the queue.",
        on_click=_stop,
        args=(run.id,),
    )


def _readout(run: Run, logged: dict[str, np.ndarray]) -> str:
    status, halted = run.status, standstill(run, logged)
    if not len(logged["step"]):
        return f"{status.total_steps:,} steps to go; starting up{', ' if halted else ''}{halted}."
    rate = pairs_per_s(logged)
    left = (status.total_steps - status.step) * run.config.batch_size / rate if rate > 0 else np.inf
    parts = [
        f"step {status.step:,} of {status.total_steps:,}",
        halted or (f"{duration(left)} left" if np.isfinite(left) else ""),
        f"{rate:,.0f} pairs/s",
        f"loss {logged['loss'][-1]:.3f}",
        f"positive cosine {numeral(logged['positive_cosine'][-1], 'z.2f')}",
        f"mean negative {numeral(logged['negative_cosine'][-1], 'z.2f')}",
    ]
    return " · ".join(part for part in parts if part)


def _stop(run_id: str) -> None:
    try:
        jobs.stop(store().root, run_id)
    except (JobError, RunError, OSError) as error:
        st.toast(plain(reason(error)), icon=":material/error:")


def _is_shown(run: Run, tickets: Mapping[str, Ticket | SlurmJob]) -> bool:
    """Active and within reach: other machines' own runs are in the table."""
    reached = run.status.host == jobs.this_host() or isinstance(tickets.get(run.id), SlurmJob)
    return run.problem is None and run.status.active and reached


def _digest(runs: Sequence[Run]) -> tuple[object, ...]:
    """Changes when pages should: a run comes, goes or ends, or one that is shown has a new snapshot."""
    shown = shown_runs()
    return tuple(
        (run.id, run.name, run.status.state, run.problem)
        + ((sum(1 for _ in run.path.glob("step-*")),) if run.status.active and run.id in shown else ())
        for run in runs
    )


def _announce(runs: Sequence[Run]) -> None:
    """Say so when a run has ended since the last look."""
    before: dict[str, bool] = st.session_state.get("_active", {})
    for run in runs:
        if before.get(run.id) and not run.status.active:
            reason = f": {plain(run.status.error)}" if run.status.error else ""
            failed = run.status.state == "failed"
            st.toast(
                f"{plain(run.name)} {run.status.state}{reason}",
                icon=":material/error:" if failed else None,
                duration="infinite" if failed else "short",  # a failure waits to be read
            )
    st.session_state["_active"] = {run.id: run.status.active for run in runs}
