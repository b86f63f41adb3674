"""Where a new run is to train: on this machine, or through SLURM where that is within reach."""

from __future__ import annotations

import functools

import streamlit as st

from moco_core import jobs
from moco_core.config import ConfigError
from moco_core.dashboard.text import plain
from moco_core.jobs.local import Queue

HERE, SLURM = "this machine", "SLURM"


def training_place() -> Queue | None:
    """Draw the choice where there is one; returns what queues runs, or None, with a sentence, when it can't be used."""
    if not jobs.slurm.available():
        return jobs.queue
    place = st.segmented_control(
        "Train on", (HERE, SLURM), default=HERE, required=True, key="train.place", persist_state="session"
    )
    if place != SLURM:
        return jobs.queue
    text = st.text_input(
        "SLURM options",
        key="train.slurm",
        persist_state="session",
        placeholder="partition=gpu gpus_per_node=1 timeout_min=1440",
        help=f"NAME=VALUE, separated by spaces. Known are {', '.join(jobs.slurm.NAMES)}.",
    )
    try:
        options = jobs.slurm.slurm_options(jobs.slurm.slurm_words(text))
    except ConfigError as error:
        st.error(plain(str(error)))
        return None
    return functools.partial(jobs.slurm.queue, options=options)
