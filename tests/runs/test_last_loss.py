"""The loss of a run is one number, wherever it is shown."""

import numpy as np
import pytest

from moco_core.dashboard.runs_table import runs_table
from moco_core.dashboard.selection import labels
from moco_core.dashboard.sweeps import outcome
from moco_core.runs import Run
from moco_core.runs.last_loss import last_loss
from moco_core.tables import results
from tests.synthetic import write_run


@pytest.mark.parametrize(("logged", "mean"), [(1, 1.0), (9, 9.0), (19, 19.0), (20, 19.5), (100, 95.5)])
def test_it_is_the_mean_of_the_last_tenth_at_least_one(logged, mean):
    assert last_loss({"loss": np.arange(1.0, logged + 1)}) == mean


def test_before_the_first_step_there_is_none():
    assert last_loss({"loss": np.zeros(0)}) is None


def test_table_sweep_and_command_line_show_the_same(tmp_path):
    run = Run(write_run(tmp_path, steps=(0, 40)))
    loss = run.history()["loss"][-4:].mean()
    assert runs_table([run], {}, labels([run]))["loss"].tolist() == [pytest.approx(loss)]
    assert outcome(run).values["loss"] == pytest.approx(loss)
    assert results(run)[0] == f"{loss:.3f}"


@pytest.mark.parametrize(
    ("loss", "shown"), [(-0.0001, "0.000"), (123456.7, "123456.700"), (3.2e38, "3.200e+38")]
)
def test_the_command_line_cuts_numbers_short(tmp_path, monkeypatch, loss, shown):
    monkeypatch.setattr("moco_core.tables.last_loss", lambda history: loss)
    assert results(Run(write_run(tmp_path, steps=(0, 40))))[0] == shown
