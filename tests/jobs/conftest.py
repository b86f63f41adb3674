"""Jobs that run the stand-in trainer, and are gone when the test ends."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from moco_core.jobs import local, slurm
from moco_core.jobs.desk import Desk
from moco_core.runs import RunStatus, RunStore
from tests.jobs import fake_slurm

TRAINER = (sys.executable, "-m", "tests.jobs.trainer")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runs root whose runs are taken up by the stand-in trainer."""
    monkeypatch.setattr(local, "TRAINER", TRAINER)
    yield tmp_path
    for process in processes_of(tmp_path):
        process.send_signal(signal.SIGKILL)
    while local._workers:
        local._workers.pop().wait(10)


def processes_of(root: Path, kind: str = "") -> list[psutil.Process]:
    """The workers and trainers of one runs root (or one `kind`: `worker`, `trainer`)."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(root) in words and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
            is_worker = "moco_core.jobs.worker" in words
            if not kind or is_worker == (kind == "worker"):
                found.append(process)
    return found


def status(root: Path, run_id: str) -> RunStatus:
    """What status.json says now."""
    return RunStore(root)[run_id].status


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until the condition holds; fails when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def wait_for_state(root: Path, run_id: str, state: str) -> RunStatus:
    """Wait until a run is in this state and, if it has ended, until its ticket is gone."""
    wait_for(lambda: status(root, run_id).state == state)
    if state not in ("queued", "running"):
        wait_for(lambda: run_id not in Desk(root).tickets())
    return status(root, run_id)


def events(root: Path) -> list[tuple[str, str]]:
    """(what, run id) in the order in which the trainers noted them."""
    path = root / "events.txt"
    return [tuple(line.split()[:2]) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def cluster(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a SLURM of this machine, whose commands are on PATH; jobs run the stand-in trainer."""
    folder = tmp_path / ".slurm"
    monkeypatch.setenv("PATH", f"{fake_slurm.install(folder)}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setattr(slurm, "_asked", {})
    yield folder
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("FAKE_SLURM") == str(folder):
                process.kill()
