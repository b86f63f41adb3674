"""Small files are read again when they were written, and only then."""

import os
from pathlib import Path

import numpy as np
import pytest

from moco_core.runs import Run, RunWriter, history, reading, schema
from moco_core.runs.files import replace_json
from moco_core.runs.history import History
from moco_core.runs.reading import read_json
from tests.synthetic import write_run


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file was written long ago."""
    monkeypatch.setattr(reading, "SETTLED_NS", -(10**12))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file whose content is read."""
    seen: list[Path] = []
    read = reading.read
    monkeypatch.setattr(reading, "read", lambda path: (seen.append(path), read(path))[1])
    return seen


def test_a_second_look_reads_nothing(tmp_path: Path, settled: None, reads: list[Path]) -> None:
    path = write_run(tmp_path, steps=(0, 10))
    reading._kept_json.cache_clear()
    reads.clear()
    first = Run(path)
    assert [step.step for step in first.steps] == [0, 10]
    assert len(reads) == 6  # run.json, status.json, and of each step the manifest and the metrics
    second = Run(path)
    assert [step.metrics for step in second.steps] == [step.metrics for step in first.steps]
    assert (second.info, second.status) == (first.info, first.status)
    assert len(reads) == 6


def test_what_was_written_since_is_seen(tmp_path: Path, settled: None) -> None:
    path = write_run(tmp_path, steps=(0, 10))
    assert Run(path).name != "other"
    writer = RunWriter(path)
    writer.describe(name="other")
    writer.set_status(state="stopped", step=7)
    seen = Run(path)
    assert (seen.name, seen.status.state, seen.status.step) == ("other", "stopped", 7)
    (path / "step-00000010" / schema.METRICS_FILE).unlink()
    assert [step.step for step in Run(path).steps] == [0]
    (path / schema.RUN_FILE).unlink()
    assert "No such file" in str(Run(path).problem)


def test_what_was_just_written_is_read_each_time(tmp_path: Path) -> None:
    """Two writes within a tick of the file system's clock may bear the same times."""
    file = tmp_path / "status.json"
    file.write_text('{"step": 1}')
    assert reading.settled_mark(file) is None
    assert read_json(file) == {"step": 1}
    times = file.stat()
    file.write_text('{"step": 2}')
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert read_json(file) == {"step": 2}


def test_a_large_file_is_not_kept(
    tmp_path: Path, settled: None, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "KEPT_BYTES", 5)
    replace_json(tmp_path / "a.json", {"large": True})
    assert read_json(tmp_path / "a.json") == read_json(tmp_path / "a.json") == {"large": True}
    assert len(reads) == 2


def test_a_writer_leaves_alone_what_others_read(tmp_path: Path, settled: None) -> None:
    path = write_run(tmp_path, steps=(10,))
    RunWriter(path).write_step(5, {schema.WEIGHTS_FILE: {"query.w": np.ones(3)}}, {})
    before = Run(path).steps[0]
    assert schema.WEIGHTS_FILE in before.manifest["files"]
    RunWriter(path).drop_weights(before=10)
    assert schema.WEIGHTS_FILE in before.manifest["files"]
    assert schema.WEIGHTS_FILE not in Run(path).steps[0].manifest["files"]


def test_a_history_that_nobody_wrote_to_is_not_opened(
    tmp_path: Path, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_run(tmp_path, steps=(0, 10))
    followed = History(path)
    before = followed.read()
    with monkeypatch.context() as patch:
        patch.setattr(history.History, "_look", lambda self: pytest.fail("it was opened"))
        assert followed.read()["step"].tolist() == before["step"].tolist() == list(range(1, 11))
    RunWriter(path).append_history([dict.fromkeys(schema.HISTORY_KEYS, 0.5) | {"step": 11}])
    assert followed.read()["step"].tolist() == list(range(1, 12))
