"""Projections made ahead of viewing: by the trainer at its end, and from the command line."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from moco_core.projections.compute import ProjectionSettings
from moco_core.projections.store import stored_projection
from moco_core.runs import Checkpoint, Run, RunError
from moco_core.runs.files import reason


def precompute(run: Run, aligned: bool = False) -> None:
    """Store UMAP and PCA of every step, or with `aligned` the UMAP of all steps together, with a progress bar.

    These are the pictures that the projection page opens with. RunError when the run can't be read or has
    no steps, and at the end when pictures could not be made; OSError at once when one can't be stored.
    """
    if run.problem is not None:
        raise RunError(f"run {run.id}: {run.problem}")
    if not run.steps:
        raise RunError(f"run {run.id} has no step to project")
    if aligned:
        _with_bar(run, [(run.steps[-1], ProjectionSettings(aligned="steps"))])
    else:
        settings = (ProjectionSettings(), ProjectionSettings(method="pca"))
        _with_bar(run, [(step, s) for step in run.steps for s in settings])


def precompute_newest(run: Run) -> None:
    """Store the UMAP of the newest step; says so on stderr when that can't be done, and never raises for it."""
    if not run.steps:
        return
    try:
        with _ending_at_once():
            stored_projection(run, run.steps[-1], ProjectionSettings())
    except (ValueError, OSError) as error:
        print(f"The newest step was not projected: {reason(error)}", file=sys.stderr)


def _with_bar(run: Run, wanted: list[tuple[Checkpoint, ProjectionSettings]]) -> None:
    failed: list[str] = []
    with tqdm(total=len(wanted), desc=run.id, unit="picture", dynamic_ncols=True) as bar, _ending_at_once():
        for step, settings in wanted:
            bar.set_postfix_str(f"step {step.step}, {settings.method}")

            def progress(stage: str, share: float, name: str = f"step {step.step}") -> None:
                bar.set_postfix_str(f"{name}: {stage.lower()} {share:.0%}")

            try:
                stored_projection(run, step, settings, progress)
            except ValueError as error:  # a step that can't be read, or has no directions; others may have
                failed.append(f"step {step.step}, {settings.method}: {error}")
            bar.update()
    if failed:
        raise RunError(f"{len(failed)} of {len(wanted)} pictures can't be made; {failed[0]}")


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Leave SIGINT and SIGTERM to the system: Python's handlers wait for compiled code, which can take minutes."""
    handled = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
