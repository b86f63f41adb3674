"""A run's heart beats for as long as its process trains, whatever that does, and never speaks for anybody else."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from moco_core.config import TrainConfig
from moco_core.runs import RunStatus, RunStore, RunWriter, writer

BEAT = 0.05


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunWriter:
    monkeypatch.setattr(writer, "BEAT_SECONDS", BEAT)
    return RunWriter.create(tmp_path, TrainConfig(name="run"))


def on_disk(run: RunWriter) -> dict[str, Any]:
    return json.loads((run.path / "status.json").read_text())


def heartbeats(run: RunWriter, seconds: float) -> list[str]:
    """The heartbeats seen within some seconds, in their order."""
    seen: list[str] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        heartbeat = on_disk(run)["heartbeat"]
        if heartbeat not in seen:
            seen.append(heartbeat)
        time.sleep(BEAT / 10)
    return seen


def heard(run: RunWriter, count: int) -> list[str]:
    """So many heartbeats, in their order, however long they take where the processor or the disk is busy."""
    seen: list[str] = []
    deadline = time.monotonic() + 60
    while len(seen) < count:
        assert time.monotonic() < deadline, seen
        seen += [new for new in heartbeats(run, BEAT) if new not in seen]
    return seen


def test_a_run_beats_while_its_loop_says_nothing(run: RunWriter) -> None:
    run.set_status(step=7)
    assert on_disk(run)["stepped"] == on_disk(run)["heartbeat"]
    with run.training():
        before = on_disk(run)
        seen = heard(run, 4)
        after = on_disk(run)
    assert seen == sorted(seen)
    assert {**after, "heartbeat": ""} == {**before, "heartbeat": ""}  # the moment of the last step, too
    assert (after["state"], after["step"]) == ("running", 7)


def test_a_run_that_has_ended_beats_no_more(run: RunWriter) -> None:
    with run.training():
        run.set_status(state="finished", step=9)
        assert len(heartbeats(run, 6 * BEAT)) == 1
    assert len(heartbeats(run, 6 * BEAT)) == 1
    assert (on_disk(run)["state"], on_disk(run)["step"]) == ("finished", 9)


def test_the_heart_stops_with_the_training_that_raises(run: RunWriter) -> None:
    with pytest.raises(OSError, match="cable"), run.training():
        raise OSError("cable")
    assert not [t for t in threading.enumerate() if t.name == "heart of run"]
    assert len(heartbeats(run, 6 * BEAT)) == 1


def test_a_beat_under_way_does_not_revert_a_final_state(
    run: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    beating = threading.Event()
    replace_json = writer.replace_json

    def slow(path: Path, value: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            beating.set()
            time.sleep(0.3)  # a slow disk, just as the run ends
        replace_json(path, value)

    monkeypatch.setattr(writer, "replace_json", slow)
    with run.training():
        assert beating.wait(60)
        run.set_status(state="finished", step=3)
    assert (on_disk(run)["state"], on_disk(run)["step"]) == ("finished", 3)


def test_beats_and_steps_at_once_are_never_torn_or_reverted(
    run: RunWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BEAT_SECONDS", 0.0005)
    seen: list[int] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.append(on_disk(run)["step"])

    with run.training():
        reader = threading.Thread(target=read)
        reader.start()
        for step in range(1, 200):
            run.set_status(step=step)
            time.sleep(0.001)
        over.set()
        reader.join()
    assert len(set(seen)) > 20
    assert seen == sorted(seen)
    assert on_disk(run)["step"] == 199
    assert [path.name for path in run.path.glob(".status*")] == []


def test_storage_that_is_away_for_a_moment_is_borne(run: RunWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_json = writer.replace_json
    tried = threading.Event()
    with run.training():

        def away(path: Path, value: Any) -> None:
            tried.set()
            raise OSError("stale file handle")

        monkeypatch.setattr(writer, "replace_json", away)
        assert tried.wait(60)
        monkeypatch.setattr(writer, "replace_json", replace_json)
        heard(run, 2)


def test_the_heart_dies_with_its_process(run: RunWriter) -> None:
    script = (
        "import sys, time; from pathlib import Path; from moco_core.runs import RunWriter, writer;"
        f"writer.BEAT_SECONDS = {BEAT}; run = RunWriter(Path(sys.argv[1]))\n"
        "with run.training(): time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(run.path)])
    deadline = time.monotonic() + 60
    while on_disk(run)["state"] != "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    heard(run, 3)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert len(heartbeats(run, 6 * BEAT)) == 1
    assert RunStore(run.path.parent)["run"].status.state == "running"  # the listing's affair now


@pytest.mark.parametrize(
    "heartbeat", ["", "yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"]
)
def test_a_heartbeat_that_is_no_moment_was_never_heard(heartbeat: str) -> None:
    assert RunStatus("running", heartbeat=heartbeat).seconds_since_heartbeat() == float("inf")
