"""Real kills at awkward moments: no run is lost, trained twice, or left marked as running."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moco_core import jobs
from moco_core.jobs.desk import Desk
from moco_core.jobs.processes import started_at
from tests.jobs.conftest import events, processes_of, root, status, wait_for, wait_for_state
from tests.jobs.test_local import config

__all__ = ["root"]


def test_a_killed_trainer_is_marked_failed_and_the_next_run_starts(root: Path) -> None:
    first, second = (jobs.submit(config(name), root) for name in ("long", "quick"))
    wait_for(lambda: status(root, first).step > 0)
    (trainer,) = processes_of(root, "trainer")
    trainer.send_signal(signal.SIGKILL)
    assert wait_for_state(root, first, "failed").error.startswith("its process was killed by SIGKILL")
    wait_for_state(root, second, "finished")


def test_a_killed_worker_costs_nothing(root: Path) -> None:
    first, second = (jobs.submit(config(name), root) for name in ("long", "quick"))
    wait_for(lambda: status(root, first).step > 0)
    wait_for(lambda: len(processes_of(root, "worker")) == 1)  # the second finds nothing to do and leaves
    (worker,) = processes_of(root, "worker")
    worker.send_signal(signal.SIGKILL)
    worker.wait(10) if worker.ppid() != os.getpid() else jobs.local._workers[0].wait(10)
    before = status(root, first).step
    wait_for(lambda: status(root, first).step > before)  # training goes on without it

    jobs.tidy(root)  # what the app does when it starts
    wait_for(lambda: len(processes_of(root, "worker")) == 1)
    assert status(root, second).state == "queued"  # still one at a time
    jobs.stop(root, first)
    wait_for_state(root, first, "stopped")
    wait_for_state(root, second, "finished")
    assert events(root) == [(what, run_id) for run_id in (first, second) for what in ("start", "end")]


def test_worker_and_trainer_killed_together(root: Path) -> None:
    first, second = (jobs.submit(config(name), root) for name in ("long", "quick"))
    wait_for(lambda: status(root, first).step > 0)
    for process in processes_of(root, "worker") + processes_of(root, "trainer"):
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not processes_of(root))
    assert status(root, first).state == "running"  # nobody was left to say otherwise
    jobs.tidy(root)
    wait_for_state(root, first, "failed")
    wait_for_state(root, second, "finished")
    assert [run_id for what, run_id in events(root) if what == "start"] == [first, second]


def test_a_trainer_killed_while_nobody_watches_it(root: Path) -> None:
    run_id = jobs.submit(config("long"), root)
    wait_for(lambda: status(root, run_id).step > 0)
    (worker,), (trainer,) = processes_of(root, "worker"), processes_of(root, "trainer")
    worker.send_signal(signal.SIGKILL)
    trainer.send_signal(signal.SIGKILL)
    wait_for(lambda: started_at(trainer.pid) is None)  # it loses its command line before it is gone
    Desk(root).remove(run_id)  # as after a start by hand
    jobs.tidy(root)
    assert "without a word" in status(root, run_id).error


def test_many_starts_at_once_all_run_and_never_together(root: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda i: jobs.submit(config("quick", steps=2), root), range(6)))
    assert len(set(ids)) == 6
    for run_id in ids:
        wait_for_state(root, run_id, "finished")
    noted = events(root)
    assert noted[::2] == [("start", run_id) for _, run_id in noted[::2]]
    assert noted[1::2] == [("end", run_id) for _, run_id in noted[::2]]


def test_starts_while_the_worker_is_leaving(root: Path) -> None:
    """Each start falls within the moments in which the worker of the last one finds nothing and ends."""
    for _ in range(6):
        run_id = jobs.submit(config("quick", steps=1), root)
        wait_for(lambda run_id=run_id: status(root, run_id).state == "finished")
    wait_for(lambda: not processes_of(root))
    assert len([what for what, _ in events(root) if what == "start"]) == 6


def test_training_survives_the_app_and_is_found_again(root: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from moco_core import jobs; from moco_core.config import TrainConfig;"
        "jobs.local.TRAINER = tuple(sys.argv[2:]);"
        "print(jobs.submit(TrainConfig(name='long'), Path(sys.argv[1])), flush=True); sys.stdin.read()"
    )
    app = subprocess.Popen(
        [sys.executable, "-c", script, str(root), *jobs.local.TRAINER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert app.stdout is not None
    run_id = app.stdout.readline().strip()
    wait_for(lambda: status(root, run_id).step > 0)
    os.killpg(app.pid, signal.SIGKILL)  # the app with everything in its group
    app.communicate()
    before = status(root, run_id).step
    wait_for(lambda: status(root, run_id).step > before)
    jobs.tidy(root)
    assert jobs.is_alive(status(root, run_id))
    jobs.stop(root, run_id)
    assert wait_for_state(root, run_id, "stopped").step > before


def test_a_halted_trainer_is_woken_to_write_its_checkpoint(root: Path) -> None:
    run_id = jobs.submit(config("long"), root)
    wait_for(lambda: status(root, run_id).step > 0)
    (trainer,) = processes_of(root, "trainer")
    trainer.send_signal(signal.SIGSTOP)
    jobs.stop(root, run_id)
    assert wait_for_state(root, run_id, "stopped").error == ""
    assert ("end", run_id) in events(root)
