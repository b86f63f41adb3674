"""Whether a process still is there and still works, and how to end it."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass

import psutil

from moco_core.runs import RunStatus
from moco_core.runs.process import start_of
from moco_core.runs.schema import seconds_since

CLOCK_SECONDS = 2.0  # start times are found with the clock, which may be set while that happens
CONTACT_SECONDS = 60.0


@dataclass(frozen=True)
class _Sign:
    """A moment in status.json as this process saw it first: when, by its own clock, and how old it was then."""

    moment: str
    seen: float
    age: float


_signs: dict[tuple[object, ...], _Sign] = {}  # the newest of each process that trains somewhere


def this_host() -> str:
    """The name under which this machine signs what it writes."""
    return socket.gethostname()


def started_at(pid: int) -> float | None:
    """When the process `pid` started (seconds since the machine did), or None when there is no such process."""
    try:
        return None if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else start_of(pid)
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
    """Seconds since a run gave its last sign of life; infinite when it never gave one."""
    if status.pid is None:  # it waits: nobody renews its heartbeat
        return max(status.seconds_since_heartbeat(), 0.0)
    return _since(status.heartbeat, ("life", status.host, status.pid, status.pid_started))


def standstill(status: RunStatus) -> float:
    """Seconds since a run took its last step, or began; infinite when it says nothing of that.

    A process may give signs of life for ever while it does nothing else.
    """
    return _since(status.stepped, ("step", status.host, status.pid, status.pid_started))


def _since(moment: str, whose: tuple[object, ...]) -> float:
    """Seconds since the moment that somebody noted.

    Clocks of two machines may differ, and any clock may be set, so they are compared at the first look alone. From
    then on this process counts by its own clock for how long the moment stays as it is, and one that has moved on
    can't be older than the look before.
    """
    now, age = time.monotonic(), max(seconds_since(moment), 0.0)
    sign = _signs.get(whose)
    if sign is None:
        sign = _Sign(moment, now, age)
    elif moment != sign.moment:
        sign = _Sign(moment, now, min(age, now - sign.seen))
    _signs[whose] = sign
    return sign.age + now - sign.seen


def terminate(pid: int, started: float) -> None:
    """Ask a process to end, with its group when it leads one; one that was halted is woken to hear it."""
    _send(pid, started, signal.SIGTERM)
    _send(pid, started, signal.SIGCONT)


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
