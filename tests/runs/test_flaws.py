"""What a cheap look finds wrong with a run, and what it takes for a run that trains."""

import json
from pathlib import Path

import pytest

from moco_core.config import TrainConfig
from moco_core.runs import Run, RunWriter, schema
from moco_core.runs.flaws import flaws
from moco_core.runs.history import History
from moco_core.runs.verify import damage
from tests.synthetic import write_run


def found(path: Path) -> dict[str, str]:
    return flaws(Run(path), History(path))


def cut(file: Path, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_run(tmp_path)  # snapshots of steps 0, 10 and 20


@pytest.mark.parametrize(
    ("size", "flaw"),
    [
        (-1, ""),  # but for its end, the last line is whole
        (-9, "it ends at step 19, and the run has a snapshot of step 20"),
        (0, "it holds no step, and the run has a snapshot of step 20"),
    ],
)
def test_a_history_that_is_cut_short(path: Path, size: int, flaw: str) -> None:
    assert found(path) == {}
    cut(path / schema.HISTORY_FILE, size)
    assert found(path) == ({schema.HISTORY_FILE: flaw} if flaw else {})
    assert list(damage(Run(path))) == ([f"{path.name}/{schema.HISTORY_FILE}: {flaw}"] if flaw else [])


def test_a_history_that_is_not_there(path: Path) -> None:
    (path / schema.HISTORY_FILE).unlink()
    assert "holds no step" in found(path)[schema.HISTORY_FILE]


def test_lines_that_are_no_records(path: Path) -> None:
    file = path / schema.HISTORY_FILE
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:4], lines[4][:30], *lines[5:]]) + "\n")
    assert found(path)[schema.HISTORY_FILE] == "1 line can't be read and is left out"
    file.write_text("\n".join([*lines[:4], "null", lines[4][:30], *lines[5:]]) + "\n")
    assert found(path)[schema.HISTORY_FILE] == "2 lines can't be read and are left out"
    file.write_text("\n".join(lines) + "\n")
    assert found(path) == {}


def test_a_line_that_is_being_written_is_no_damage(path: Path) -> None:
    writer = RunWriter(path)
    writer.set_status(state="running")
    with (path / schema.HISTORY_FILE).open("a") as file:
        file.write('{"step": 21, "lo')
    assert found(path) == {}


def test_a_run_that_goes_on_from_before_its_newest_snapshot_is_sound(path: Path) -> None:
    writer = RunWriter(path)
    writer.truncate_history(10)
    writer.set_status(state="running", step=20)
    assert found(path) == {}
    writer.set_status(state="stopped", step=10)
    assert found(path) == {}


def test_steps_between_those_that_are_logged_are_not_missed(tmp_path: Path) -> None:
    path = write_run(tmp_path, steps=(0, 3000), state="stopped")
    interval = Run(path).config.log_interval
    assert interval > 1
    RunWriter(path).truncate_history(0)
    logged = [1, *range(interval, 3001, interval), 3000]
    record = dict.fromkeys(schema.HISTORY_KEYS, 0.5)
    RunWriter(path).append_history([record | {"step": step} for step in logged])
    assert found(path) == {}
    RunWriter(path).truncate_history(logged[-2])
    assert f"ends at step {logged[-2]:,}" in found(path)[schema.HISTORY_FILE]


@pytest.mark.parametrize("size", [-1, 100, 5, 0])
def test_a_cut_eval_set(path: Path, size: int) -> None:
    cut(path / schema.EVAL_FILE, size)
    assert "can't be read" in found(path)[schema.EVAL_FILE]
    assert len(list(damage(Run(path)))) == 1


def test_an_eval_set_that_is_not_there(path: Path) -> None:
    (path / schema.EVAL_FILE).unlink()
    assert found(path) == {schema.EVAL_FILE: "it can't be opened: No such file or directory"}
    assert len(list(damage(Run(path)))) == 1


def test_a_run_that_ended_before_it_began_and_one_that_cant_be_read_have_no_flaws(path: Path) -> None:
    writer = RunWriter.create(path.parent, TrainConfig())
    writer.set_status(state="failed", error="out of memory")
    assert found(writer.path) == {}
    (path / schema.RUN_FILE).write_text(json.dumps({"schema": 99}))
    assert found(path) == {}
