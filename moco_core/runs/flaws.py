"""What is wrong with a run, told by a look so cheap that a table may take it every few seconds."""

from __future__ import annotations

from safetensors import safe_open

from moco_core.runs import schema
from moco_core.runs.files import NO_ARRAYS
from moco_core.runs.history import History
from moco_core.runs.reading import is_file
from moco_core.runs.store import Run


def flaws(run: Run, log: History) -> dict[str, str]:
    """File or folder → what is wrong with it; `log` is the run's history. No checksum is computed: `verify` does that.

    A run that can't be read at all has its `problem` instead.
    """
    if run.problem is not None:
        return {}
    found = {schema.HISTORY_FILE: _history(run, log), schema.EVAL_FILE: _eval_set(run)}
    return run.damaged_steps | {name: flaw for name, flaw in found.items() if flaw}


def _history(run: Run, log: History) -> str:
    steps = log.read()["step"]
    if log.unread:
        lines = "1 line" if log.unread == 1 else f"{log.unread:,} lines"
        return f"{lines} can't be read and {'is' if log.unread == 1 else 'are'} left out"
    # A run that goes on after a crash may have snapshots of later steps than it is at.
    if run.config.imported or run.status.active or not run.steps:
        return ""
    reached = min(run.steps[-1].step, run.status.step)
    due = reached if reached == run.config.steps else reached - reached % run.config.log_interval
    due = due or min(reached, 1)  # the first step is always logged
    last = int(steps.max(initial=0))
    if last >= due:
        return ""
    ends = f"it ends at step {last:,}" if last else "it holds no step"
    return f"{ends}, and the run has a snapshot of step {run.steps[-1].step:,}"


def _eval_set(run: Run) -> str:
    """A file of arrays begins with what it holds and how long that is: opening it compares that with its size."""
    path = run.path / schema.EVAL_FILE
    if not (run.steps or "eval_set_sha256" in run.info):
        return ""  # the run ended before it was written
    try:
        if not is_file(path):
            return "it is no file"
        with safe_open(path, "numpy"):
            return ""
    except OSError as error:
        return f"it can't be opened: {error.strerror or error}"
    except NO_ARRAYS as error:
        return f"it can't be read: {error}"
