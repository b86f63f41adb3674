"""Deleting a run."""

from __future__ import annotations

from pathlib import Path

from moco_core.jobs.anywhere import slurm_job
from moco_core.jobs.desk import Desk, JobError
from moco_core.jobs.graves import hide, remove
from moco_core.jobs.local import desk_of
from moco_core.jobs.processes import is_alive, kill
from moco_core.jobs.slurm_desk import SlurmDesk
from moco_core.runs import Run, RunStore


def delete(root: Path, run_id: str) -> None:
    """Take a run out of the listing in one move, then delete its files.

    A process that still draws the pictures of a run that has ended goes with it. JobError when there is no such run,
    or when it still trains or waits to, here or elsewhere.
    """
    desk = Desk(root)
    with desk.key():
        store = RunStore(desk.root)
        if run_id not in store:
            raise JobError(f"there is no run {run_id!r}; it may have been deleted already")
        run = store[run_id]
        ticket, ended = desk.tickets().get(run_id), run.problem is None and not run.status.active
        if (ticket is not None and not ended) or _is_active(desk.root, run):
            raise JobError(f"{run_id} is {run.status.state}; stop it before deleting it")
        grave = hide(run.path)
        if ticket is not None and ticket.pid is not None and ticket.started is not None:
            kill(ticket.pid, ticket.started)
        desk.log(run_id).unlink(missing_ok=True)
        SlurmDesk(root).forget(run_id)
    remove(grave)


def _is_active(root: Path, run: Run) -> bool:
    """Whether some process works on the run, or will: a run whose machine has fallen silent may be deleted."""
    if not run.status.active or run.problem is not None:
        return False
    waits = run.id in desk_of(root, run.status).tickets() or slurm_job(root, run) is not None
    return is_alive(run.status) or (run.status.state == "queued" and waits)
