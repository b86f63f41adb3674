"""Runs of other machines that share the runs root: whether they live, and what can be done with them from here."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from moco_core import jobs
from moco_core.dashboard.runs_table import runs_table
from moco_core.dashboard.selection import labels
from moco_core.dashboard.standstill import standstill
from moco_core.jobs import processes
from moco_core.jobs.desk import Desk, Ticket
from moco_core.runs import RunStatus, RunStore
from tests.jobs.conftest import status
from tests.synthetic import write_run


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def write(root: Path, name: str, seconds: float, **changes: Any) -> str:
    """A run of the machine `gpu-box` whose last heartbeat is some seconds old; returns its id."""
    path = write_run(root, name) / "status.json"
    own = {"state": "running", "host": "gpu-box", "pid": sum(name.encode()), "pid_started": 5.0}
    path.write_text(json.dumps(json.loads(path.read_text()) | own | {"heartbeat": ago(seconds)} | changes))
    return path.parent.name


def queued(root: Path, name: str, seconds: float, **ticket: Any) -> str:
    run_id = write(root, name, seconds, state="queued", pid=None, pid_started=None)
    desk = Desk(root, "gpu-box")
    desk.folder.mkdir(parents=True, exist_ok=True)
    desk.put(Ticket(run_id, 1, **ticket))
    return run_id


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """This process's own clock, which stands still unless told."""
    now = [1000.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(processes, "_signs", {})
    return now


def test_the_table_says_where_they_are_and_when_they_were_heard_of(root: Path) -> None:
    write(root, "fresh", 5)
    write(root, "silent", 61)
    write(root, "never", 0, heartbeat="")
    queued(root, "waiting", 600)
    write_run(root, "here", state="stopped")
    runs = list(RunStore(root))
    table = runs_table(runs, jobs.tickets(root, runs), labels(runs))
    shown = {name: tuple(table.loc[name, ["state", "host", "note"]]) for name in table.index}
    expected = {
        "fresh": ("● running 100%", "gpu-box", r"last sign of life [5-9] s ago"),
        "silent": ("? lost contact", "gpu-box", r"last sign of life 6\d s ago"),
        "never": ("? lost contact", "gpu-box", "no sign of life yet"),
        "waiting": ("◌ queued", "gpu-box", "queued 10 min ago"),
        "here": ("◐ stopped", "", ""),
    }
    assert shown.keys() == expected.keys()
    for name, (state, host, note) in expected.items():
        assert shown[name][:2] == (state, host)
        assert re.fullmatch(note, shown[name][2])


def test_one_that_lives_is_left_to_its_machine(root: Path) -> None:
    run_id = write(root, "fresh", 5)
    before = (root / run_id / "status.json").read_text()
    with pytest.raises(jobs.JobError, match="fresh is trained on gpu-box; stop it there"):
        jobs.stop(root, run_id)
    with pytest.raises(jobs.JobError, match="fresh is running; stop it before deleting it"):
        jobs.delete(root, run_id)
    with pytest.raises(jobs.JobError, match="fresh is running; only a stopped or failed run can go on"):
        jobs.resume(root, run_id)
    jobs.tidy(root)
    assert (root / run_id / "status.json").read_text() == before


def test_one_that_fell_silent_can_be_given_up_and_deleted(root: Path) -> None:
    first, second = write(root, "first", 61), write(root, "second", 61)
    jobs.tidy(root)
    assert status(root, first).state == "running"  # it may only be cut off
    jobs.stop(root, first)
    assert status(root, first).state == "stopped"
    assert status(root, first).error == "contact with gpu-box was lost at step 20"
    jobs.delete(root, second)
    assert [run.id for run in RunStore(root)] == [first]


def test_one_that_waits_there_is_taken_from_its_queue(root: Path) -> None:
    run_id = queued(root, "waiting", 600)
    with pytest.raises(jobs.JobError, match="waiting is queued; stop it before deleting it"):
        jobs.delete(root, run_id)
    jobs.stop(root, run_id)
    assert status(root, run_id).state == "stopped"
    assert Desk(root, "gpu-box").tickets() == {}
    jobs.delete(root, run_id)
    assert len(RunStore(root)) == 0


def test_one_that_starts_there_is_left_alone(root: Path) -> None:
    run_id = queued(root, "starting", 1, pid=7, started=7.0)
    with pytest.raises(jobs.JobError, match="starting waits on gpu-box; stop it there"):
        jobs.stop(root, run_id)
    assert list(Desk(root, "gpu-box").tickets()) == [run_id]


def test_one_that_nobody_there_knows_is_given_up(root: Path) -> None:
    run_id = write(root, "orphan", 600, state="queued", pid=None)
    jobs.stop(root, run_id)
    assert status(root, run_id).state == "stopped"


@pytest.mark.parametrize("host", ["..", "../../elsewhere", "@slurm", ""])
def test_a_host_that_is_no_name_leads_nowhere(root: Path, host: str) -> None:
    run_id = write(root, "odd", 600, host=host)
    jobs.stop(root, run_id)
    jobs.delete(root, run_id)
    assert not (root.parent / "elsewhere").exists()
    assert not list(root.glob("desk.lock"))


# Clocks that differ


def sign(heartbeat: str) -> RunStatus:
    return RunStatus("running", heartbeat=heartbeat, host="gpu-box", pid=1, pid_started=1.0)


def test_a_clock_behind_ours_matters_at_the_first_look_alone(clock: list[float]) -> None:
    assert not jobs.is_alive(sign(ago(3600)))
    clock[0] += 3
    moved_on = sign(ago(3590))
    assert jobs.is_alive(moved_on)
    clock[0] += 56
    assert jobs.is_alive(moved_on)
    clock[0] += 2
    assert not jobs.is_alive(moved_on)


def test_a_clock_ahead_of_ours_does_not_keep_the_dead_alive(clock: list[float]) -> None:
    ahead = ago(-3600)
    assert jobs.is_alive(sign(ahead))
    clock[0] += 59
    assert jobs.is_alive(sign(ahead))
    clock[0] += 2
    assert not jobs.is_alive(sign(ahead))


def test_a_sign_of_life_is_no_older_than_the_look_before_it(clock: list[float]) -> None:
    assert jobs.silence(sign(ago(500))) == pytest.approx(500, abs=1)
    clock[0] += 8
    moved_on = ago(490)
    assert jobs.silence(sign(moved_on)) == 8
    clock[0] += 5
    assert jobs.silence(sign(moved_on)) == 13
    clock[0] += 100
    assert jobs.silence(sign(ago(3))) == pytest.approx(3, abs=1)  # clocks agree: the exact age
    clock[0] += 7
    assert jobs.silence(sign(ago(900))) == 7  # that clock was set back


# Processes that live and do nothing


def test_a_run_that_beats_but_takes_no_step_says_so(root: Path, clock: list[float]) -> None:
    run_id = write(root, "hangs", 0, step=20, stepped=ago(59))

    def note() -> str:
        runs = list(RunStore(root))
        path = root / run_id / "status.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"heartbeat": ago(0)}))
        return str(runs_table(runs, jobs.tickets(root, runs), labels(runs)).loc[run_id, "note"])

    assert note() == "last sign of life 0 s ago"
    clock[0] += 2
    assert note() == "last sign of life 0 s ago, last step 61 s ago"
    clock[0] += 3600
    assert note().endswith("last step 61 min ago")
    path = root / run_id / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"step": 21, "stepped": ago(0)}))
    assert note() == "last sign of life 0 s ago"


def test_a_run_of_slow_steps_is_given_ten_of_them(root: Path, clock: list[float]) -> None:
    run_id = write(root, "slow", 0, step=20, stepped=ago(70))
    (run,) = RunStore(root)
    logged = {name: values.copy() for name, values in run.history().items()}
    assert standstill(run, logged) == "last step 70 s ago"
    logged["pairs_per_s"][:] = 1.0  # a step of the 8 pairs takes 8 s
    assert standstill(run, logged) == ""
    clock[0] += 11
    assert standstill(run, logged) == "last step 81 s ago"
    assert run_id == run.id


def test_a_run_of_an_earlier_version_says_nothing_of_its_last_step(root: Path) -> None:
    write(root, "old", 0)
    (run,) = RunStore(root)
    old = RunStatus.from_dict({"state": "running", "step": 5, "heartbeat": ago(0)})
    assert jobs.standstill(old) == float("inf")
    run.status = old
    assert standstill(run, run.history()) == ""
