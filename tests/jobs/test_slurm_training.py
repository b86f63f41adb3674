"""Real training in submitit's jobs: on SLURM as the command line submits it, and through its local executor."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import submitit

from moco_core import jobs
from moco_core.config import TrainConfig
from moco_core.jobs.slurm_desk import SlurmDesk, SlurmJob
from moco_core.jobs.slurm_training import ENDED, Training
from moco_core.runs import RunStore, RunWriter
from tests.conftest import Command
from tests.jobs import fake_slurm
from tests.jobs.conftest import status, wait_for
from tests.training.test_command import QUICK

PACKAGE_FOLDER = Path(__file__).parents[2]
SMALL = {"batch_size": 16, "queue_size": 40, "dim": 8, "eval_size": 40, "bank_size": 60, "device": "cpu"}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A runs root whose runs are trained for real, by processes that are gone when the test ends."""
    yield tmp_path
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(str(tmp_path) in word for word in process.cmdline()):
                process.kill()


def moco_elsewhere(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """The command line in a working directory from which the package can't be imported."""
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from moco_core.cli import main; main()"
    command = [sys.executable, "-c", start, str(PACKAGE_FOLDER), *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, cwd=folder)


def locally(root: Path, tasks: int = 1, **settings: object) -> tuple[str, submitit.Job]:
    """A run submitted to submitit's local executor, with the id that its desk knows."""
    run_id = RunWriter.create(root, TrainConfig.from_dict(SMALL | settings)).run_id
    desk = SlurmDesk(root)
    desk.folder.mkdir(parents=True, exist_ok=True)
    desk.put(SlurmJob(run_id, "", {}))
    executor = submitit.AutoExecutor(desk.logs, cluster="local")
    executor.update_parameters(tasks_per_node=tasks, timeout_min=5)
    return run_id, executor.submit(
        Training(root, run_id, (sys.executable, "-m", "moco_core", "train", "--no-project"))
    )


def test_the_command_line_submits_and_returns(root: Path, cluster: Path, tmp_path: Path) -> None:
    (cluster / "hold").touch()
    words = ("--launcher", "slurm", "--slurm", "partition=x", "gpus_per_node=2", "timeout_min=30")
    done = moco_elsewhere(tmp_path, "train", "--runs", root, *words, *QUICK, "--steps", 6, "--name", "far")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(root / "far")
    assert done.stderr.splitlines()[-1] == "far: SLURM job 101"
    assert status(root, "far").state == "queued"
    batch_file = Path(fake_slurm.jobs(cluster)["101"]["script"]).read_text()
    for flag in ("partition=x", "gpus-per-node=2", "time=30", "job-name=far", "signal=USR2@90"):
        assert f"#SBATCH --{flag}\n" in batch_file

    (cluster / "hold").unlink()
    wait_for(lambda: status(root, "far").state == "finished", 60)
    run = RunStore(root)["far"]
    assert (run.status.step, run.history()["step"].tolist()) == (6, list(range(1, 7)))
    assert run.steps[-1].step == 6
    refused = moco_elsewhere(tmp_path, "train", "--runs", root, "--resume", "far", *words)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "error: far is finished; only a stopped or failed run can go on\n"


def test_a_stopped_run_is_queued_again_from_the_command_line(
    root: Path, cluster: Path, tmp_path: Path
) -> None:
    words = ("--runs", root, *QUICK, "--steps", 100_000, "--name", "far")
    done = moco_elsewhere(tmp_path, "train", *words, "--launcher", "slurm", "--slurm", "partition=x")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: status(root, "far").step > 3, 60)
    jobs.stop(root, "far")
    wait_for(lambda: status(root, "far").state == "stopped", 60)
    stopped = RunStore(root)["far"]
    assert stopped.steps[-1].step == stopped.status.step == stopped.resume_state().step

    again = moco_elsewhere(tmp_path, "train", "--runs", root, "--resume", "far", "--launcher", "slurm")
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines()[-1] == "far: SLURM job 102"
    assert "--partition=x\n" in Path(fake_slurm.jobs(cluster)["102"]["script"]).read_text()
    wait_for(lambda: status(root, "far").step > stopped.status.step, 60)
    jobs.stop(root, "far")
    wait_for(lambda: status(root, "far").state == "stopped", 60)


def test_a_sweep_is_submitted_as_an_array(root: Path, cluster: Path, tmp_path: Path) -> None:
    (cluster / "hold").touch()
    values = ("--over", "momentum", "--values", 0, 0.9, 0.99)
    done = moco_elsewhere(tmp_path, "sweep", "--runs", root, *QUICK, *values, "--launcher", "slurm")
    assert done.returncode == 0, done.stderr
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert [RunStore(root)[path.name].config.momentum for path in paths] == [0, 0.9, 0.99]
    assert {run.sweep for run in RunStore(root)} == {"momentum sweep"}
    assert list(fake_slurm.jobs(cluster)) == ["101_0", "101_1", "101_2"]
    assert len(fake_slurm.calls(cluster, "sbatch")) == 1
    assert "#SBATCH --array=0-2%3\n" in Path(fake_slurm.jobs(cluster)["101_0"]["script"]).read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--slurm", "partition=x"], "--slurm gives options of a SLURM job: add --launcher slurm"),
        (["--launcher", "slurm", "--slurm", "partitoin=x"], "did you mean 'partition'"),
        (["--launcher", "slurm", "--slurm", "nodes"], "has the form NAME=VALUE"),
        (["--launcher", "slurm", "--stop-after", "5"], "stop_after is for runs of this process"),
    ],
)
def test_bad_words_end_with_2_and_write_nothing(
    tmp_path: Path, command: Command, words: list[str], sentence: str
) -> None:
    done = command("train", "--runs", tmp_path / "runs", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_machine_without_slurm_says_so(tmp_path: Path, command: Command) -> None:
    for verb in ("train", "sweep"):
        done = command(verb, "--runs", tmp_path / "runs", "--launcher", "slurm")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "error: the run can't go to SLURM: this machine has no sbatch and no srun on its PATH\n"
        )
    assert not (tmp_path / "runs").exists()


def test_a_preempted_job_goes_on_and_a_cancelled_one_leaves_a_checkpoint(
    root: Path, command: Command
) -> None:
    run_id, job = locally(root, steps=100_000)
    wait_for(lambda: status(root, run_id).step > 3, 60)
    (task,) = psutil.Process(int(job.job_id)).children()
    task.send_signal(signal.SIGUSR2)
    wait_for(lambda: status(root, run_id).state == "queued", 60)
    reached = RunStore(root)[run_id].resume_state().step
    wait_for(lambda: status(root, run_id).step > reached, 60)  # the same job, started again

    os.kill(int(job.job_id), signal.SIGTERM)  # as scancel does; submitit's controller passes it on
    wait_for(lambda: status(root, run_id).state == "stopped", 60)
    wait_for(job.done)
    run = RunStore(root)[run_id]
    wait_for(lambda: status(root, run_id).error == ENDED.format(job.job_id))
    assert run.steps[-1].step == run.status.step == run.resume_state().step
    assert run.history()["step"].tolist() == sorted(set(run.history()["step"].tolist()))
    further = run.status.step + 4
    done = command("train", "--runs", root, "--resume", run_id, "--stop-after", further)
    assert done.returncode == 0, done.stderr
    assert status(root, run_id).step == further


def test_the_tasks_of_a_job_train_one_run_together(root: Path) -> None:
    run_id, job = locally(root, tasks=2, steps=6, snapshots=2)
    assert job.results() == [None, None]
    run = RunStore(root)[run_id]
    assert (run.status.state, run.status.step, run.info["processes"]) == ("finished", 6, 2)
