"""Projections as pages get them: at once where they are stored, else a preview while a process makes them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamlit as st

import moco_core
from moco_core.dashboard.loaders import CONTENT
from moco_core.dashboard.widgets import problem
from moco_core.projections import Projection, ProjectionSettings, find_projection
from moco_core.projections.compute import compute
from moco_core.projections.store import content_id
from moco_core.runs import Checkpoint, Run

POLL_SECONDS = 0.5
SNAPSHOT_SECONDS = 5.0
FORGOTTEN_SECONDS = 10.0  # a waiting picture that no page has asked for since is not made


@dataclass(frozen=True)
class Work:
    """How far a picture has come."""

    stage: str = "Waiting for another picture"
    share: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Shown:
    """A picture to show now, and what is still being done for it (None: nothing)."""

    picture: Projection
    content: str  # names what the picture shows
    preview: bool  # principal components, until the picture asked for is there
    work: Work | None


def shown_projection(run: Run, checkpoint: Checkpoint, settings: ProjectionSettings) -> Shown:
    """The stored picture, or its principal components while it is being made by a process of its own.

    ValueError (`RunError`) when the run lacks what the picture needs.
    """
    desk = projection_desk()
    content = content_id(run, checkpoint, settings)
    found = find_projection(run, checkpoint, settings, desk.spare)
    if found is not None and found.measured:
        return Shown(found, content, False, None)
    work = desk.ask(run, checkpoint, settings)
    if found is not None:
        return Shown(found, content, False, work)
    quick = dataclasses.replace(settings, method="pca", aligned="no")
    picture = _preview(run, checkpoint, quick)
    return Shown(picture, content_id(run, checkpoint, quick), settings.method != "pca", work)


def follow(run: Run, checkpoint: Checkpoint, settings: ProjectionSettings, shown: Shown) -> None:
    """Progress of a picture that is still being worked on; runs the page again when there is more to show."""
    if shown.work is None:
        return

    def poll() -> None:
        now = shown_projection(run, checkpoint, settings)
        if now.work is None or now.content != shown.content:
            st.rerun()
        if now.work.error:
            problem(ValueError(now.work.error), "This projection can't be made")
            if st.button("Try again", key=f"retry_{run.id}_{shown.content}"):
                projection_desk().retry(run, checkpoint, settings)
                st.rerun()
            return
        meanwhile = " Its principal components are shown meanwhile." if shown.preview else ""
        st.progress(min(max(now.work.share, 0.0), 1.0), f"{now.work.stage} …{meanwhile}")

    st.fragment(poll, run_every=None if shown.work.error else POLL_SECONDS)()


def follow_snapshots(run: Run) -> None:
    """While a run trains: runs the page again when a snapshot has arrived."""
    if not run.status.active:
        return
    known = len(run.steps)

    def poll() -> None:
        if len(Run(run.path).steps) != known:
            st.rerun()

    st.fragment(poll, run_every=SNAPSHOT_SECONDS)()


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=CONTENT)
def _preview(run: Run, checkpoint: Checkpoint, settings: ProjectionSettings) -> Projection:
    return compute(run, checkpoint, settings)


@st.cache_resource(show_spinner=False)
def projection_desk() -> ProjectionDesk:
    """The one desk of this app."""
    return ProjectionDesk()


@dataclass
class _Job:
    request: dict[str, Any]
    work: Work = field(default_factory=Work)
    asked: float = 0.0  # when a page asked last
    running: bool = False


class ProjectionDesk:
    """Has projections made one after another by `moco_core.projections.worker`, the latest asked for first."""

    def __init__(self) -> None:
        self._spare = tempfile.TemporaryDirectory(prefix="moco-lens-")
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[str] | None = None

    @property
    def spare(self) -> Path:
        """Where projections of runs that can't be written to are kept while the app runs."""
        return Path(self._spare.name)

    def close(self) -> None:
        """End the worker and drop what was kept aside."""
        with self._lock:
            worker, self._worker = self._worker, None
            self._jobs.clear()
        if worker is not None:
            worker.terminate()
            worker.wait()
        self._spare.cleanup()

    def ask(self, run: Run, checkpoint: Checkpoint, settings: ProjectionSettings) -> Work:
        """See to it that a projection is made, and say how far it is. An error stays until `retry`."""
        name = content_id(run, checkpoint, settings)
        request = {
            "job": name,
            "root": str(run.path.parent),
            "run": run.id,
            "step": checkpoint.step,
            "settings": dataclasses.asdict(settings),
        }
        with self._lock:
            job = self._jobs.setdefault(name, _Job(request))
            job.asked = time.monotonic()
            self._next()
            return job.work

    def retry(self, run: Run, checkpoint: Checkpoint, settings: ProjectionSettings) -> None:
        """Forget an error, so that the next `ask` tries again."""
        with self._lock:
            self._jobs.pop(content_id(run, checkpoint, settings), None)

    def _next(self) -> None:
        """Hand the worker the job asked for last, if it is free. Called with the lock held."""
        if any(job.running for job in self._jobs.values()):
            return
        now = time.monotonic()
        waiting = [job for job in self._jobs.values() if not job.work.error]
        for job in [job for job in waiting if now - job.asked > FORGOTTEN_SECONDS]:
            del self._jobs[job.request["job"]]
            waiting.remove(job)
        if not waiting:
            return
        job = max(waiting, key=lambda job: job.asked)
        job.running, job.work = True, Work("Starting")
        line = json.dumps(job.request) + "\n"
        try:
            self._send(line)
        except BrokenPipeError:  # it had just ended for want of work
            self._worker = None
            self._send(line)

    def _send(self, line: str) -> None:
        if self._worker is None or self._worker.poll() is not None:
            self._worker = subprocess.Popen(
                [sys.executable, "-m", "moco_core.projections.worker", str(self.spare)],
                cwd=Path(moco_core.__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C in the terminal ends the app, which ends the worker's input
            )
            threading.Thread(target=self._listen, args=(self._worker,), daemon=True).start()
        assert self._worker.stdin is not None
        self._worker.stdin.write(line)
        self._worker.stdin.flush()

    def _listen(self, worker: subprocess.Popen[str]) -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            answer = json.loads(line)
            with self._lock:
                job = self._jobs.get(answer["job"])
                if job is not None:
                    self._hear(job, answer)
        code = worker.wait()
        with self._lock:
            if worker is not self._worker:
                return
            self._worker = None
            for job in self._jobs.values():
                if job.running:
                    job.running = False
                    job.work = Work(
                        error=f"the process that computes projections ended with code {code}"
                        + ("; there may not be enough memory" if code == -9 else "")
                    )
            self._next()

    def _hear(self, job: _Job, answer: dict[str, Any]) -> None:
        if "stage" in answer:
            job.work = Work(answer["stage"], float(answer["share"]))
            return
        job.running = False
        if "error" in answer:
            job.work = Work(error=answer["error"])
        else:
            del self._jobs[job.request["job"]]
        self._next()
