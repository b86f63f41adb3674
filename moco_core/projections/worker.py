"""`python -m moco_core.projections.worker SPARE_FOLDER`: computes projections for the app, one after another.

A process of its own, because UMAP holds the interpreter for seconds, and two fits at once in one process can
abort it. Jobs come as JSON lines on stdin: `{"job", "root", "run", "step", "settings"}`. Answers go to stdout as
JSON lines: `{"job", "stage", "share"}` while it works, then `{"job", "done": true}` or `{"job", "error"}`. It
ends with its input, and when nothing was asked of it for a while.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from moco_core.projections.compute import ProjectionSettings
from moco_core.projections.store import stored_projection
from moco_core.runs import RunStore
from moco_core.runs.files import reason

IDLE_SECONDS = 600.0


def serve(jobs: Iterator[dict[str, Any]], answers: TextIO, spare: Path) -> None:
    """Answer jobs until there are no more."""

    def say(job: str, **what: Any) -> None:
        answers.write(json.dumps({"job": job, **what}) + "\n")
        answers.flush()

    for wanted in jobs:
        job = wanted["job"]

        def progress(stage: str, share: float, job: str = job) -> None:
            say(job, stage=stage, share=share)

        try:
            run = RunStore(wanted["root"])[wanted["run"]]
            settings = ProjectionSettings(**wanted["settings"])
            stored_projection(run, run.step(wanted["step"]), settings, progress, spare)
        except ValueError as error:
            say(job, error=str(error))
        except KeyError as error:
            say(job, error=str(error.args[0]))
        except OSError as error:
            say(job, error=f"it can't be stored: {reason(error)}")
        except MemoryError:
            say(job, error="there is not enough memory for this picture")
        else:
            say(job, done=True)


def lines(handle: int, idle: float = IDLE_SECONDS) -> Iterator[dict[str, Any]]:
    """JSON objects, one a line, from a pipe; ends with it, or after `idle` seconds without a line."""
    rest = b""
    while select.select([handle], [], [], idle)[0]:
        chunk = os.read(handle, 65536)
        if not chunk:
            return
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            yield json.loads(line)


if __name__ == "__main__":
    # Whatever libraries print must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if hasattr(os, "nice"):
        os.nice(10)  # the page that somebody waits for goes first
    try:
        serve(lines(0), out, Path(sys.argv[1]))
    except BrokenPipeError:  # the app has ended: nobody waits for an answer
        os._exit(0)
