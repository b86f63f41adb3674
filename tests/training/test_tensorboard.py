"""The copy of a run's numbers that TensorBoard reads."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from moco_core import cli
from moco_core.config import TrainConfig
from moco_core.jobs.removal import delete
from moco_core.runs import Run, RunStore, schema
from moco_core.runs.verify import damage
from moco_core.training.command import train_new, train_resumed
from tests.training.small import SMALL, assert_identical
from tests.training.test_command import started, wait_for_resume_state


def events(run: Run) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: (step, value) in order, by name."""
    reader = EventAccumulator(str(run.path / schema.TENSORBOARD_DIR), size_guidance={"scalars": 0})
    reader.Reload()
    return {name: [(e.step, e.value) for e in reader.Scalars(name)] for name in reader.Tags()["scalars"]}


def truth(run: Run) -> dict[str, list[tuple[int, float]]]:
    """The same from the run directory."""
    history = run.history()
    steps = history.pop("step")
    found = {name: list(zip(steps, column, strict=True)) for name, column in history.items()}
    for checkpoint in run.steps:
        for name, entry in checkpoint.metrics.items():
            found.setdefault(name, []).append((checkpoint.step, entry["value"]))
    return found


def assert_copied(run: Run) -> None:
    copied, expected = events(run), truth(run)
    assert copied.keys() == expected.keys()
    for name, points in expected.items():
        assert [step for step, _ in copied[name]] == [step for step, _ in points], name
        np.testing.assert_allclose(copied[name], points, rtol=1e-6, err_msg=name)


def only_run(root: Path) -> Run:
    (run,) = RunStore(root)
    return run


@pytest.fixture
def stopped(tmp_path) -> Run:
    train_new(TrainConfig(**SMALL, tensorboard=True), tmp_path, stop_after=7)
    return only_run(tmp_path)


def test_history_and_metrics_are_copied(stopped):
    assert_copied(stopped)
    copied = events(stopped)
    assert set(copied) >= {*schema.HISTORY_KEYS, "knn", "alignment", "collapse"} - {"step"}
    assert [step for step, _ in copied["loss"]] == list(range(1, 8))
    assert [step for step, _ in copied["knn"]] == [0, 1, 7]


def test_a_resumed_run_goes_on_in_the_copy(stopped, tmp_path):
    before = events(stopped)
    train_resumed(tmp_path, stopped.id)
    run = only_run(tmp_path)
    assert run.status.state == "finished"
    assert_copied(run)
    after = events(run)
    assert [step for step, _ in after["loss"]] == list(range(1, 13))
    assert [step for step, _ in after["knn"]] == [0, 1, 7, 12]
    assert after["loss"][:7] == before["loss"]
    assert len(list((run.path / schema.TENSORBOARD_DIR).iterdir())) == 2


def test_a_clock_that_was_set_back_hides_nothing_of_the_copy(stopped, tmp_path, monkeypatch):
    now = time.time
    for hours, step in ((1, 9), (2, 11)):
        with monkeypatch.context() as back:
            back.setattr(event_file_writer.time, "time", lambda hours=hours: now() - 3600 * hours)
            train_resumed(tmp_path, stopped.id, stop_after=step)
        assert [step for step, _ in events(only_run(tmp_path))["loss"]] == list(range(1, step + 1))
        assert_copied(only_run(tmp_path))


def halted_beyond_its_resume_state(process: subprocess.Popen[str], root: Path) -> bool:
    """Halt a run; whether the copy holds steps that the resume state lacks, which the next resume state ends."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    run = only_run(root)
    return max(step for step, _ in events(run)["loss"]) > run.resume_state().step


def test_a_killed_run_leaves_a_copy_that_goes_on_where_it_does(tmp_path, command):
    words = ("--steps", 100_000, "--log-every", 1, "--checkpoint-minutes", 0.02, "--tensorboard")
    process = started(tmp_path, *words)
    wait_for_resume_state(tmp_path)
    while not halted_beyond_its_resume_state(process, tmp_path):
        process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    process.kill()
    process.communicate(timeout=60)
    run = only_run(tmp_path)
    saved = run.resume_state().step
    assert max(step for step, _ in events(run)["loss"]) > saved > 0
    done = command("train", "--runs", tmp_path, "--resume", run.id, "--stop-after", saved + 3, "--no-project")
    assert done.returncode == 0, done.stderr
    run = only_run(tmp_path)
    assert [step for step, _ in events(run)["loss"]] == list(range(1, saved + 4))
    assert_copied(run)


def test_training_is_the_same_with_and_without_a_copy(tmp_path):
    for name, wanted in (("with", True), ("without", False)):
        train_new(TrainConfig(**SMALL, tensorboard=wanted, name=name), tmp_path)
    runs = RunStore(tmp_path)
    assert_identical(runs["with"], runs["without"])
    assert not (runs["without"].path / schema.TENSORBOARD_DIR).exists()


def test_nothing_else_takes_notice_of_the_copy(stopped, tmp_path):
    assert len(RunStore(tmp_path)) == 1
    assert stopped.problem is None
    assert (list(damage(stopped)), stopped.damaged_steps) == ([], {})
    assert [checkpoint.step for checkpoint in stopped.steps] == [0, 1, 7]
    delete(tmp_path, stopped.id)
    assert not stopped.path.exists()
    assert len(RunStore(tmp_path)) == 0


@pytest.fixture
def without_tensorboard(monkeypatch) -> None:
    present = [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]
    for name in [*present, "tensorboard"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)


def test_without_its_package_nothing_begins(tmp_path, monkeypatch, capsys, without_tensorboard):
    words = ["moco_core", "train", "--runs", str(tmp_path / "runs"), "--tensorboard"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "error: tensorboard needs its package: pip install tensorboard" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
