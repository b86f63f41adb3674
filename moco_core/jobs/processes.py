"""Which process is meant: a pid is given to another process later, a pid with its start time is not."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass

import psutil

from moco_core.runs import RunStatus

CLOCK_SECONDS = 2.0  # start times are derived from the clock, which may be corrected by a little
CONTACT_SECONDS = 60.0


@dataclass(frozen=True)
class _Sign:
    """A heartbeat as this process saw it first: when, by its own clock, and how old it was then (seconds)."""

    heartbeat: str
    seen: float
    age: float


_signs: dict[tuple[str, int, float | None], _Sign] = {}  # the newest of each process that trains somewhere


def this_host() -> str:
    """The name under which this machine signs what it writes."""
    return socket.gethostname()


def started_at(pid: int) -> float | None:
    """When the process `pid` started (seconds since 1970), or None when there is no such process."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def exists(pid: int, started: float) -> bool:
    """Whether the very process that had this pid and start time is still there."""
    now = started_at(pid)
    return now is not None and abs(now - started) < CLOCK_SECONDS


def is_alive(status: RunStatus) -> bool:
    """Whether some process still works on a run, as far as this machine can tell.

    A run of another host is known by its heartbeat alone; its pid means nothing here.
    """
    if status.host != this_host() or status.pid is None or status.pid_started is None:
        return silence(status) < CONTACT_SECONDS
    return exists(status.pid, status.pid_started)


def silence(status: RunStatus) -> float:
    """Seconds since a run gave its last sign of life; infinite when it never gave one.

    Clocks of two machines may differ, so they are compared at the first look alone. From then on this process
    counts by its own clock for how long the heartbeat stays as it is, and one that has moved on can't be older
    than the look before.
    """
    age = max(status.seconds_since_heartbeat(), 0.0)
    if status.pid is None:  # it waits: nobody renews its heartbeat
        return age
    now = time.monotonic()
    writer = (status.host, status.pid, status.pid_started)
    sign = _signs.get(writer)
    if sign is None or status.heartbeat < sign.heartbeat:
        sign = _Sign(status.heartbeat, now, age)
    elif status.heartbeat > sign.heartbeat:
        sign = _Sign(status.heartbeat, now, min(age, now - sign.seen))
    _signs[writer] = sign
    return sign.age + now - sign.seen


def terminate(pid: int, started: float) -> None:
    """Ask a process to end, with its group when it leads one."""
    _send(pid, started, signal.SIGTERM)


def kill(pid: int, started: float) -> None:
    """End a process without asking, with its group when it leads one."""
    _send(pid, started, signal.SIGKILL)


def _send(pid: int, started: float, number: signal.Signals) -> None:
    if not exists(pid, started):
        return
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended in between
