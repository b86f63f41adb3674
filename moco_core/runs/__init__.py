"""The run directory: what training writes and every page reads."""

from moco_core.runs.schema import QueueSnapshot, RunError, RunStatus
from moco_core.runs.store import Checkpoint, EvalSet, Run, RunStore
from moco_core.runs.writer import RunWriter

__all__ = ["Checkpoint", "EvalSet", "QueueSnapshot", "Run", "RunError", "RunStatus", "RunStore", "RunWriter"]
