"""Runs are trained one at a time in their order, and end as they should."""

import dataclasses
import os
import socket
from pathlib import Path

import pytest

from moco_core import jobs
from moco_core.config import ConfigError, TrainConfig
from moco_core.jobs.desk import Desk, Ticket
from moco_core.runs import RunError, RunStore, RunWriter
from moco_core.runs.process import start_of
from tests.jobs.conftest import events, processes_of, status, wait_for, wait_for_state
from tests.synthetic import write_run


def config(name: str, steps: int = 5, **fields: object) -> TrainConfig:
    return TrainConfig.from_dict({"name": name, "steps": steps, **fields})


def test_a_submitted_run_is_trained_to_its_end(root: Path) -> None:
    run_id = jobs.submit(config("quick"), root)
    assert status(root, run_id).state in ("queued", "running")
    assert wait_for_state(root, run_id, "finished").step == 5
    wait_for(lambda: not processes_of(root))  # the worker leaves when nothing is queued


def test_runs_train_one_at_a_time_oldest_first(root: Path) -> None:
    ids = [jobs.submit(config(f"quick {i}"), root) for i in range(3)]
    assert len(processes_of(root, "worker")) <= 3
    for run_id in ids:
        wait_for_state(root, run_id, "finished")
    assert events(root) == [(what, run_id) for run_id in ids for what in ("start", "end")]


def test_a_sweep_is_one_run_a_value_under_one_tag(root: Path) -> None:
    first = jobs.submit_sweep(config("quick", steps=1), root)
    second = jobs.submit_sweep(config("quick", steps=1), root, over="queue_size", values=(8, 16))
    store = RunStore(root)
    assert [store[i].config.momentum for i in first] == [0, 0.9, 0.99, 0.999]
    assert [store[i].name for i in first] == [f"quick momentum={m}" for m in ("0", "0.9", "0.99", "0.999")]
    assert {store[i].sweep for i in first} == {"momentum sweep"}
    assert [store[i].config.queue_size for i in second] == [8, 16]
    assert second == ["quick-queue-size8", "quick-queue-size16"]
    assert jobs.sweep_tag(root, "momentum") == "momentum sweep 2"
    for run_id in first + second:
        wait_for_state(root, run_id, "finished")


def test_a_sweep_with_a_bad_value_queues_nothing(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"momentum must be at least 0 and at most 1, got 1\.5"):
        jobs.submit_sweep(config("quick"), root, values=(0.9, 1.5))
    assert len(RunStore(root)) == 0


def test_stop_leaves_the_final_word_to_the_trainer(root: Path) -> None:
    run_id = jobs.submit(config("long"), root)
    wait_for(lambda: status(root, run_id).step > 2)
    jobs.stop(root, run_id)
    ticket = Desk(root).tickets().get(run_id)
    assert ticket is None or jobs.phase(status(root, run_id), ticket) in ("stopping", "stopped")
    assert wait_for_state(root, run_id, "stopped").error == ""
    assert events(root) == [("start", run_id), ("end", run_id)]
    jobs.stop(root, run_id)  # once more changes nothing
    assert status(root, run_id).state == "stopped"


def test_stop_kills_a_process_that_does_not_listen(root: Path) -> None:
    run_id = jobs.submit(config("deaf"), root)
    wait_for(lambda: status(root, run_id).step > 0)
    jobs.stop(root, run_id, grace=0.5)
    assert "was killed" in wait_for_state(root, run_id, "stopped").error
    assert not processes_of(root, "trainer")


def test_stopping_a_waiting_run_keeps_it_from_starting(root: Path) -> None:
    first, second = (jobs.submit(config(name), root) for name in ("long", "quick"))
    wait_for(lambda: status(root, first).state == "running")
    assert jobs.phase(status(root, second), Desk(root).tickets()[second]) == "queued"
    jobs.stop(root, second)
    assert status(root, second).state == "stopped"
    jobs.stop(root, first)
    wait_for(lambda: not processes_of(root))
    assert [run_id for _, run_id in events(root)] == [first, first]


def test_stop_before_the_trainer_has_begun(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = ("sh", "-c", "sleep 60")  # a trainer that never gets as far as to claim its run
    monkeypatch.setattr(jobs.local, "TRAINER", sleeper)
    run_id = jobs.submit(config("quick"), root)
    wait_for(lambda: Desk(root).tickets()[run_id].launched)
    assert jobs.phase(status(root, run_id), Desk(root).tickets()[run_id]) == "starting"
    jobs.stop(root, run_id)
    wait_for_state(root, run_id, "stopped")


def test_a_stopped_run_goes_on_when_resumed(root: Path) -> None:
    run_id = jobs.submit(config("quick", steps=60), root)
    wait_for(lambda: status(root, run_id).step > 2)
    jobs.stop(root, run_id)
    reached = wait_for_state(root, run_id, "stopped").step
    jobs.resume(root, run_id)
    assert status(root, run_id).step >= reached
    assert wait_for_state(root, run_id, "finished").step == 60
    with pytest.raises(jobs.JobError, match="is finished; only a stopped or failed run can go on"):
        jobs.resume(root, run_id)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("broken", "the disk is made of cheese"),
        ("silent", "its process ended without a word (exit code 3)"),
        ("careful", "the loss is nan at step 3"),
    ],
)
def test_a_failure_is_recorded_in_a_sentence(root: Path, name: str, error: str) -> None:
    run_id = jobs.submit(config(name), root)
    assert wait_for_state(root, run_id, "failed").error == error


def test_a_trainer_that_cannot_be_started(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs.local, "TRAINER", ("/nonexistent/python",))
    run_id = jobs.submit(config("quick"), root)
    assert "training can't be started" in wait_for_state(root, run_id, "failed").error


def test_a_waiting_run_that_was_finished_by_hand_is_left_alone(root: Path) -> None:
    first, second = (jobs.submit(config(name), root) for name in ("long", "quick"))
    wait_for(lambda: status(root, first).state == "running")
    RunWriter(root / second).set_status(state="finished", step=5)
    jobs.stop(root, first)
    wait_for(lambda: not processes_of(root))
    assert status(root, second).state == "finished"
    assert second not in [run_id for _, run_id in events(root)]


def test_a_run_deleted_while_it_waits_holds_up_nobody(root: Path) -> None:
    first, second, third = (jobs.submit(config(name), root) for name in ("long", "quick", "quick"))
    wait_for(lambda: status(root, first).state == "running")
    (root / second).rename(root / ".elsewhere")
    jobs.stop(root, first)
    wait_for_state(root, third, "finished")


def test_runs_of_other_hosts_are_theirs(root: Path) -> None:
    path = write_run(root, "far away", state="running")
    RunWriter(path).set_status(host="another-machine", pid=1, pid_started=0.0)
    with pytest.raises(jobs.JobError, match="is trained on another-machine; stop it there"):
        jobs.stop(root, path.name)
    now = status(root, path.name)
    assert jobs.is_alive(now)
    assert jobs.phase(now) == "running"
    silent = dataclasses.replace(now, pid=2, heartbeat="2020-01-01T00:00:00+00:00")
    assert not jobs.is_alive(silent)
    assert jobs.phase(silent) == "lost contact"
    jobs.tidy(root)
    assert status(root, path.name).state == "running"


def test_a_pid_given_to_another_process_is_not_the_trainer(root: Path) -> None:
    path = write_run(root, "old", state="running")
    RunWriter(path).set_status(host=socket.gethostname(), pid=os.getpid(), pid_started=start_of(os.getpid()))
    assert jobs.is_alive(status(root, path.name))
    RunWriter(path).set_status(pid_started=start_of(os.getpid()) - 100)
    assert not jobs.is_alive(status(root, path.name))
    jobs.stop(root, path.name)  # sends nothing to the process that has the pid now
    wait_for_state(root, path.name, "stopped")


def test_a_process_is_known_after_the_clock_was_set(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linux = pytest.importorskip("psutil._pslinux")
    path = write_run(root, "here", state="running")
    RunWriter(path).set_status(host=socket.gethostname(), pid=os.getpid(), pid_started=start_of(os.getpid()))
    booted = linux.boot_time()
    for hours in (-5, 5):
        monkeypatch.setattr(linux, "boot_time", lambda hours=hours: booted + 3600 * hours)
        assert jobs.is_alive(status(root, path.name))
        jobs.tidy(root)
        assert status(root, path.name).state == "running"


def test_tidy_marks_what_has_no_process(root: Path) -> None:
    host = socket.gethostname()
    lost = write_run(root, "lost", state="running")
    RunWriter(lost).set_status(host=host, pid=2**22 - 1, pid_started=1.0)
    done = write_run(root, "done", state="finished")
    fresh = write_run(root, "fresh", state="queued")
    jobs.tidy(root)
    assert status(root, lost.name).error == "its process ended at step 20 without a word"
    assert [status(root, p.name).state for p in (lost, done, fresh)] == ["failed", "finished", "queued"]


def test_tidy_of_a_folder_without_jobs_writes_nothing(tmp_path: Path) -> None:
    jobs.tidy(tmp_path)
    jobs.tidy(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_delete_takes_the_run_away_and_refuses_active_ones(root: Path) -> None:
    running = jobs.submit(config("long"), root)
    wait_for(lambda: status(root, running).state == "running")
    waiting = jobs.submit(config("quick"), root)
    done = write_run(root, "done").name
    for run_id, state in ((running, "running"), (waiting, "queued")):
        with pytest.raises(jobs.JobError, match=f"{run_id} is {state}; stop it before deleting it"):
            jobs.delete(root, run_id)
    jobs.delete(root, done)
    assert sorted(run.id for run in RunStore(root)) == sorted([running, waiting])
    assert not list(root.glob(".deleted-*"))
    with pytest.raises(jobs.JobError, match="there is no run 'done'"):
        jobs.delete(root, done)
    with pytest.raises(jobs.JobError, match="there is no run"):
        jobs.delete(root, "../" + root.name)


def test_a_finished_run_can_be_deleted_while_its_pictures_are_drawn(root: Path) -> None:
    run_id = jobs.submit(config("drawing"), root)
    after = jobs.submit(config("quick"), root)
    wait_for(lambda: status(root, run_id).state == "finished")
    jobs.delete(root, run_id)
    assert run_id not in RunStore(root)
    wait_for(lambda: status(root, after).state == "finished")  # nothing waits for the pictures
    wait_for(lambda: not processes_of(root))


def test_a_damaged_run_can_be_deleted(root: Path) -> None:
    path = write_run(root, "damaged")
    (path / "run.json").write_text("{")
    jobs.delete(root, path.name)
    assert not path.exists()


def test_an_interrupted_deletion_is_completed(root: Path) -> None:
    (root / ".deleted-old-1234" / "step-00000000").mkdir(parents=True)
    jobs.tidy(root)
    assert not list(root.glob(".deleted-*"))


def test_unknown_runs_are_refused(root: Path) -> None:
    for act in (jobs.stop, jobs.resume):
        with pytest.raises(RunError, match="there is no run 'nobody'"):
            act(root, "nobody")


def test_foreign_files_at_the_desk_are_ignored(root: Path) -> None:
    desk = Desk(root)
    desk.folder.mkdir(parents=True)
    (desk.folder / "half.ticket").write_text('{"run_id": "ha')
    (desk.folder / "other.ticket").write_text('{"colour": "blue"}')
    desk.put(Ticket("b", 2))
    desk.add("c")
    desk.put(Ticket("a", 1))
    assert list(desk.tickets()) == ["a", "b", "c"]
