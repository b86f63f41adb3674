"""A history is followed as it grows: only what is new is read, and never what another file has said."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from moco_core.runs import Run, RunWriter, history, schema
from moco_core.runs.history import History
from tests.synthetic import write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(write_run(tmp_path, steps=(0, 10)))


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every line that is taken apart."""
    seen: list[bytes] = []
    row = history._row
    monkeypatch.setattr(history, "_row", lambda line: (seen.append(line), row(line))[1])
    return seen


def record(step: int, loss: float = 1.0) -> dict[str, float]:
    return {key: 0.5 for key in schema.HISTORY_KEYS} | {"step": step, "loss": loss}


def test_a_second_look_reads_what_is_new(run: Run, lines: list[bytes]) -> None:
    followed = History(run.path)
    assert followed.read()["step"].tolist() == list(range(1, 11))
    assert len(lines) == 10
    followed.read()
    assert len(lines) == 10
    RunWriter(run.path).append_history([record(11), record(12)])
    assert followed.read()["step"].tolist() == list(range(1, 13))
    assert len(lines) == 12
    for name, column in run.history().items():
        np.testing.assert_array_equal(followed.read()[name], column)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null(run: Run, value: float) -> None:
    RunWriter(run.path).append_history([record(11, loss=value)])
    last = (run.path / schema.HISTORY_FILE).read_text().splitlines()[-1]
    assert json.loads(last, parse_constant=pytest.fail)["loss"] is None  # NaN and Infinity aren't JSON
    assert math.isnan(run.history()["loss"][-1])


def test_what_a_run_that_goes_on_takes_back_is_gone(run: Run) -> None:
    followed = History(run.path)
    followed.read()
    writer = RunWriter(run.path)
    writer.truncate_history(4)
    assert followed.read()["step"].tolist() == [1, 2, 3, 4]
    writer.truncate_history(2)
    writer.append_history([record(step, loss=9.0) for step in range(3, 15)])  # longer than before
    found = followed.read()
    assert found["step"].tolist() == list(range(1, 15))
    assert found["loss"][2:].tolist() == [9.0] * 12


def test_another_run_of_the_same_name_is_read_from_its_start(run: Run) -> None:
    followed = History(run.path)
    followed.read()
    text = "".join(json.dumps(record(step)) + "\n" for step in range(101, 200))
    (run.path / schema.HISTORY_FILE).write_text(text)  # in place: not even the file's number changes
    assert followed.read()["step"].tolist() == list(range(101, 200))


def test_a_line_that_is_being_written_is_read_when_it_is_whole(run: Run) -> None:
    followed = History(run.path)
    line = json.dumps(record(11)) + "\n"
    with (run.path / schema.HISTORY_FILE).open("a") as file:
        file.write(line[:40])
        file.flush()
        assert followed.read()["step"][-1] == 10
        file.write(line[40:])
    assert followed.read()["step"].tolist() == list(range(1, 12))


@pytest.mark.parametrize("there", [os.mkfifo, os.mkdir, lambda path: None])
def test_a_history_that_goes_away_is_empty(run: Run, there) -> None:
    followed = History(run.path)
    followed.read()
    (run.path / schema.HISTORY_FILE).unlink()
    there(run.path / schema.HISTORY_FILE)
    assert {len(column) for column in followed.read().values()} == {0}
