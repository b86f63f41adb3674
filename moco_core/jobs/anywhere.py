"""Runs wherever they train: on this machine, on another one, or as SLURM jobs. Every function returns at once,
but for what SLURM's own commands take when a job is submitted or cancelled."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from moco_core.jobs import local, slurm
from moco_core.jobs.desk import Desk, Ticket
from moco_core.jobs.processes import is_alive, this_host
from moco_core.jobs.slurm_desk import SlurmDesk, SlurmJob
from moco_core.runs import Run, RunStatus, RunStore, RunWriter


def tickets(root: Path, runs: Iterable[Run]) -> dict[str, Ticket | SlurmJob]:
    """What is known of the runs that wait or train, by run id: this machine's in their order, then SLURM's."""
    jobs = {run.id: slurm_job(root, run) for run in runs}
    return {**Desk(root).tickets(), **{run_id: job for run_id, job in jobs.items() if job is not None}}


def slurm_job(root: Path, run: Run) -> SlurmJob | None:
    """The SLURM job that an active run waits or trains in, or None."""
    if run.problem is not None or not run.status.active:
        return None
    job = SlurmDesk(root).job(run.id)
    return job if job is not None and job.serves(run.status) else None


def stop(root: Path, run_id: str, grace: float = local.GRACE_SECONDS) -> None:
    """Ask a run to end and keep a checkpoint; one that waits becomes `stopped` at once.

    A process of this machine is killed after `grace` seconds; a SLURM job is cancelled when this is called once
    more. JobError when it can't be reached from here, RunError when it can't be read.
    """
    job = SlurmDesk(root).job(run_id)
    if job is not None and job.serves(RunWriter(root / run_id).status):
        slurm.stop(root, run_id)
    else:
        local.stop(root, run_id, grace)


def resume(root: Path, run_id: str) -> None:
    """Queue a stopped or failed run again, where it was before: as a SLURM job with the same options, or here.

    JobError when the run is active or finished or SLURM isn't within reach, RunError when it can't be read.
    """
    if SlurmDesk(root).job(run_id) is not None:
        slurm.resume(root, run_id)
    else:
        local.resume(root, run_id)


def tidy(root: Path, runs: Iterable[Run] | None = None) -> None:
    """Record what happened while nobody looked; cheap, to be called when the app starts and while runs train.

    Runs of this machine whose process is gone become `failed`; runs that wait get a worker if they lack one;
    SLURM is asked, now and then and without waiting for it, about jobs that have fallen silent; what an
    interrupted deletion left behind goes. `runs` spares reading them when the caller has just done so.
    """
    runs = list(RunStore(os.path.realpath(root)) if runs is None else runs)
    jobs = {run.id: slurm_job(root, run) for run in runs}
    slurm.tidy(root, [job for run in runs if (job := jobs[run.id]) is not None and not is_alive(run.status)])
    local.tidy(root, [run for run in runs if jobs[run.id] is None])


def phase(status: RunStatus, ticket: Ticket | SlurmJob | None = None) -> str:
    """The state of a run in a word or two, for people: also `starting`, `stopping` and `lost contact`."""
    if not status.active:
        return status.state
    ours = status.host == this_host() and not isinstance(ticket, SlurmJob)  # `tidy` settles these in a moment
    if status.state == "running" and not ours and not is_alive(status):
        return "lost contact"
    if ticket is not None and ticket.stopping:
        return "stopping"
    if status.state == "queued":
        return "starting" if ticket is not None and ticket.launched else "queued"
    return "running"
