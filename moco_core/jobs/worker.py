"""The worker: trains the queued runs of a runs root one at a time, oldest first, and ends when none is left.

Started as `python -m moco_core.jobs.worker ROOT TRAINER…`; TRAINER is the command that trains a run, to which
`--resume RUN_ID --runs ROOT` is added. Should the worker be killed, training goes on, and the next worker
follows it to its end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import moco_core
from moco_core.jobs.desk import Desk, Ticket
from moco_core.jobs.last_words import last_words
from moco_core.jobs.processes import is_alive, kill, started_at
from moco_core.runs import RunError, RunWriter

LOOK_SECONDS = 0.5


def work(root: Path, trainer: Sequence[str]) -> None:
    """Serve the tickets of `root` until there are none; returns at once when another worker does.

    Nothing is missed at the end: the last look and the goodbye happen in one turn at the desk, and so do
    adding a ticket and looking for a worker.
    """
    desk = Desk(root)
    with desk.key():
        claim = desk.claim_worker()
    if claim is None:
        return
    children: dict[str, subprocess.Popen[bytes]] = {}
    with claim:
        while True:
            with desk.key():
                _settle(desk, children)
                tickets = list(desk.tickets().values())
                if not tickets:
                    claim.close()
                    return
                if not any(ticket.launched for ticket in tickets):
                    _launch(desk, tickets[0], trainer, children)
            time.sleep(LOOK_SECONDS)


def _launch(
    desk: Desk, ticket: Ticket, trainer: Sequence[str], children: dict[str, subprocess.Popen[bytes]]
) -> None:
    run = _open(desk, ticket)
    if run is None or run.status.state != "queued":  # deleted, or someone trains or has trained it by hand
        desk.remove(ticket.run_id)
        return
    try:
        with desk.log(ticket.run_id).open("wb") as log:
            child = subprocess.Popen(
                [*trainer, "--resume", ticket.run_id, "--runs", str(desk.root)],
                cwd=Path(moco_core.__file__).parents[1],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"TQDM_DISABLE": "1", "PYTHONUNBUFFERED": "1"},
            )
    except OSError as error:
        run.set_status(state="failed", error=f"training can't be started: {error}")
        desk.remove(ticket.run_id)
        return
    children[ticket.run_id] = child
    desk.put(replace(ticket, pid=child.pid, started=started_at(child.pid) or 0.0))


def _settle(desk: Desk, children: dict[str, subprocess.Popen[bytes]]) -> None:
    """Kill what was asked to stop long ago; record how runs ended whose process is gone."""
    for ticket in desk.tickets().values():
        if ticket.pid is None or ticket.started is None:
            continue
        child = children.get(ticket.run_id)
        if not _gone(ticket, child):
            if ticket.kill_after is not None and time.monotonic() > ticket.kill_after:
                kill(ticket.pid, ticket.started)
            continue
        children.pop(ticket.run_id, None)
        if _record_end(desk, ticket, child.returncode if child else None):
            desk.remove(ticket.run_id)


def _gone(ticket: Ticket, child: subprocess.Popen[bytes] | None) -> bool:
    """Whether a run's process has ended; what it left behind in its group goes with it."""
    if child is None:
        return not ticket.alive
    if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return False
    os.killpg(child.pid, signal.SIGKILL)  # not reaped yet, so the number still means this group
    child.wait()
    return True


def _record_end(desk: Desk, ticket: Ticket, code: int | None) -> bool:
    """Give a run its final state unless it has one; False when another process turns out to train it."""
    run = _open(desk, ticket)
    if run is None or not run.status.active:
        return True
    status = run.status
    if status.state == "running" and status.pid != ticket.pid and is_alive(status):
        desk.put(replace(ticket, pid=status.pid, started=status.pid_started))
        return False
    if ticket.kill_after is None:
        run.set_status(state="failed", error=last_words(desk.log(ticket.run_id), code))
    elif time.monotonic() > ticket.kill_after:
        run.set_status(state="stopped", error="it did not end in time when asked to stop, and was killed")
    else:
        run.set_status(state="stopped")
    return True


def _open(desk: Desk, ticket: Ticket) -> RunWriter | None:
    """The run of a ticket, or None when it was deleted or damaged (the listing says so)."""
    try:
        return RunWriter(desk.root / ticket.run_id)
    except RunError:
        return None


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2:])
