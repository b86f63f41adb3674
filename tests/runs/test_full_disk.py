"""What doesn't fit is said with the path that it was meant for, and leaves what was there."""

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from moco_core.config import TrainConfig
from moco_core.interop.export import export_step
from moco_core.projections import ProjectionSettings, stored_projection
from moco_core.runs import Run, RunError, RunWriter
from moco_core.runs.files import reason
from moco_core.training.command import _recording_failure
from tests.synthetic import write_run

LARGE = {"embeddings.safetensors": {"query": np.ones((100, 8), np.float32)}}
PICTURE = ProjectionSettings(method="pca")


@contextmanager
def no_room() -> Iterator[None]:
    """No file may grow beyond a few bytes: the system's answer to a full disk, in other words."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_run(tmp_path, "run")


WRITES: dict[str, Callable[[Path], object]] = {
    "status.json": lambda path: RunWriter(path).set_status(step=5),
    "run.json": lambda path: RunWriter(path).describe(name="other"),
    "history.jsonl": lambda path: RunWriter(path).append_history([{"step": 21}]),
    "step-00000030": lambda path: RunWriter(path).write_step(30, LARGE, {}),
    "resume/step-00000030": lambda path: RunWriter(path).write_resume(30, LARGE["embeddings.safetensors"]),
    "eval_set.safetensors": lambda path: RunWriter(path).write_eval_set({"labels": np.ones(9)}, ()),
    "out.parquet": lambda path: export_step(
        Run(path), Run(path).steps[-1], "parquet", out=path / "out.parquet"
    ),
    "out": lambda path: export_step(Run(path), Run(path).steps[-1], "projector", out=path / "out"),
    "cache": lambda path: stored_projection(Run(path), Run(path).steps[-1], PICTURE),
}


@pytest.mark.parametrize("name", WRITES)
def test_the_path_is_named_and_nothing_is_half_written(path: Path, name: str) -> None:
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(OSError, match="File too large") as caught, no_room():
        WRITES[name](path)
    assert str(caught.value.filename).startswith(str(path / name))
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_the_run_says_what_did_not_fit(path: Path) -> None:
    writer = RunWriter(path)
    with pytest.raises(RunError) as caught, _recording_failure(writer), no_room():
        writer.write_step(30, LARGE, {})
    status = json.loads((path / "status.json").read_text())
    said = f"{path}/step-00000030: File too large; once that is mended, --resume {path.name} goes on"
    assert (status["state"], status["error"], str(caught.value)) == ("failed", said, said)


def test_what_is_said_is_the_first_that_did_not_fit(path: Path) -> None:
    writer = RunWriter(path)
    with pytest.raises(RunError, match="step-00000030"), no_room(), _recording_failure(writer):
        writer.write_step(30, LARGE, {})


def test_a_run_that_could_not_be_made_leaves_its_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"status\.json"), no_room():
        RunWriter.create(tmp_path, TrainConfig(name="run"))
    assert not any(tmp_path.iterdir())
    assert RunWriter.create(tmp_path, TrainConfig(name="run")).run_id == "run"


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to(path)])
def test_what_is_no_folder_is_called_so(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "runs")
    for folder in (tmp_path / "runs", tmp_path / "runs" / "below"):
        with pytest.raises(OSError, match="runs") as caught:
            RunWriter.create(folder, TrainConfig())
        assert "exists" not in reason(caught.value)


def test_a_reason_has_a_path_where_there_is_one() -> None:
    assert reason(OSError("cable")) == "cable"
    assert reason(ValueError("k must be 1")) == "k must be 1"
    assert reason(OSError(28, "No space left on device", "a/b")) == "a/b: No space left on device"
