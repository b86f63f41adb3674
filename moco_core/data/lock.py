"""One process at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Hold the lock `what` in `folder`; other processes on this machine that want it wait.

    The lock ends with the process, however it ends. Raises `OSError` where the folder can't be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f".{what}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
