"""Estimated time: from history where there is some, else from the cost model."""

import json
from pathlib import Path

import pytest

from moco_core.config import TrainConfig
from moco_core.jobs import this_host
from moco_core.jobs.estimate import STARTUP_SECONDS, estimate
from moco_core.runs import RunStore, RunWriter
from tests.synthetic import write_run

LIKE = TrainConfig(batch_size=8, device="cpu")


def earlier(root: Path, name: str, pairs_per_s: float, *, host: str = "", **config: object) -> None:
    """A finished run with this rate, after a slow start."""
    path = write_run(root, name, **{"device": "cpu", **config})
    writer = RunWriter(path)
    writer.set_status(host=host or this_host())
    writer.describe(seconds={"run": 100.0, "snapshots": 6.0, "drift": 1.0})
    records = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
    for number, record in enumerate(records):
        record["pairs_per_s"] = 1.0 if number == 0 else pairs_per_s
    (path / "history.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


def test_from_an_earlier_run_like_it(tmp_path: Path) -> None:
    earlier(tmp_path, "before", 50.0)
    expected = estimate(LIKE, RunStore(tmp_path))
    assert expected.seconds == pytest.approx(STARTUP_SECONDS + 400 * 8 / 50 + 6)
    assert expected.source == "from an earlier run like it here"


def test_the_median_of_the_newest_three_counts(tmp_path: Path) -> None:
    for name, rate in (("oldest", 1.0), ("b", 50.0), ("c", 100.0), ("d", 200.0)):
        earlier(tmp_path, name, rate)
    expected = estimate(LIKE, RunStore(tmp_path))
    assert expected.seconds == pytest.approx(STARTUP_SECONDS + 400 * 8 / 100 + 6)
    assert expected.source == "from the last 3 runs like it here"


@pytest.mark.parametrize(
    "difference",
    [
        {"encoder": "resnet18"},
        {"dataset": "mnist"},
        {"device": "cuda"},
        {"method": "memory-bank"},
        {"host": "else"},
    ],
)
def test_runs_that_differ_do_not_count(tmp_path: Path, difference: dict[str, str]) -> None:
    earlier(tmp_path, "other", 50.0, **difference)  # type: ignore[arg-type]
    assert "rough guess" in estimate(LIKE, RunStore(tmp_path)).source


def test_unfinished_and_damaged_runs_do_not_count(tmp_path: Path) -> None:
    earlier(tmp_path, "stopped", 50.0, state="stopped")
    earlier(tmp_path, "damaged", 50.0)
    (tmp_path / "damaged" / "run.json").write_text("{")
    earlier(tmp_path, "no history", 50.0)
    (tmp_path / "no-history" / "history.jsonl").unlink()
    assert "rough guess" in estimate(LIKE, RunStore(tmp_path)).source


def test_the_model_grows_with_steps_batch_and_area() -> None:
    def modelled(**changes: object) -> float:
        config = TrainConfig.from_dict({"device": "cpu", "threads": 2, **changes})
        return estimate(config, []).seconds - STARTUP_SECONDS

    once = modelled()
    assert modelled(steps=800) == pytest.approx(2 * once)
    assert modelled(batch_size=256) == pytest.approx(2 * once)
    assert modelled(image_size=32) == pytest.approx(4 * once)  # digits are 16×16
    assert modelled(threads=4) == pytest.approx(once / 2)
    assert modelled(encoder="resnet18") > 10 * once
    assert modelled(encoder="resnet50", image_size=224) > modelled(encoder="resnet18", image_size=224)
    assert modelled(device="cuda", dataset="folder:/x") < modelled(dataset="folder:/x")
