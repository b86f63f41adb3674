"""Runs as SLURM jobs, from submission to their end, through submitit and a SLURM of this machine."""

import importlib.util
import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from moco_core import jobs
from moco_core.config import ConfigError
from moco_core.jobs import slurm
from moco_core.runs import RunStore, RunWriter
from tests.jobs import fake_slurm
from tests.jobs.conftest import events, processes_of, status, wait_for
from tests.jobs.test_local import config
from tests.synthetic import write_run


def submit(root: Path, name: str, steps: int = 5, **options: object) -> str:
    return slurm.queue([config(name, steps=steps)], root, options=options)[0]


def phase(root: Path, run_id: str) -> str:
    run = RunStore(root)[run_id]
    return jobs.phase(run.status, jobs.tickets(root, [run]).get(run_id))


def ended(cluster: Path, job: str) -> str:
    """How a job ended, once it has."""
    wait_for(lambda: fake_slurm.jobs(cluster)[job]["state"] not in ("PENDING", "RUNNING"))
    return fake_slurm.jobs(cluster)[job]["state"]


def batch_file(cluster: Path, job: str = "101") -> list[str]:
    lines = Path(fake_slurm.jobs(cluster)[job]["script"]).read_text().splitlines()
    return [line.removeprefix("#SBATCH --") for line in lines]


def kill_job(cluster: Path, job: str) -> None:
    """End every process of a running job at once, and the node with it."""
    node = psutil.Process(fake_slurm.jobs(cluster)[job]["pid"])
    for process in [node, *node.children(recursive=True)]:
        process.kill()
    node.wait(10)


def age(root: Path, run_id: str, seconds: float) -> None:
    """Make a run's heartbeat older than it is."""
    path = root / run_id / "status.json"
    then = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"heartbeat": then}))


def ask_slurm(root: Path, cluster: Path) -> None:
    """Tidy, and wait until SLURM has answered."""
    before = len(fake_slurm.calls(cluster, "sacct"))
    jobs.tidy(root)
    wait_for(lambda: len(fake_slurm.calls(cluster, "sacct")) > before and not slurm._asking.locked())


# What is asked for


def test_options_are_numbers_words_and_lines() -> None:
    line = "partition=gpu nodes=2 mem_gb=1.5 exclusive=true comment=a=b 'setup=module load cuda' setup=date"
    assert slurm.slurm_options(slurm.slurm_words(line)) == {
        "partition": "gpu",
        "nodes": 2,
        "mem_gb": 1.5,
        "exclusive": True,
        "comment": "a=b",
        "setup": ["module load cuda", "date"],
    }


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("partition", "has the form NAME=VALUE, as in partition=gpu; got 'partition'"),
        ("partition=", "has the form NAME=VALUE"),
        ("partitoin=x", "no option 'partitoin' here; did you mean 'partition'.*accepted are nodes, "),
        ("nodes=two", "nodes must be a whole number, at least 1, for SLURM; got 'two'"),
        ("nodes=1.5", "nodes must be a whole number"),
        ("nodes=0", "nodes must be a whole number, at least 1"),
        ("gpus_per_node=-1", "gpus_per_node must be a whole number, at least 0"),
        ("nodes=-" + 400 * "9", "nodes must be a whole number"),
        ("mem_gb=inf", "mem_gb must be a number, at least 0"),
    ],
)
def test_an_option_that_cannot_be_is_explained(word: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        slurm.slurm_options([word])


def test_an_option_given_twice_and_an_open_quote() -> None:
    with pytest.raises(ConfigError, match="nodes is given twice"):
        slurm.slurm_options(["nodes=1", "nodes=2"])
    with pytest.raises(ConfigError, match="can't be read: no closing quotation"):
        slurm.slurm_words("setup='module load")


def test_every_option_reaches_the_batch_file(root: Path, cluster: Path) -> None:
    (cluster / "hold").touch()
    values = {name: f"word-{name}" for name in slurm.NAMES}
    values |= {
        name: "3" for name in ("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "timeout_min")
    }
    values |= {"gpus_per_task": "3", "cpus_per_gpu": "3", "signal_delay_s": "3", "array_parallelism": "3"}
    values |= {"mem_gb": "1.5", "exclusive": "true", "srun_args": "--gpu-bind=none"}
    options = slurm.slurm_options(f"{name}={value}" for name, value in values.items())
    slurm.queue([config("quick")], root, options=options)
    written = batch_file(cluster)
    renamed = {"name": "job-name", "timeout_min": "time", "tasks_per_node": "ntasks-per-node"}
    for name, value in values.items():
        if name in ("mem_gb", "exclusive", "signal_delay_s", "array_parallelism", "setup", "srun_args"):
            continue
        assert f"{renamed.get(name, name.replace('_', '-'))}={value}" in written
    assert {"mem=1536MB", "exclusive", "signal=USR2@3", "word-setup"} <= set(written)
    assert " --gpu-bind=none " in written[-1]
    slurm.queue([config("quick"), config("quick")], root, "pair", options={"array_parallelism": 1})
    assert "array=0-1%1" in batch_file(cluster, "102_0")


# From submission to the end


def test_a_submitted_run_is_trained_to_its_end(root: Path, cluster: Path) -> None:
    (cluster / "hold").touch()
    run_id = submit(root, "quick", partition="gpu", gpus_per_node=2, setup=["export GREETING=hello"])
    (note,) = jobs.tickets(root, list(RunStore(root))).values()
    assert (note.job_id, note.launched, note.stopping) == ("101", False, False)
    assert (status(root, run_id).state, phase(root, run_id)) == ("queued", "queued")
    written = batch_file(cluster)
    assert {"partition=gpu", "gpus-per-node=2", "nodes=1", "time=1440", "job-name=quick"} <= set(written)
    assert "export GREETING=hello" in written
    assert not [line for line in written if line.startswith("array")]

    (cluster / "hold").unlink()
    wait_for(lambda: status(root, run_id).state == "finished")
    assert (status(root, run_id).step, ended(cluster, "101")) == (5, "COMPLETED")
    assert jobs.SlurmDesk(root).job(run_id) == jobs.SlurmJob(
        run_id,
        "101",
        {"partition": "gpu", "gpus_per_node": 2, "setup": ["export GREETING=hello"]},
        jobs.this_host(),
    )
    assert jobs.tickets(root, list(RunStore(root))) == {}
    with pytest.raises(jobs.JobError, match="is finished; only a stopped or failed run can go on"):
        jobs.resume(root, run_id)
    jobs.delete(root, run_id)
    assert [path.name for path in (root / ".jobs" / "@slurm").rglob("*") if path.is_file()] == ["desk.lock"]


def test_a_sweep_is_one_job_array(root: Path, cluster: Path) -> None:
    queue = lambda configs, root, tag: slurm.queue(configs, root, tag, options={"partition": "x"})  # noqa: E731
    ids = jobs.submit_sweep(config("quick", steps=2), root, queue=queue)
    assert len(fake_slurm.calls(cluster, "sbatch")) == 1
    assert {"array=0-3%4", "partition=x", "job-name=momentum-sweep"} <= set(batch_file(cluster, "101_0"))
    for number, run_id in enumerate(ids):
        wait_for(lambda run_id=run_id: status(root, run_id).state == "finished")
        assert jobs.SlurmDesk(root).job(run_id).job_id == f"101_{number}"
    assert [RunStore(root)[run_id].config.momentum for run_id in ids] == [0, 0.9, 0.99, 0.999]
    assert {run.sweep for run in RunStore(root)} == {"momentum sweep"}
    for number, run_id in enumerate(ids):
        ended(cluster, f"101_{number}")
        jobs.delete(root, run_id)
    assert list((root / ".jobs" / "@slurm" / "logs").iterdir()) == []


def test_a_pending_run_that_is_stopped_never_starts_and_can_go_on(root: Path, cluster: Path) -> None:
    (cluster / "hold").touch()
    run_id = submit(root, "quick", partition="gpu")
    with pytest.raises(jobs.JobError, match="quick is queued; stop it before deleting it"):
        jobs.delete(root, run_id)
    jobs.stop(root, run_id)
    assert status(root, run_id).state == "stopped"
    assert fake_slurm.calls(cluster, "scancel") == [["101"]]
    (cluster / "hold").unlink()

    jobs.resume(root, run_id)
    wait_for(lambda: status(root, run_id).state == "finished")
    assert "partition=gpu" in batch_file(cluster, "102")  # as it began
    assert [what for what, _ in events(root)] == ["start", "end"]


def test_a_job_that_starts_though_its_run_was_stopped_does_nothing(root: Path, cluster: Path) -> None:
    (cluster / "hold").touch()
    run_id = submit(root, "quick")
    RunWriter(root / run_id).set_status(state="stopped")
    (cluster / "hold").unlink()
    assert ended(cluster, "101") == "COMPLETED"
    assert (status(root, run_id).state, events(root)) == ("stopped", [])


def test_stop_leaves_the_final_word_to_the_trainer(root: Path, cluster: Path) -> None:
    run_id = submit(root, "long")
    wait_for(lambda: status(root, run_id).step > 2)
    assert phase(root, run_id) == "running"
    with pytest.raises(jobs.JobError, match="long is running; stop it before deleting it"):
        jobs.delete(root, run_id)
    jobs.stop(root, run_id)
    assert phase(root, run_id) in ("stopping", "stopped")
    wait_for(lambda: status(root, run_id).state == "stopped")
    assert status(root, run_id).error == ""
    assert fake_slurm.calls(cluster, "scancel") == [
        ["--signal=TERM", "101"]
    ]  # no deadline for the checkpoint
    assert ended(cluster, "101") == "COMPLETED"
    assert events(root) == [("start", run_id), ("end", run_id)]
    jobs.stop(root, run_id)  # once more changes nothing
    assert len(fake_slurm.calls(cluster, "scancel")) == 1


def test_a_job_that_does_not_listen_is_cancelled_when_asked_again(root: Path, cluster: Path) -> None:
    run_id = submit(root, "deaf")
    wait_for(lambda: status(root, run_id).step > 0)
    jobs.stop(root, run_id)
    jobs.stop(root, run_id)
    assert fake_slurm.calls(cluster, "scancel") == [["--signal=TERM", "101"], ["101"]]
    assert phase(root, run_id) == "stopping"
    kill_job(cluster, "101")  # what SLURM does after its KillWait
    assert phase(root, run_id) == "lost contact"
    ask_slurm(root, cluster)
    assert status(root, run_id).state == "stopped"
    assert status(root, run_id).error == "SLURM ended its job 101 as CANCELLED"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("broken", "the disk is made of cheese"),
        ("silent", "its process ended without a word (exit code 3)"),
        ("careful", "the loss is nan at step 3"),
    ],
)
def test_a_failure_is_recorded_in_a_sentence(root: Path, cluster: Path, name: str, error: str) -> None:
    run_id = submit(root, name)
    wait_for(lambda: status(root, run_id).state == "failed")
    assert status(root, run_id).error == error
    assert ended(cluster, "101") == "FAILED"


def test_a_killed_trainer_is_failed_by_its_job(root: Path, cluster: Path) -> None:
    run_id = submit(root, "long")
    wait_for(lambda: status(root, run_id).step > 0)
    (trainer,) = [p for p in processes_of(root) if "tests.jobs.trainer" in p.cmdline()]
    trainer.kill()
    wait_for(lambda: status(root, run_id).state == "failed")
    assert status(root, run_id).error == "its process was killed by SIGKILL, perhaps because memory ran out"
    assert ended(cluster, "101") == "FAILED"


def test_a_run_that_goes_on_while_its_last_job_is_ending_is_left_alone_by_it(
    root: Path, cluster: Path
) -> None:
    run_id = submit(root, "lingering")
    wait_for(lambda: status(root, run_id).step > 0)
    jobs.stop(root, run_id)
    wait_for(lambda: status(root, run_id).state == "stopped")
    (cluster / "hold").touch()
    jobs.resume(root, run_id)
    assert fake_slurm.jobs(cluster)["101"]["state"] == "RUNNING"
    assert ended(cluster, "101") == "COMPLETED"
    assert (status(root, run_id).state, jobs.SlurmDesk(root).job(run_id).job_id) == ("queued", "102")


# What SLURM alone knows


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("TIMEOUT", "failed"),
        ("OUT_OF_MEMORY", "failed"),
        ("NODE_FAIL", "failed"),
        ("CANCELLED by 0", "stopped"),
    ],
)
def test_a_job_that_was_killed_is_what_slurm_says(root: Path, cluster: Path, said: str, state: str) -> None:
    run_id = submit(root, "long")
    wait_for(lambda: status(root, run_id).step > 0)
    kill_job(cluster, "101")
    assert (status(root, run_id).state, phase(root, run_id)) == ("running", "lost contact")
    fake_slurm._put(cluster, "101", state=said)
    job = jobs.SlurmDesk(root).job(run_id)
    with jobs.SlurmDesk(root).log(job).open("a") as log:
        log.write("slurmstepd: error: the node is on fire\n\n")
    ask_slurm(root, cluster)
    now = status(root, run_id)
    word = said.split()[0]
    assert now.state == state
    assert now.error == (
        f"SLURM ended its job 101 as {word}; its last line was: slurmstepd: error: the node is on fire"
    )


def test_slurm_is_asked_rarely_and_a_pending_run_is_left_alone(root: Path, cluster: Path) -> None:
    (cluster / "hold").touch()
    run_id = submit(root, "quick")
    jobs.tidy(root)
    assert "sacct" not in (cluster / "calls").read_text()  # fresh: nothing to ask
    age(root, run_id, 3600)
    ask_slurm(root, cluster)
    for _ in range(3):
        jobs.tidy(root)
    assert len(fake_slurm.calls(cluster, "sacct")) == 1
    assert phase(root, run_id) == "queued"
    fake_slurm._put(cluster, "101", state="BOOT_FAIL")
    slurm._asked.clear()
    ask_slurm(root, cluster)
    assert status(root, run_id).error == "SLURM ended its job 101 as BOOT_FAIL"


def test_without_sacct_the_heartbeat_alone_speaks(root: Path, cluster: Path) -> None:
    run_id = submit(root, "long")
    wait_for(lambda: status(root, run_id).step > 0)
    kill_job(cluster, "101")
    fake_slurm._put(cluster, "101", state="FAILED")
    (cluster / "bin" / "sacct").unlink()
    jobs.tidy(root)
    assert (status(root, run_id).state, phase(root, run_id)) == ("running", "lost contact")
    jobs.stop(root, run_id)  # SLURM has no such job any more
    assert status(root, run_id).state == "stopped"
    assert status(root, run_id).error == "SLURM job 101 had ended"


# Preemption and time limits


def test_near_its_time_limit_a_job_is_requeued_and_goes_on(root: Path, cluster: Path) -> None:
    run_id = submit(root, "quick", steps=60)
    wait_for(lambda: status(root, run_id).step > 2)
    (trainer,) = [p for p in processes_of(root) if "tests.jobs.trainer" in p.cmdline()]
    trainer.send_signal(signal.SIGUSR2)  # SLURM may signal it too, which must not kill it
    fake_slurm._signal(fake_slurm.jobs(cluster)["101"]["pid"], signal.SIGUSR2)
    wait_for(lambda: fake_slurm.jobs(cluster)["101"]["restarts"] == 1)
    assert fake_slurm.calls(cluster, "scontrol") == [["requeue", "101"]]
    wait_for(lambda: status(root, run_id).state == "finished")
    assert [what for what, _ in events(root)] == ["start", "end", "start", "end"]
    assert status(root, run_id).step == 60


def test_a_requeued_job_waits_as_queued(root: Path, cluster: Path) -> None:
    run_id = submit(root, "long")
    wait_for(lambda: status(root, run_id).step > 2)
    (cluster / "hold").touch()
    fake_slurm._signal(fake_slurm.jobs(cluster)["101"]["pid"], signal.SIGUSR2)
    wait_for(lambda: fake_slurm.jobs(cluster)["101"]["restarts"] == 1)
    assert (status(root, run_id).state, phase(root, run_id)) == ("queued", "queued")
    jobs.stop(root, run_id)
    assert status(root, run_id).state == "stopped"
    assert fake_slurm.jobs(cluster)["101"]["state"] == "CANCELLED by 1000"


def test_a_preempted_job_that_slurm_starts_again_goes_on(root: Path, cluster: Path) -> None:
    run_id = submit(root, "quick", steps=60)
    wait_for(lambda: status(root, run_id).step > 2)
    fake_slurm._put(cluster, "101", state="REQUEUED")
    fake_slurm._signal(fake_slurm.jobs(cluster)["101"]["pid"], signal.SIGTERM)
    wait_for(lambda: status(root, run_id).state == "finished")
    assert [what for what, _ in events(root)] == ["start", "end", "start", "end"]


def test_a_run_whose_job_slurm_ends_says_that_it_may_go_on(root: Path, cluster: Path) -> None:
    run_id = submit(root, "long")
    wait_for(lambda: status(root, run_id).step > 2)
    (cluster / "hold").touch()
    fake_slurm._put(cluster, "101", state="REQUEUED")
    fake_slurm._signal(fake_slurm.jobs(cluster)["101"]["pid"], signal.SIGTERM)
    wait_for(lambda: fake_slurm.jobs(cluster)["101"]["state"] == "PENDING")
    said = "SLURM had its job 101 end; the run goes on by itself if SLURM starts that job again"
    assert (status(root, run_id).state, status(root, run_id).error) == ("stopped", said)
    (cluster / "hold").unlink()
    wait_for(lambda: status(root, run_id).state == "running")
    assert status(root, run_id).error == ""
    jobs.stop(root, run_id)
    ended(cluster, "101")
    assert (status(root, run_id).state, status(root, run_id).error) == ("stopped", "")


def test_a_stopped_job_that_is_started_again_does_nothing(root: Path, cluster: Path) -> None:
    run_id = submit(root, "long")
    wait_for(lambda: status(root, run_id).step > 2)
    jobs.stop(root, run_id)
    ended(cluster, "101")
    fake_slurm._put(cluster, "101", state="PENDING", restarts=1)
    fake_slurm._start(cluster, "101")
    assert ended(cluster, "101") == "COMPLETED"
    assert status(root, run_id).state == "stopped"
    assert [what for what, _ in events(root)] == ["start", "end"]


# What can't be


def test_a_refusal_leaves_no_run(root: Path, cluster: Path) -> None:
    (cluster / "refuse").write_text("Invalid partition name specified")
    with pytest.raises(jobs.JobError, match=r"^SLURM refused: .*Invalid partition name specified$"):
        submit(root, "quick", partition="nowhere")
    assert len(RunStore(root)) == 0
    assert not list(root.glob(".deleted-*"))
    path = write_run(root, "old", state="failed")
    RunWriter(path).set_status(error="it broke")
    with pytest.raises(jobs.JobError, match="SLURM refused"):
        slurm.resume(root, path.name)
    assert (status(root, "old").state, status(root, "old").error) == ("failed", "it broke")


def test_without_slurm_or_submitit_the_answer_is_a_sentence(
    root: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = submit(root, "quick")
    wait_for(lambda: status(root, run_id).state == "finished")
    RunWriter(root / run_id).set_status(state="stopped")
    assert slurm.available()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert not slurm.available()
    with pytest.raises(
        jobs.JobError, match="can't go to SLURM: this machine has no sbatch and no srun on its PATH"
    ):
        submit(root, "quick")
    with pytest.raises(
        jobs.JobError, match=r"would go on as a SLURM job: .*`python -m moco_core train --resume quick`"
    ):
        jobs.resume(root, run_id)
    RunWriter(root / run_id).set_status(state="running", host=jobs.this_host(), pid=1, pid_started=1.0)
    with pytest.raises(jobs.JobError, match="quick is SLURM job 101, and this machine has no scancel"):
        jobs.stop(root, run_id)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(jobs.JobError, match=r"submitit is not installed \(pip install submitit\)"):
        submit(root, "quick")
    assert len(RunStore(root)) == 1


def test_a_run_that_went_on_by_hand_is_no_business_of_its_old_job(root: Path, cluster: Path) -> None:
    run_id = submit(root, "quick")
    wait_for(lambda: status(root, run_id).state == "finished")
    RunWriter(root / run_id).set_status(state="running", host="laptop", pid=7, pid_started=7.0)
    age(root, run_id, 3600)
    assert jobs.slurm_job(root, RunStore(root)[run_id]) is None
    jobs.tidy(root)
    assert not slurm._asked
    assert phase(root, run_id) == "lost contact"
