"""Names and shapes of everything in a run directory."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA_VERSION = 1
RUN_FILE = "run.json"
STATUS_FILE = "status.json"
HISTORY_FILE = "history.jsonl"
EVAL_FILE = "eval_set.safetensors"
MANIFEST_FILE = "manifest.json"
METRICS_FILE = "metrics.json"
WEIGHTS_FILE = "weights.safetensors"
EMBEDDINGS_FILE = "embeddings.safetensors"
QUEUE_FILE = "queue.safetensors"
DRIFT_FILE = "drift.safetensors"
RESUME_DIR = "resume"
STATE_FILE = "state.safetensors"  # of a resume state
CACHE_DIR = "cache"
TENSORBOARD_DIR = "tensorboard"  # a copy, which nothing reads
NAMES = "names"  # optional array of the evaluation set: what its samples are called
STEP_PATTERN = re.compile(r"step-(\d{8,18})", re.ASCII)
FILE_PATTERN = re.compile(r"\w[\w.-]{0,99}", re.ASCII)  # what a manifest may list

MOST_PIDS = 2**31  # process numbers lie below it
STATES = ("queued", "running", "finished", "stopped", "failed")
HISTORY_KEYS = (
    "step",
    "loss",
    "positive_cosine",
    "negative_cosine",
    "contrast_accuracy",
    "lr",
    "momentum",
    "encoder_gap",
    "grad_norm",
    "pairs_per_s",
    "filled",
)


class RunError(ValueError):
    """Something in a run directory can't be used; the message says what and why in one sentence."""


def default_root() -> Path:
    """The runs root: the variable MOCO_RUNS, or `checkpoints/` beside the package."""
    return Path(os.environ.get("MOCO_RUNS") or Path(__file__).parents[2] / "checkpoints")


def step_name(step: int) -> str:
    """The folder name of a step, e.g. `step-00000400`."""
    return f"step-{step:08d}"


def now() -> str:
    """The present moment in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def seconds_since(moment: str) -> float:
    """Seconds since a moment that `now` gave; infinite for anything else."""
    try:
        then = datetime.fromisoformat(moment).astimezone(UTC)
    except (ValueError, OverflowError):  # no date, or one at the end of all days
        return float("inf")
    return (datetime.now(UTC) - then).total_seconds()


def readable(text: str) -> str:
    """`text` as UTF-8 can hold it: what is no character, as in a file name of another encoding, becomes a `?`."""
    return text.encode(errors="replace").decode()


def run_id(folder: Path) -> str:
    """What a run is called after its folder; bytes of the name that are no UTF-8 are written out, as in `run-\\xff`."""
    return os.fsencode(folder.name).decode(errors="backslashreplace")


def check_folder(folder: Path) -> None:
    """`RunError` for a folder whose name no page, link or exported file could hold."""
    if run_id(folder) != folder.name:
        raise RunError("the name of its folder is not UTF-8: rename the folder")


def packed_names(names: Sequence[str]) -> np.ndarray:
    """Names as an array can hold them: UTF-8 bytes, one name a line. Line breaks become spaces."""
    lines = "\n".join(name.replace("\n", " ") for name in names)
    return np.frombuffer(lines.encode(errors="replace"), np.uint8)


def unpacked_names(array: np.ndarray) -> tuple[str, ...]:
    """The names that `packed_names` packed; what is no UTF-8 is replaced."""
    return tuple(array.tobytes().decode(errors="replace").split("\n"))


@dataclass(frozen=True)
class RunStatus:
    """What status.json says: where a run stands and which process works on it."""

    state: str
    step: int = 0
    total_steps: int = 0
    heartbeat: str = ""
    stepped: str = ""  # when the last step was taken, or training began
    pid: int | None = None
    pid_started: float | None = None  # seconds since the machine started
    host: str = ""
    error: str = ""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunStatus:
        """Check and take the fields that are known; `RunError` when one has the wrong type."""
        known = {f.name: values[f.name] for f in dataclasses.fields(cls) if f.name in values}
        status = cls(**{"state": None, **known})
        if status.state not in STATES:
            raise RunError(f"{STATUS_FILE} has state {status.state!r}; known are {', '.join(STATES)}")
        counts = (status.step, status.total_steps)
        if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in counts):
            raise RunError(f"{STATUS_FILE} must count steps in whole numbers, got {counts}")
        texts = (status.heartbeat, status.stepped, status.host, status.error)
        if any(not isinstance(text, str) for text in texts):
            raise RunError(f"{STATUS_FILE} must give heartbeat, stepped, host and error as text, got {texts}")
        pid, started = status.pid, status.pid_started
        if pid is not None and (not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < MOST_PIDS):
            raise RunError(f"{STATUS_FILE} must give pid as a whole number from 1, got {pid!r}")
        if started is not None and not isinstance(started, int | float):
            raise RunError(f"{STATUS_FILE} must give pid_started in seconds, got {started!r}")
        return status

    @property
    def active(self) -> bool:
        """Whether the run is still to end: queued or running."""
        return self.state in ("queued", "running")

    def seconds_since_heartbeat(self) -> float:
        """Age of the last sign of life in seconds; infinite when there is none."""
        return seconds_since(self.heartbeat)


@dataclass(frozen=True)
class QueueSnapshot:
    """The filled slots of a key queue, oldest first (M of K)."""

    keys: np.ndarray  # M×D float32, unit length
    written_steps: np.ndarray  # M int64
    sample_ids: np.ndarray  # M int64
    labels: np.ndarray  # M int64, −1 where unknown
    size: int  # K

    @property
    def filled(self) -> int:
        """How many of the K slots hold a key."""
        return len(self.keys)

    def ages(self, step: int) -> np.ndarray:
        """Steps since each slot was written, M int64."""
        return step - self.written_steps
