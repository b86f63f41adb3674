"""Deleting a run."""

from __future__ import annotations

from pathlib import Path

from moco_core.jobs.desk import Desk
from moco_core.jobs.graves import hide, remove
from moco_core.jobs.local import JobError
from moco_core.jobs.processes import is_alive
from moco_core.runs import RunStore


def delete(root: Path, run_id: str) -> None:
    """Take a run out of the listing in one move, then delete its files.

    JobError when there is no such run, or when it still trains or waits to.
    """
    desk = Desk(root)
    with desk.key():
        store = RunStore(desk.root)
        if run_id not in store:
            raise JobError(f"there is no run {run_id!r}; it may have been deleted already")
        run = store[run_id]
        if run_id in desk.tickets() or (run.status.active and is_alive(run.status)):
            raise JobError(f"{run_id} is {run.status.state}; stop it before deleting it")
        grave = hide(run.path)
        desk.log(run_id).unlink(missing_ok=True)
    remove(grave)
