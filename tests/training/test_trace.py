"""The authors' trace beside a run on their task, as `train --preset moco-cifar10` prints it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from torchvision import datasets

from moco_core import cli
from moco_core.config import TrainConfig
from moco_core.nets.encoders import BACKBONES
from moco_core.paper import CIFAR10_TRACE, RECIPES
from moco_core.runs import Run, RunStore
from moco_core.trace import RECIPE, authors_steps, deviations
from moco_core.training.schedule import planned_snapshots, snapshot_steps
from tests.data.files import write_cifar10
from tests.training.ranks import without_batch_norm
from tests.training.test_distributed import two_ranks

EPOCH = 5  # steps: 40 images in batches of 8
WORDS = (
    *("--preset", "moco-cifar10", "--batch-size", "8", "--queue-size", "16", "--steps", "52"),
    *("--snapshots", "2", "--eval-size", "10", "--knn-k", "5", "--drift-share", "0", "--device", "cpu"),
    *("--name", "demo", "--no-project"),
)


def test_a_run_of_the_recipe_takes_a_snapshot_at_each_epoch_of_the_trace():
    epochs = {97: 1, 485: 5, 970: 10, 1940: 20, 4850: 50, 9700: 100, 19_400: 200}
    points = authors_steps(RECIPE, 50_000)
    assert {step: point.epoch for step, point in points.items()} == epochs
    assert tuple(points.values()) == CIFAR10_TRACE
    geometric = snapshot_steps(19_400, 6)
    assert planned_snapshots(RECIPE, 50_000) == sorted({*geometric, *epochs})
    short = TrainConfig(**{**RECIPES["moco-cifar10"], "steps": 500})
    assert planned_snapshots(short, 50_000) == sorted({*snapshot_steps(500, 6), 97, 485})


@pytest.mark.parametrize(
    "other",
    [{"dataset": "cifar100"}, {"method": "in-batch"}, {"encoder": "resnet50"}, {"batch_size": 60_000}],
)
def test_other_tasks_have_no_trace(other):
    config = TrainConfig(**{**RECIPES["moco-cifar10"], **other})
    assert authors_steps(config, 50_000) == {}
    assert planned_snapshots(config, 50_000) == snapshot_steps(19_400, 6)


def test_what_differs_from_the_recipe_is_named():
    assert deviations(RECIPE) == []
    unrelated = {"name": "mine", "seed": 3, "device": "cpu", "snapshots": 9, "threads": 1, "log_every": 7}
    assert deviations(TrainConfig(**{**RECIPES["moco-cifar10"], **unrelated})) == []
    config = TrainConfig(**{**RECIPES["moco-cifar10"], "lr": 0.1, "symmetric": True})
    assert deviations(config) == ["symmetric True instead of False", "lr 0.1 instead of 0.06"]


@pytest.fixture
def cifar10(tmp_path, monkeypatch) -> dict:
    found = write_cifar10(tmp_path / "data")
    for name, value in found.items():
        monkeypatch.setattr(datasets.CIFAR10, name, value)
    monkeypatch.setenv("MOCO_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(BACKBONES, "resnet18", without_batch_norm)
    return found


@pytest.fixture
def moco(tmp_path, monkeypatch, capsys):
    """A command line → the lines that `moco_core train` leaves on a terminal's stdout and stderr."""

    def run(*words: object) -> tuple[list[str], list[str]]:
        argv = ["moco_core", "train", "--runs", str(tmp_path / "runs"), *map(str, words)]
        monkeypatch.setattr(sys, "argv", argv)
        cli.main()
        said = capsys.readouterr()
        return said.out.splitlines(), shown(said.err)

    return run


def shown(stderr: str) -> list[str]:
    """Lines as a terminal shows them, a carriage return starting each anew."""
    return [line.rsplit("\r", 1)[-1] for line in stderr.split("\n")]


def expected(run: Run, epoch: int) -> str:
    """The line of an epoch, from what the run directory holds."""
    logged, step = run.history(), epoch * EPOCH
    counted = (logged["step"] > step - EPOCH) & (logged["step"] <= step) & (logged["filled"] == 16)
    assert counted.sum() == (EPOCH - 2 if epoch == 1 else EPOCH)  # the queue fills in two steps
    knn = run.step(step).metrics["knn"]
    assert (knn["k"], knn["temperature"], knn["layer"], knn["bank"]) == (5, 0.1, "projector", 40)
    (authors,) = (point for point in CIFAR10_TRACE if point.epoch == epoch)
    return (
        f"epoch {epoch}: loss {np.mean(logged['loss'][counted]):.2f} (authors {authors.loss:.2f}), "
        f"kNN {100 * knn['value']:.1f}% (authors {authors.knn:.1f}%)"
    )


def cells(lines: list[str]) -> dict[str, list[str]]:
    """The rows of the table by epoch."""
    rows = ([cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│"))
    return {row[0]: row[1:] for row in rows}


def test_each_epoch_is_printed_once_reached_and_all_of_them_at_the_end(tmp_path, cifar10, moco):
    out, err = moco(*WORDS, "--stop-after", 30)
    path = tmp_path / "runs" / "demo"
    assert out == [str(path)]
    stopped = RunStore(tmp_path / "runs")["demo"]
    assert [c.step for c in stopped.steps] == [0, 5, 25, 30]
    assert [line for line in err if line.startswith("epoch ")] == [expected(stopped, 1), expected(stopped, 5)]
    rows = cells(err)
    assert list(rows) == ["1", "5", "10", "20", "50", "100", "200"]
    assert rows["10"] == ["50", "–", "–", "5.99", "48.0"]
    assert rows["200"] == ["1000", "–", "–", "–", "82.6"]

    out, err = moco("--resume", "demo", "--no-project")
    assert out == [str(path)]
    run = RunStore(tmp_path / "runs")["demo"]
    assert [c.step for c in run.steps] == [0, 5, 25, 30, 50, 52]
    assert [line for line in err if line.startswith("epoch ")] == [expected(run, 10)]
    for epoch, row in list(cells(err).items())[:3]:
        step, loss, knn, authors_loss, authors_knn = row
        assert step == str(int(epoch) * EPOCH)
        assert expected(run, int(epoch)) == (
            f"epoch {epoch}: loss {loss} (authors {authors_loss}), kNN {knn}% (authors {authors_knn}%)"
        )
    note = " ".join(" ".join(err).split())
    assert "ours over its logged steps with a full queue; kNN: k = 5, τ = 0.1, on the embedding" in note
    assert "batch_size 8 instead of 512, steps 52 instead of 19400" in note
    assert "the comparison is loose: queue_size 16 instead of 4096" in note


def test_another_task_says_nothing_of_the_authors(tmp_path, cifar10, moco):
    _, err = moco(*WORDS, "--encoder", "small-cnn", "--steps", 6)
    assert not any("authors" in line for line in err)
    (run,) = RunStore(tmp_path / "runs")
    assert [c.step for c in run.steps] == [0, 6]


AS_ONE_OF_TWO = """
from torchvision import datasets
from moco_core import cli
from moco_core.nets.encoders import BACKBONES
from tests.training.ranks import without_batch_norm

for name, value in {found!r}.items():
    setattr(datasets.CIFAR10, name, value)
BACKBONES["resnet18"] = without_batch_norm
cli.main()
"""


def test_of_two_processes_the_first_prints(tmp_path: Path, cifar10, monkeypatch):
    from tests.training import test_distributed

    monkeypatch.setitem(test_distributed.ENVIRONMENT, "MOCO_DATA", str(tmp_path / "data"))
    script = AS_ONE_OF_TWO.format(found=cifar10)
    words = ("train", "--runs", tmp_path / "runs", *WORDS, "--steps", 12)
    said = [rank.communicate(timeout=120) for rank in two_ranks("-c", script, *words)]
    (run,) = RunStore(tmp_path / "runs")
    assert [out for out, _ in said] == [f"{run.path}\n", ""], said
    first, second = (shown(err) for _, err in said)
    assert [line for line in first if line.startswith("epoch ")] == [expected(run, 1)]
    assert set(cells(first)) == {"1", "5", "10", "20", "50", "100", "200"}
    assert not any("authors" in line for line in second)
