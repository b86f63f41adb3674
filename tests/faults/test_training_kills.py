"""Training that is killed without warning loses little and breaks nothing."""

import os
import signal

from moco_core.runs import RunStore, RunWriter
from moco_core.runs.verify import damage
from tests.training.small import assert_identical, resume, train_small
from tests.training.test_command import started, wait_for_step


def test_sigkill_leaves_a_run_that_resumes_to_the_same_bits(tmp_path):
    settings = ("--steps", 40, "--snapshots", 6, "--threads", 1)
    process = started(tmp_path / "killed", *settings)
    wait_for_step(tmp_path / "killed", 8)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    (killed,) = RunStore(tmp_path / "killed")
    assert killed.status.state in ("running", "finished")
    assert list(damage(killed)) == []
    RunWriter(killed.path).set_status(state="failed")
    resumed = resume(RunStore(tmp_path / "killed")[killed.id])
    whole = train_small(tmp_path / "whole", steps=40, snapshots=6, threads=1)
    assert_identical(whole, resumed)


def test_leftovers_of_a_kill_are_cleared(tmp_path):
    stopped = train_small(tmp_path, stop_after=5)
    leftover = stopped.path / ".step-00000009.1234"
    leftover.mkdir()
    (leftover / "queue.safetensors").write_bytes(b"half")
    assert [c.step for c in RunStore(tmp_path)[stopped.id].steps] == [0, 1, 5]
    with RunWriter(stopped.path).training():
        assert not leftover.exists()
