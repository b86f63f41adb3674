"""Starts and stops training: processes of this machine and SLURM jobs. Knows neither torch nor Streamlit."""

from moco_core.jobs import slurm
from moco_core.jobs.anywhere import phase, resume, slurm_job, stop, tickets, tidy
from moco_core.jobs.desk import Desk, JobError, Ticket
from moco_core.jobs.local import queue, submit, submit_sweep, sweep_tag
from moco_core.jobs.processes import is_alive, silence, standstill, this_host
from moco_core.jobs.removal import delete
from moco_core.jobs.slurm_desk import SlurmDesk, SlurmJob

__all__ = [
    "Desk",
    "JobError",
    "SlurmDesk",
    "SlurmJob",
    "Ticket",
    "delete",
    "is_alive",
    "phase",
    "queue",
    "resume",
    "silence",
    "slurm",
    "slurm_job",
    "standstill",
    "stop",
    "submit",
    "submit_sweep",
    "sweep_tag",
    "this_host",
    "tickets",
    "tidy",
]
