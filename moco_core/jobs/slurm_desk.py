"""SlurmDesk: which SLURM job each run waits or trains in, for every machine that shares the runs root.

It lies in `<runs root>/.jobs/@slurm/`, a name that no host can have: a note a run, kept until the run is deleted
so that it can go on as it began, and in `logs/` what submitit writes, the jobs' output among it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moco_core.jobs.desk import FOLDER, held
from moco_core.runs import RunStatus
from moco_core.runs.files import replace_json

NAME = "@slurm"


@dataclass(frozen=True)
class SlurmJob:
    """The newest job of a run."""

    run_id: str
    job_id: str  # as SLURM writes it: 17, or 17_2 in an array; empty while it is being submitted
    options: dict[str, Any]
    host: str = ""  # the node that took it up; empty while it is pending
    stopping: bool = False  # whether it was asked to stop

    def __str__(self) -> str:
        return f"SLURM job {self.job_id}" if self.job_id else "being submitted to SLURM"

    @property
    def launched(self) -> bool:
        """Whether a node has taken the job up."""
        return bool(self.host)

    def serves(self, status: RunStatus) -> bool:
        """Whether the job is what an active run waits or trains in; someone may have gone on with it by hand."""
        return status.active and (status.state == "queued" or status.host == self.host)


class SlurmDesk:
    """The notes about the SLURM jobs of one runs root."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.folder = self.root / FOLDER / NAME
        self.logs = self.folder / "logs"

    def key(self) -> AbstractContextManager[None]:
        """Hold the desk for a moment; whoever changes notes, or a state because of one, holds it."""
        return held(self.folder / "desk.lock")

    def job(self, run_id: str) -> SlurmJob | None:
        """The newest job of a run; None when it never had one. May be read without the key."""
        try:
            return SlurmJob(**json.loads(self._path(run_id).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def put(self, job: SlurmJob) -> None:
        """Write the note about a run's job, in place of an earlier one."""
        replace_json(self._path(job.run_id), dataclasses.asdict(job))

    def log(self, job: SlurmJob) -> Path:
        """Where the first process of a job says what went wrong."""
        return self.logs / f"{job.job_id}_0_log.err"

    def forget(self, run_id: str) -> None:
        """Delete a run's note and what its newest job has written."""
        job = self.job(run_id)
        self._path(run_id).unlink(missing_ok=True)
        if job is None or not job.job_id:
            return
        for file in self.logs.glob(f"{job.job_id}_*"):
            file.unlink(missing_ok=True)
        array = job.job_id.partition("_")[0]
        batch_file = self.logs / f"{array}_submission.sh"
        if set(self.logs.glob(f"{array}_*")) <= {batch_file}:  # that was the last run of an array
            batch_file.unlink(missing_ok=True)
        for link in self.logs.glob(".submission_file_*"):  # the batch file's first name
            if not link.exists():
                link.unlink(missing_ok=True)

    def _path(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.json"
