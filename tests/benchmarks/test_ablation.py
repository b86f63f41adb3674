"""How an ablation trains what is missing and goes on with what isn't finished, without any training."""

import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import ablation
from moco_core.config import TrainConfig
from moco_core.runs import RunWriter

EXPERIMENT = ablation.Experiment("tag", TrainConfig(dataset="fashion-mnist", steps=100))


@pytest.fixture
def commands(monkeypatch):
    """Command lines that would have trained."""
    called = []

    def run(command, **_):
        called.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    return called


def test_flags_name_what_differs_from_the_defaults():
    config = TrainConfig(dataset="fashion-mnist", queue_size=4096, symmetric=True, seed=1)
    assert ablation.flags(config) == [
        *("--dataset", "fashion-mnist", "--symmetric", "--queue-size", "4096", "--seed", "1")
    ]


def test_a_missing_run_is_started_an_unfinished_one_resumed_a_finished_one_left(tmp_path, commands):
    ablation.train(EXPERIMENT, tmp_path)
    assert commands[0][3:5] == ["sweep", "--over"]
    assert commands[0][-2:] == ["--runs", str(tmp_path)]
    run = RunWriter.create(tmp_path, EXPERIMENT.config)
    run.set_status(state="stopped")
    ablation.train(EXPERIMENT, tmp_path)
    assert commands[1][3:6] == ["train", "--resume", run.run_id]
    run.set_status(state="finished")
    ablation.train(EXPERIMENT, tmp_path)
    assert len(commands) == 2


def test_a_run_in_training_elsewhere_is_not_started_twice(tmp_path, commands):
    RunWriter.create(tmp_path, EXPERIMENT.config).set_status(state="running")
    with pytest.raises(SystemExit, match="another process"):
        ablation.train(EXPERIMENT, tmp_path)
    assert not commands


def test_failed_training_ends_the_ablation(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=143))
    with pytest.raises(SystemExit, match="code 143"):
        ablation.train(EXPERIMENT, tmp_path)


def test_nothing_finished_is_said(tmp_path):
    with pytest.raises(SystemExit, match="no run of this ablation is finished"):
        ablation.carry_out([EXPERIMENT], tmp_path, report_only=True)
