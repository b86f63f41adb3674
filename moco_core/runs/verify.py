"""Checks every checksum of a run."""

from __future__ import annotations

from collections.abc import Iterator

from moco_core.runs.files import sha256
from moco_core.runs.flaws import flaws
from moco_core.runs.history import History
from moco_core.runs.reading import read
from moco_core.runs.schema import EVAL_FILE, RunError
from moco_core.runs.store import Run


def damage(run: Run) -> Iterator[str]:
    """One sentence for each thing in the run that is damaged; nothing when all is well."""
    if run.problem is not None:
        yield f"{run.id}: {run.problem}"
        return
    for name, reason in flaws(run, History(run.path)).items():
        if name != EVAL_FILE:  # which is read whole below
            yield f"{run.id}/{name}: {reason}"
    for checkpoint in run.steps:
        for name, entry in checkpoint.manifest["files"].items():
            try:
                content = read(checkpoint.path / name)
            except RunError as error:
                yield f"{run.id}/{checkpoint.path.name}: {error}"
                continue
            if sha256(content) != entry["sha256"]:
                yield f"{run.id}/{checkpoint.path.name}/{name}: checksum differs from the manifest"
    if run.steps or "eval_set_sha256" in run.info:  # else the run ended before they were written
        try:
            _ = run.eval_set
        except RunError as error:
            yield f"{run.id}: {error}"
