"""Which process is meant: a pid is given to another process later, a pid with its start time is not."""

from __future__ import annotations

import os
import socket
from typing import Any

import psutil


def start_of(pid: int) -> float:
    """When a process started, in seconds since this machine did: moments by the clock change when that is set."""
    booted = psutil.boot_time()
    return float(psutil.Process(pid).create_time() - booted)


def this_process() -> dict[str, Any]:
    """What status.json says of the process that trains."""
    return {"pid": os.getpid(), "pid_started": start_of(os.getpid()), "host": socket.gethostname()}
