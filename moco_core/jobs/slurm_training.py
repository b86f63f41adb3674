"""What a SLURM job does on its node: the work of a worker for one run.

submitit calls a `Training` in each task of the job. It trains in a process of its own, because a step can't be
left in the middle: asked to end, that process finishes its step and writes a checkpoint, while this one waits and
records what it can't. SLURM signals a job in three ways: SIGTERM when it is cancelled, SIGTERM and then SIGKILL when
it is preempted, and submitit's own signal, which calls `checkpoint`, before its time is up.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from moco_core.jobs.last_words import last_words
from moco_core.jobs.processes import this_host
from moco_core.jobs.slurm_desk import SlurmDesk
from moco_core.runs import RunError, RunStatus, RunWriter

# It may be preempted or cancelled: what SLURM has in mind, a job is not told.
ENDED = "SLURM had its job {} end; the run goes on by itself if SLURM starts that job again"


@dataclass
class Training:
    """Trains a run to its end, or until it is told to stop; every task of a job calls one of its own."""

    root: Path
    run_id: str
    trainer: tuple[str, ...]  # the command that trains a run, to which `--resume RUN_ID --runs ROOT` is added
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _signals: list[int] = field(default_factory=list, init=False, repr=False)

    def __call__(self) -> None:
        """Train, or return at once when the run was stopped or is finished. RunError when it isn't there.

        Raises SystemExit, with the exit code of training, when that failed.
        """
        from submitit import JobEnvironment
        from submitit.helpers import TorchDistributedEnvironment

        here = JobEnvironment()
        leads = here.global_rank == 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        with _held_back(getattr(signal, f"SIG{here.USR_SIG}")):
            found = self._take_up(here.job_id, leads=leads)
            if found is None:
                return
            TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
            self._child = self._start()
        if self._signals:
            self._child.terminate()
        code = self._child.wait()
        if leads:
            self._record_end(here.paths.stderr, code, found)
        if code and not self._signals:
            sys.exit(code if code > 0 else 128 - code)

    def checkpoint(self) -> Any:
        """Have a checkpoint written, put the run back in the queue and return what the requeued job is to call.

        None, which keeps the job from being requeued, when the run has ended or was asked to.
        """
        from submitit.helpers import DelayedSubmission

        if self._child is not None and self._child.returncode is None:
            self._child.terminate()
            with suppress(ChildProcessError):  # it has just ended
                os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)  # `wait` is under way above
        desk = SlurmDesk(self.root)
        with desk.key():
            run, job = RunWriter(self.root / self.run_id), desk.job(self.run_id)
            if run.status.state not in ("queued", "stopped") or job is None or job.stopping:
                return None
            desk.put(dataclasses.replace(job, host=""))
            run.set_status(state="queued", error="", pid=None, pid_started=None)
        return DelayedSubmission(dataclasses.replace(self))

    def _take_up(self, job_id: str, *, leads: bool) -> RunStatus | None:
        """The run's status if this job is to train it, else None; the first task notes where it trains."""
        desk = SlurmDesk(self.root)
        with desk.key():
            job = desk.job(self.run_id)
            if job is None or job.job_id not in ("", job_id):  # another one was submitted since
                return None
            status = RunWriter(self.root / self.run_id).status
            if job.stopping or not _is_wanted(status):
                return None
            if leads:
                desk.put(dataclasses.replace(job, job_id=job_id, host=this_host()))
        return status

    def _start(self) -> subprocess.Popen[bytes]:
        own = {"TQDM_DISABLE": "1", "PYTHONUNBUFFERED": "1"}
        if "SLURM_GPUS_PER_TASK" in os.environ:  # the task sees its own GPU alone
            own["LOCAL_RANK"] = "0"
        command = [*self.trainer, "--resume", self.run_id, "--runs", str(self.root)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=os.environ | own)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        if self._child is not None:
            self._child.send_signal(number)

    def _record_end(self, log: Path, code: int, found: RunStatus) -> None:
        """Give the run its final state unless it has one, is in the hands of another process, or queued once more."""
        assert self._child is not None
        desk = SlurmDesk(self.root)
        with suppress(RunError), desk.key():  # deleted, or damaged: the listing says so
            run, job = RunWriter(self.root / self.run_id), desk.job(self.run_id)
            status = run.status
            unclaimed = status.state == "queued" and status == found
            ours = unclaimed or (status.host, status.pid) == (this_host(), self._child.pid)
            if not ours:
                return
            if self._signals and (status.active or status.state == "stopped"):
                error = "" if job is None or job.stopping else ENDED.format(job.job_id)
                run.set_status(state="stopped", error=error)
            elif status.active:
                run.set_status(state="failed", error=last_words(log, code))


@contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    """Have a signal wait, as it does for good in processes started meanwhile: SLURM may send it to them too."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


def _is_wanted(status: RunStatus) -> bool:
    """Whether a job that starts is to train the run: not when it was stopped while the job was pending.

    The later tasks of a job may find it `running`. A job that SLURM has started again goes on with a run whatever
    stopped it: its preemption, or the failure of a node.
    """
    restarted = int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0
    return status.active or (restarted and status.state != "finished")
