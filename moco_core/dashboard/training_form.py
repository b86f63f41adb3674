"""The fields of a new run, made from the annotations of `TrainConfig`: its defaults, ranges and help."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import streamlit as st

from moco_core.config import (
    FOLDER_PREFIX,
    IGNORED,
    Device,
    OneOf,
    Range,
    TrainConfig,
    accepted,
    default,
    help_text,
)

MAIN = (
    "dataset",
    "method",
    "encoder",
    "momentum",
    "queue_size",
    "temperature",
    "batch_size",
    "steps",
    "lr",
    "seed",
    "device",
    "name",
)
MORE = tuple(f.name for f in dataclasses.fields(TrainConfig) if f.name not in MAIN)
PAIRS = 2  # main fields a row, but for wide ones
WIDE = ("dataset", "method", "encoder", "name")
LABELS = {
    "dataset": "Data set",
    "queue_size": "Queue size K",
    "batch_size": "Batch size B",
    "lr": "Learning rate",
    "dim": "Dimension D",
    "knn_k": "kNN k",
    "knn_temperature": "kNN temperature",
    "lr_schedule": "Learning rate schedule",
    "scale_lr": "Scale learning rate",
    "compile": "Compile encoders",
    "tensorboard": "TensorBoard files",
}
STEPS = {"momentum": 0.001, "queue_size": 256, "batch_size": 32, "steps": 100}
OWN_FOLDER = "a folder of mine"


def training_form() -> dict[str, Any]:
    """Draw the fields; returns the values entered, by field name, not checked yet."""
    values: dict[str, Any] = {}
    columns: list[Any] = []
    for name in MAIN:
        if name in WIDE:
            values[name] = _field(name, values)
            continue
        columns = columns or list(st.columns(PAIRS, vertical_alignment="bottom"))
        with columns.pop(0):
            values[name] = _field(name, values)
    with st.expander("More settings"):
        for name in MORE:
            values[name] = _field(name, values)
    return values


def _field(name: str, values: dict[str, Any]) -> Any:
    limits, initial = accepted(name), default(name)
    label = LABELS.get(name, name.replace("_", " ").capitalize())
    common: dict[str, Any] = {
        "key": f"train.{name}",
        "help": help_text(name),
        "persist_state": "session",  # the form may be closed and opened again
    }
    if name == "dataset":
        return _dataset(label, common)
    if isinstance(limits, OneOf):
        return st.selectbox(label, limits.names, index=limits.names.index(initial), **common)
    if isinstance(limits, Device):
        return st.selectbox(label, ("auto", "cpu", "cuda", "mps"), accept_new_options=True, **common)
    if isinstance(initial, bool):
        return st.checkbox(label, value=initial, **common)
    if isinstance(initial, str):
        return st.text_input(label, value=initial, **common)
    assert isinstance(limits, Range)
    return _number(label, name, disabled=name in IGNORED.get(values.get("method", ""), ()), **common)


def _number(label: str, name: str, **common: Any) -> float | None:
    """Any number that is typed, for `TrainConfig` to judge; None for what is none.

    The widget has no limits and takes fractions everywhere: what it refuses, the browser keeps back, and a run would
    start with the value before.
    """
    initial = default(name)
    # As the widget's own default it would replace None.
    st.session_state.setdefault(common["key"], float(initial))
    step = float(STEPS.get(name) or _step(initial))
    entered = st.number_input(label, value=None, step=step, format="%g", **common)
    if isinstance(initial, int) and entered is not None and entered.is_integer():
        return int(entered)
    return entered


def _dataset(label: str, common: dict[str, Any]) -> str:
    limits = accepted("dataset")
    assert isinstance(limits, OneOf)
    chosen = st.selectbox(label, (*limits.names, OWN_FOLDER), **common)
    if chosen != OWN_FOLDER:
        return chosen
    path = st.text_input(
        "Folder",
        key="train.folder",
        persist_state="session",
        placeholder="/data/images",
        help="One sub-folder a class, or images side by side without classes. On the machine of this app.",
    ).strip()
    # The trainer is another process with a working directory of its own: give it the whole path.
    return FOLDER_PREFIX + (os.path.abspath(os.path.expanduser(path)) if path else "")


def _step(initial: float) -> float:
    """One unit of the leading digit."""
    return 10.0 ** math.floor(math.log10(initial)) if initial > 0 else 1
