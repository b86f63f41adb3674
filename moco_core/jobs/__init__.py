"""Starts and stops training processes. Knows neither torch nor Streamlit."""

from moco_core.jobs.desk import Desk, Ticket
from moco_core.jobs.local import (
    JobError,
    phase,
    resume,
    stop,
    submit,
    submit_sweep,
    sweep_tag,
    tidy,
)
from moco_core.jobs.processes import is_alive, this_host
from moco_core.jobs.removal import delete

__all__ = [
    "Desk",
    "JobError",
    "Ticket",
    "delete",
    "is_alive",
    "phase",
    "resume",
    "stop",
    "submit",
    "submit_sweep",
    "sweep_tag",
    "this_host",
    "tidy",
]
