"""Runs as SLURM jobs, by way of submitit, which is imported only where it is needed."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import moco_core
from moco_core.config import TrainConfig
from moco_core.jobs import local
from moco_core.jobs.desk import JobError
from moco_core.jobs.graves import hide, remove
from moco_core.jobs.last_words import last_line
from moco_core.jobs.processes import is_alive, this_host
from moco_core.jobs.slurm_desk import SlurmDesk, SlurmJob
from moco_core.jobs.slurm_options import NAMES, SHARED, slurm_options, slurm_words
from moco_core.jobs.slurm_training import Training
from moco_core.runs import RunError, RunWriter
from moco_core.runs.writer import slug

__all__ = ["NAMES", "available", "queue", "resume", "slurm_options", "slurm_words", "stop", "tidy"]

PACKAGE_FOLDER = Path(moco_core.__file__).parents[1]
DEFAULTS: dict[str, Any] = {"timeout_min": 24 * 60}
REQUEUES = 1000  # each goes on from a checkpoint, so a time limit is never a reason to give up
CANCEL_SECONDS = 30.0
ASK_SECONDS = 60.0  # sacct is slow, and shared by everyone on the cluster
ENDED = (
    *("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "PREEMPTED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"),
    "DEADLINE",
)

_asking = threading.Lock()
_asked: dict[Path, float] = {}


def available() -> bool:
    """Whether runs can be submitted from this machine: submitit is installed and SLURM's commands are on PATH."""
    return _unavailable() == ""


def queue(
    configs: Sequence[TrainConfig],
    root: Path,
    sweep: str = "",
    *,
    options: Mapping[str, Any],
    project: bool = True,
) -> list[str]:
    """Make runs and submit them, several as one job array; returns their ids.

    `options` as `slurm_options` gives them. JobError when SLURM isn't within reach or refuses: then no run is made.
    """
    for config in configs:
        config.check_trainable()
    _check_available()
    desk = SlurmDesk(root)
    ids = [RunWriter.create(desk.root, config, sweep=sweep).run_id for config in configs]
    try:
        _submit(desk, ids, slug(sweep) if sweep else ids[0], options, project)
    except (JobError, OSError):
        for run_id in ids:
            remove(hide(desk.root / run_id))
        raise
    return ids


def resume(root: Path, run_id: str, options: Mapping[str, Any] | None = None, project: bool = True) -> None:
    """Submit a stopped or failed run again, with the options of its last job where none are given.

    JobError when the run is active or finished, or SLURM isn't within reach or refuses; RunError when the run can't
    be read.
    """
    desk = SlurmDesk(root)
    with desk.key():
        run, last = RunWriter(desk.root / run_id), desk.job(run_id)
        before = run.status
        if before.state not in ("stopped", "failed"):
            raise JobError(f"{run_id} is {before.state}; only a stopped or failed run can go on")
        if _unavailable():
            command = f"python -m moco_core train --resume {run_id}"
            raise JobError(
                f"{run_id} would go on as a SLURM job: {_unavailable()}; `{command}` trains it on this machine"
            )
        run.set_status(state="queued", error="", host=this_host(), pid=None, pid_started=None)
    if not options:
        options = last.options if last else {}
    try:
        _submit(desk, [run_id], run_id, options, project)
    except (JobError, OSError):
        run.set_status(state=before.state, error=before.error)
        raise


def stop(root: Path, run_id: str) -> None:
    """Ask a run's job to write a checkpoint and end; asked once more, have SLURM end it.

    A pending job is cancelled and its run is `stopped` at once, and so is one that SLURM no longer knows.
    JobError when SLURM isn't within reach or refuses.
    """
    desk = SlurmDesk(root)
    with desk.key():
        run, job = RunWriter(desk.root / run_id), desk.job(run_id)
        if job is None or not run.status.active:
            return
        if not job.launched:
            if job.job_id:
                _cancel(job)
            run.set_status(state="stopped")
        elif _cancel(job, gently=not job.stopping):
            desk.put(replace(job, stopping=True))
        else:
            run.set_status(state="stopped", error=f"SLURM job {job.job_id} had ended{_said(desk, job)}")


def tidy(root: Path, silent: Sequence[SlurmJob]) -> None:
    """Ask SLURM about jobs that give no sign of life, at most once a minute, in a thread that nobody waits for.

    A run whose job has ended becomes `stopped` or `failed`. Where SLURM can't be asked, nothing happens.
    """
    desk = SlurmDesk(root)
    silent = [job for job in silent if job.job_id]
    if not silent or not shutil.which("sacct") or not _has_submitit():
        return
    now = time.monotonic()
    if now - _asked.get(desk.root, float("-inf")) >= ASK_SECONDS:
        _asked[desk.root] = now
        threading.Thread(target=_settle, args=(desk, silent), name="asking SLURM", daemon=True).start()


def _submit(
    desk: SlurmDesk, ids: Sequence[str], name: str, options: Mapping[str, Any], project: bool
) -> None:
    """Submit one job for each run and note them."""
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError
    from submitit.helpers import clean_env

    path = f"export PYTHONPATH={shlex.quote(str(PACKAGE_FOLDER))}${{PYTHONPATH:+:$PYTHONPATH}}"
    wanted = {"name": name, **DEFAULTS, **options, "setup": [path, *options.get("setup", [])]}
    named = {key if key in SHARED else f"slurm_{key}": value for key, value in wanted.items()}
    trainer = (*local.TRAINER, *([] if project else ["--no-project"]))
    trainings = [Training(desk.root, run_id, trainer) for run_id in ids]
    with _noted(desk, ids, options):
        executor = submitit.AutoExecutor(desk.logs, cluster="slurm", slurm_max_num_timeout=REQUEUES)
        executor.update_parameters(**named)
        try:
            # A job that submits others must not hand them its own settings.
            with clean_env() if "SLURM_JOB_ID" in os.environ else nullcontext():
                submitted = executor.submit_array(trainings)
        except (FailedJobError, FailedSubmissionError) as error:
            raise JobError(f"SLURM refused: {_reason(str(error))}") from error
    with desk.key():
        for run_id, made in zip(ids, submitted, strict=True):
            job = desk.job(run_id)
            if job is not None and not job.job_id:  # else it has started and noted itself
                desk.put(replace(job, job_id=made.job_id))


@contextmanager
def _noted(desk: SlurmDesk, ids: Sequence[str], options: Mapping[str, Any]) -> Iterator[None]:
    """Note that jobs are being submitted, so that each is expected when it starts; on failure, all is as before."""
    with desk.key():
        before = {run_id: desk.job(run_id) for run_id in ids}
        for run_id in ids:
            desk.put(SlurmJob(run_id, "", dict(options)))
    try:
        yield
    except (JobError, OSError):
        with desk.key():
            for run_id, job in before.items():
                desk.put(job) if job else desk.forget(run_id)
        raise


def _cancel(job: SlurmJob, *, gently: bool = False) -> bool:
    """Cancel a job, or only ask its tasks to end; False when SLURM has no such job any more."""
    for words in [["--signal=TERM"], []] if gently else [[]]:
        try:
            done = subprocess.run(
                ["scancel", *words, job.job_id], capture_output=True, text=True, timeout=CANCEL_SECONDS
            )
        except FileNotFoundError as error:
            raise JobError(
                f"{job.run_id} is SLURM job {job.job_id}, and this machine has no scancel: stop it where SLURM is"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise JobError(f"SLURM did not answer within {CANCEL_SECONDS:.0f} s; try again") from error
        if done.returncode == 0:
            return True
    if "invalid job id" in done.stderr.lower() or "already complet" in done.stderr.lower():
        return False
    raise JobError(f"SLURM did not cancel job {job.job_id}: {_reason(done.stderr)}")


def _settle(desk: SlurmDesk, jobs: Sequence[SlurmJob]) -> None:
    """Record the ends of jobs that SLURM knows of."""
    if not _asking.acquire(blocking=False):
        return
    try:
        states = _states([job.job_id for job in jobs])
        for job in jobs:
            words = states.get(job.job_id, "").split()  # such as CANCELLED by 1000
            if words and words[0] in ENDED:
                with suppress(OSError, RunError), desk.key():
                    _record_end(desk, job, words[0])
    finally:
        _asking.release()


def _states(job_ids: Iterable[str]) -> dict[str, str]:
    """What sacct says of each job that it knows."""
    from submitit.slurm.slurm import SlurmInfoWatcher

    watcher = SlurmInfoWatcher()
    for job_id in job_ids:
        watcher.register_job(job_id)
    watcher.update()
    return {job_id: watcher.get_state(job_id, mode="cache") for job_id in job_ids}


def _record_end(desk: SlurmDesk, job: SlurmJob, state: str) -> None:
    run, known = RunWriter(desk.root / job.run_id), desk.job(job.run_id)  # it may have gone on since
    if known is None or known.job_id != job.job_id or not known.serves(run.status) or is_alive(run.status):
        return
    error = f"SLURM ended its job {job.job_id} as {state}{_said(desk, job)}"
    run.set_status(state="stopped" if state == "CANCELLED" else "failed", error=error)


def _said(desk: SlurmDesk, job: SlurmJob) -> str:
    line = last_line(desk.log(job))
    return f"; its last line was: {line}" if line else ""


def _check_available() -> None:
    reason = _unavailable()
    if reason:
        raise JobError(f"the run can't go to SLURM: {reason}")


def _unavailable() -> str:
    """Why runs can't be submitted from this machine; empty when they can."""
    if not _has_submitit():
        return "submitit is not installed (pip install submitit)"
    missing = [command for command in ("sbatch", "srun") if not shutil.which(command)]
    return f"this machine has no {' and no '.join(missing)} on its PATH" if missing else ""


def _has_submitit() -> bool:
    return importlib.util.find_spec("submitit") is not None


def _reason(stderr: str) -> str:
    """The last thing that one of SLURM's commands said, without its name."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1].split("error: ")[-1] if lines else "it gave no reason"
