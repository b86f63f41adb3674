"""Desk: the tickets of runs that wait or train, in files that every process of this machine shares.

They lie in `<runs root>/.jobs/<host>/`, one folder a machine, so that machines sharing a runs root keep
queues of their own. A run has a ticket from the moment it is queued until its end has been recorded.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from moco_core.jobs.processes import exists, this_host
from moco_core.runs.files import make_folder, replace_json

FOLDER = ".jobs"


class JobError(ValueError):
    """A run can't be started or stopped; the message says why in one sentence."""


@dataclass(frozen=True)
class Ticket:
    """A run that waits its turn (no pid yet) or trains."""

    run_id: str
    number: int  # the lowest is served first
    pid: int | None = None
    started: float | None = None  # start time of that process, seconds since the machine started
    kill_after: float | None = None  # set when asked to stop: when patience ends, by `time.monotonic`

    @property
    def launched(self) -> bool:
        """Whether a process was started for the run."""
        return self.pid is not None

    @property
    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self.kill_after is not None

    @property
    def alive(self) -> bool:
        """Whether that process is still there."""
        return self.pid is not None and self.started is not None and exists(self.pid, self.started)


class Desk:
    """The tickets of one runs root on this machine, or on another one that shares the runs root."""

    def __init__(self, root: Path, host: str = "") -> None:
        self.root = Path(os.path.realpath(root))
        self.folder = self.root / FOLDER / (host or this_host())

    def tickets(self) -> dict[str, Ticket]:
        """Tickets by run id, in the order in which they are served. May be read without the key."""
        try:
            tickets = [t for t in map(_read_ticket, self.folder.glob("*.ticket")) if t is not None]
        except OSError:
            return {}  # a folder that nobody may look into: nothing is known to wait in it
        return {t.run_id: t for t in sorted(tickets, key=lambda t: (t.number, t.run_id))}

    @contextmanager
    def key(self) -> Iterator[None]:
        """Hold the desk for a moment; whoever changes tickets or looks whether there is a worker holds it."""
        with held(self.folder / "desk.lock"):
            yield

    def add(self, run_id: str) -> None:
        """Queue a run behind all others."""
        last = max((ticket.number for ticket in self.tickets().values()), default=0)
        self.put(Ticket(run_id, last + 1))

    def put(self, ticket: Ticket) -> None:
        """Write a ticket, in place of the run's earlier one."""
        replace_json(self._path(ticket.run_id), dataclasses.asdict(ticket))

    def remove(self, run_id: str) -> None:
        """Take a run's ticket away; nothing happens when it has none."""
        self._path(run_id).unlink(missing_ok=True)

    def claim_worker(self) -> IO[str] | None:
        """Become the worker until the returned file is closed; None when there is one already. Needs the key."""
        file = (self.folder / "worker.lock").open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def has_worker(self) -> bool:
        """Whether a worker serves the tickets. Needs the key."""
        file = self.claim_worker()
        if file is not None:
            file.close()
        return file is None

    def log(self, run_id: str) -> Path:
        """Where the output of a run's process goes."""
        return self.folder / f"{run_id}.log"

    def _path(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.ticket"


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a lock file that all processes share; its folder is made when it is missing."""
    make_folder(lock.parent)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read_ticket(path: Path) -> Ticket | None:
    try:
        return Ticket(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None  # taken away in between, or not ours
