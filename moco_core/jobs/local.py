"""Starting and stopping training on this machine. Every function returns at once.

Runs wait in a queue and train one at a time, in processes of their own: whoever asked may go away. A worker
process (`moco_core.jobs.worker`) serves the queue and ends when it is empty.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import moco_core
from moco_core.config import TrainConfig, variants
from moco_core.jobs.desk import FOLDER, Desk, JobError, Ticket
from moco_core.jobs.graves import sweep_graves
from moco_core.jobs.processes import is_alive, terminate, this_host
from moco_core.runs import Run, RunError, RunStatus, RunStore, RunWriter

MOMENTA = (0.0, 0.9, 0.99, 0.999)
GRACE_SECONDS = 120.0  # a final checkpoint of a large encoder on a slow disk takes a while
UNCLAIMED_SECONDS = 60.0
TRAINER: tuple[str, ...] = (sys.executable, "-m", "moco_core", "train")

Queue = Callable[[Sequence[TrainConfig], Path, str], list[str]]

_workers: list[subprocess.Popen[bytes]] = []


def queue(configs: Sequence[TrainConfig], root: Path, sweep: str = "") -> list[str]:
    """Queue runs and see to it that they are trained; returns their ids. OSError when `root` can't be written."""
    for config in configs:
        config.check_trainable()
    desk = Desk(root)
    with desk.key():
        ids = [RunWriter.create(desk.root, config, sweep=sweep).run_id for config in configs]
        for run_id in ids:
            desk.add(run_id)
    serve(root)
    return ids


def submit(config: TrainConfig, root: Path) -> str:
    """Queue one run; returns its id."""
    return queue([config], root)[0]


def submit_sweep(
    config: TrainConfig,
    root: Path,
    over: str = "momentum",
    values: Sequence[float] = MOMENTA,
    queue: Queue = queue,
) -> list[str]:
    """Queue one run for each value of the field `over`, under one tag; returns their ids.

    ConfigError, before anything is queued, when one of the values is not accepted.
    """
    return queue(variants(config, over, values), root, sweep_tag(root, over))


def sweep_tag(root: Path, over: str) -> str:
    """A tag that no run has yet: `momentum sweep`, `momentum sweep 2`, …"""
    taken = {run.sweep for run in RunStore(root)}
    tags = (f"{over} sweep {number}" if number > 1 else f"{over} sweep" for number in count(1))
    return next(tag for tag in tags if tag not in taken)


def resume(root: Path, run_id: str) -> None:
    """Queue a stopped or failed run again; it goes on from its newest resume state.

    JobError when the run is active or finished, RunError when it can't be read.
    """
    desk = Desk(root)
    with desk.key():
        run = RunWriter(desk.root / run_id)
        if run.status.state not in ("stopped", "failed"):
            raise JobError(f"{run_id} is {run.status.state}; only a stopped or failed run can go on")
        run.set_status(state="queued", error="", host=this_host(), pid=None, pid_started=None)
        desk.add(run_id)
    serve(root)


def desk_of(root: Path, status: RunStatus) -> Desk:
    """The desk of the machine that a run belongs to; this machine's when that one has none."""
    folder = Path(os.path.realpath(root)) / FOLDER
    known = folder.is_dir() and status.host in os.listdir(folder)
    return Desk(root, status.host if known else "")


def stop(root: Path, run_id: str, grace: float = GRACE_SECONDS) -> None:
    """Ask a run to end and keep a checkpoint; after `grace` seconds its process is killed.

    A run that still waits, here or on another machine, becomes `stopped` at once, and so does one whose machine
    has fallen silent; one that has ended stays as it is. JobError when another machine trains it, RunError when
    it can't be read.
    """
    desk = desk_of(root, RunWriter(root / run_id).status)
    with desk.key():
        run = RunWriter(desk.root / run_id)
        if not run.status.active:
            return
        ticket = desk.tickets().get(run_id)
        if run.status.host != this_host() and (ticket is None or ticket.launched):
            _give_up(run)
            return
        if ticket is None:  # started by hand: the worker follows it to its end all the same
            ticket = Ticket(run_id, number=0, pid=run.status.pid, started=run.status.pid_started)
        if not ticket.launched:
            run.set_status(state="stopped")
            desk.remove(run_id)
            return
        if not ticket.stopping:
            desk.put(replace(ticket, kill_after=time.monotonic() + grace))
        assert ticket.pid is not None
        terminate(ticket.pid, ticket.started or 0.0)
    serve(root)


def tidy(root: Path, runs: Iterable[Run] | None = None) -> None:
    """Record what happened while nobody looked; cheap, to be called when the app starts and while runs train.

    Runs of this machine whose process is gone become `failed`; runs that wait get a worker if they lack one;
    what an interrupted deletion left behind goes. `runs` spares reading them when the caller has just done so.
    """
    desk = Desk(root)
    sweep_graves(desk.root)
    for run in RunStore(desk.root) if runs is None else runs:
        if run.problem is None and _is_lost(run.status):
            with desk.key():
                _record_loss(desk, run.id)
    serve(root)


def serve(root: Path) -> None:
    """Start a worker if runs have tickets and there is none."""
    desk = Desk(root)
    if not desk.tickets():
        return
    with desk.key():
        if not desk.has_worker():
            _start_worker(desk)


def _give_up(run: RunWriter) -> None:
    """Mark a run of a machine that has fallen silent as stopped; JobError when it is still heard of."""
    host, state = run.status.host, run.status.state
    if is_alive(run.status):
        where = "is trained on" if state == "running" else "waits on"
        raise JobError(f"{run.run_id} {where} {host}; stop it there")
    run.set_status(state="stopped", error=f"contact with {host} was lost at step {run.status.step}")


def _is_lost(status: RunStatus) -> bool:
    if not status.active or status.host != this_host() or is_alive(status):
        return False
    return status.state == "running" or status.seconds_since_heartbeat() > UNCLAIMED_SECONDS


def _record_loss(desk: Desk, run_id: str) -> None:
    """Mark a run without a process as failed. A run with a ticket is its worker's business."""
    if run_id in desk.tickets():
        return
    try:
        run = RunWriter(desk.root / run_id)  # read again: it may have ended well since
    except RunError:
        return
    if not _is_lost(run.status):
        return
    if run.status.state == "queued":
        run.set_status(state="failed", error="it was queued, but no process took it up")
    else:
        run.set_status(state="failed", error=f"its process ended at step {run.status.step} without a word")


def _start_worker(desk: Desk) -> None:
    """Start a worker that outlives this process."""
    _workers[:] = [worker for worker in _workers if worker.poll() is None]
    command = [sys.executable, "-m", "moco_core.jobs.worker", str(desk.root), *TRAINER]
    with (desk.folder / "worker.log").open("ab") as log:
        _workers.append(
            subprocess.Popen(
                command,
                cwd=Path(moco_core.__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        )
