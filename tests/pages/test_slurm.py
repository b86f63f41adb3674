"""SLURM in the sidebar and the table, where its commands are on PATH and where they aren't."""

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from moco_core import jobs
from moco_core.dashboard.training_panel import OPENED
from moco_core.jobs import slurm
from moco_core.runs import RunStore, RunWriter
from tests.framed import button, framed, open_app, texts
from tests.jobs import fake_slurm
from tests.jobs.conftest import cluster, root, status, wait_for
from tests.jobs.test_local import config

__all__ = ["cluster", "framed", "root"]


@pytest.fixture(autouse=True)
def runs_root(root: Path, framed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCO_RUNS", str(root))


def choose_slurm(opened: AppTest, options: str) -> None:
    opened.sidebar.button_group(key="train.place").set_value("SLURM").run()
    opened.sidebar.text_input(key="train.slurm").set_value(options).run()
    assert not opened.exception


def test_without_slurm_there_is_no_choice(root: Path) -> None:
    opened = open_app()
    assert not [group for group in opened.sidebar.button_group if group.key == "train.place"]
    assert not [text for text in opened.sidebar.text_input if text.key == "train.slurm"]


def test_start_goes_to_slurm_and_can_be_stopped_there(root: Path, cluster: Path) -> None:
    (cluster / "hold").touch()
    opened = open_app()
    assert "about **" in texts(opened)
    opened.sidebar.text_input(key="train.name").set_value("long").run()
    choose_slurm(opened, "partition=gpu nodes=1")
    assert "about **" not in texts(opened)  # nothing is known of the nodes
    button(opened, "Start").click().run()
    assert not opened.exception
    (run,) = RunStore(root)
    assert opened.query_params["run"] == run.id
    assert "#SBATCH --partition=gpu\n" in Path(fake_slurm.jobs(cluster)["101"]["script"]).read_text()
    assert "waiting: long (SLURM job 101)" in texts(opened)
    row = opened.dataframe[0].value.loc[run.id]
    assert (row["state"], row["note"]) == ("◌ queued", "SLURM job 101")

    (cluster / "hold").unlink()
    wait_for(lambda: status(root, run.id).step > 0)
    opened.session_state[OPENED] = True  # the panel closes once there is a run
    opened.run()
    (progress,) = opened.sidebar.get("progress")
    assert progress.proto.text == f"**long** · running on {jobs.this_host()}, SLURM job 101"
    assert opened.sidebar.text_input(key="train.slurm").value == "partition=gpu nodes=1"
    opened.sidebar.button(key="stop-long").click().run()
    wait_for(lambda: status(root, run.id).state == "stopped")
    opened.run()
    assert not [b for b in opened.sidebar.button if b.key == "stop-long"]


def test_a_momentum_sweep_is_one_job_array(root: Path, cluster: Path) -> None:
    (cluster / "hold").touch()
    opened = open_app()
    choose_slurm(opened, "")
    button(opened, "Momentum sweep").click().run()
    assert not opened.exception
    assert sorted(run.config.momentum for run in RunStore(root)) == [0, 0.9, 0.99, 0.999]
    assert list(fake_slurm.jobs(cluster)) == ["101_0", "101_1", "101_2", "101_3"]
    assert texts(opened).count("waiting: ") == 4


def test_this_machine_is_still_there_to_choose(root: Path, cluster: Path) -> None:
    opened = open_app()
    opened.sidebar.number_input(key="train.steps").set_value(3)
    opened.sidebar.text_input(key="train.name").set_value("quick").run()
    button(opened, "Start").click().run()
    wait_for(lambda: status(root, "quick").state == "finished")
    assert fake_slurm.jobs(cluster) == {}


def test_options_and_refusals_are_explained_in_a_sentence(root: Path, cluster: Path) -> None:
    opened = open_app()
    choose_slurm(opened, "partitoin=gpu")
    assert "did you mean 'partition'" in texts(opened)
    assert button(opened, "Start").disabled
    assert button(opened, "Momentum sweep").disabled
    opened.sidebar.text_input(key="train.slurm").set_value("setup='date").run()
    assert "can't be read: no closing quotation" in texts(opened)
    (cluster / "refuse").write_text("Invalid partition name specified")
    opened.sidebar.text_input(key="train.slurm").set_value("partition=gpu").run()
    button(opened, "Start").click().run()
    assert "can't be started: SLURM refused: " in texts(opened)
    assert "Invalid partition name specified" in texts(opened)
    assert len(RunStore(root)) == 0


def test_a_job_of_a_node_is_followed_from_here(root: Path, cluster: Path) -> None:
    (cluster / "hold").touch()
    run_id = slurm.queue([config("far", steps=400)], root, options={})[0]
    desk = jobs.SlurmDesk(root)
    desk.put(jobs.SlurmJob(run_id, "101", {}, host="node17"))
    assert jobs.phase(status(root, run_id), desk.job(run_id)) == "starting"
    RunWriter(root / run_id).set_status(state="running", step=40, host="node17", pid=3, pid_started=3.0)
    opened = open_app()
    (progress,) = opened.sidebar.get("progress")
    assert progress.proto.text == "**far** · running on node17, SLURM job 101"
    row = opened.dataframe[0].value.loc[run_id]
    assert (row["state"], row["host"]) == ("● running 10%", "node17")
    assert re.fullmatch(r"SLURM job 101, last sign of life \d s ago", row["note"])


def test_going_on_where_slurm_is_not_within_reach_is_explained(
    root: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = slurm.queue([config("quick")], root, options={})[0]
    wait_for(lambda: status(root, run_id).state == "finished")
    RunWriter(root / run_id).set_status(state="stopped")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    opened = open_app(runs=run_id)
    button(opened, "Go on").click().run()
    assert "`python -m moco_core train --resume quick` trains it on this machine" in texts(opened)
    assert status(root, run_id).state == "stopped"
