"""What the import page shows of a file, what it asks about it, and how it makes a run of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from moco_core.dashboard.import_file import Named
from moco_core.dashboard.text import plain
from moco_core.interop.columns import IDS, LABELS, NAMES, classes, named, repeats
from moco_core.interop.content import Content
from moco_core.interop.imported import write_imported
from moco_core.interop.vectors import NONE, Choices, assembled

SHOWN_ROWS, SHOWN_DIMS = 5, 6
MOST_OFFERED = 200  # numeric columns among which labels may be looked for
NOT_THERE = "–"
COLUMNS = ("Labels", "Names", "Images")


def reserved(files: Named) -> list[str]:
    """Columns of a file that were chosen for something else than vectors."""
    chosen = (st.session_state.get(_key(what, files.path, files.beside)) for what in COLUMNS)
    return [name for name in chosen if name and name != NOT_THERE]


def facts(content: Content) -> str:
    """What was found, in a sentence (Markdown)."""
    rows, dim = content.values.shape
    return (
        f"**{rows:,} vectors of {dim:,} dimensions** from {plain(content.taken)} of {plain(content.path.name)} "
        f"({content.format}, {content.values.dtype})."
    )


def first_rows(content: Content) -> pd.DataFrame:
    """The first rows: what is beside the vectors, then their first numbers."""
    beside = {name: column[:SHOWN_ROWS] for name, column in content.columns.items()}
    shown = min(SHOWN_DIMS, content.values.shape[1])
    values = np.asarray(content.values[:SHOWN_ROWS, :shown], np.float64)
    table = pd.DataFrame({name: [_cell(entry) for entry in column] for name, column in beside.items()})
    for i in range(shown):
        table[f"[{i}]"] = values[:, i]
    if shown < content.values.shape[1]:
        table["…"] = "…"
    return table


def choices(content: Content, named_file: Named) -> Choices:
    """Ask which columns hold labels, names and images; those known by their names are chosen already."""
    beside = list(content.columns)
    numbers = [name for name in content.used if len(content.used) <= MOST_OFFERED]
    left, middle, right = st.columns(3)
    known = (_label(content), _name(content), None)
    offered = ([*beside, *numbers], beside, beside)
    labels, names, images = (
        _column(place, _key(what, named_file.path, named_file.beside), what, options, preset)
        for place, what, options, preset in zip((left, middle, right), COLUMNS, offered, known, strict=True)
    )
    with right:
        folder = st.text_input(
            "or a folder of images",
            key=_key("folder", content.path),
            placeholder="/data/images",
            help="Matched by name where the samples have names, else by order.",
        )
    drop = left.checkbox(
        "Leave out rows that are zero or not finite",
        key=_key("drop", content.path),
        help="Otherwise a file with such rows is refused, and they are counted.",
    )
    return Choices(
        named_file.columns,
        labels=labels or NONE,
        names=names or NONE,
        images=images or folder.strip(),
        second=str(named_file.second or ""),
        drop_bad=drop,
    )


def label_line(content: Content, chosen: Choices) -> str:
    """What the chosen labels are, in a sentence (Markdown). `VectorsError` for a column that holds none."""
    if chosen.labels == NONE:
        return "No labels: points have one colour, and what needs classes is left out."
    found = classes(content.columns[chosen.labels], f"column {chosen.labels!r}")
    unknown = int((found.labels < 0).sum())
    count = len(np.unique(found.labels[found.labels >= 0]))
    return f"Labels: {count:,} classes" + (f", {unknown:,} rows without" if unknown else "") + "."


def imported(root: Path, content: Content, chosen: Choices, name: str) -> str:
    """Make the run; returns its id. `VectorsError` or OSError when it can't be made, and nothing is left behind."""
    found = assembled(content, chosen)
    return write_imported(root, found.vectors, name=name, source=found.source).name


def _column(place: DeltaGenerator, key: str, what: str, offered: list[str], known: str | None) -> str:
    """A choice of one column or none; empty for none."""
    options = [NOT_THERE, *offered]
    if st.session_state.get(key) not in options:
        st.session_state[key] = known or NOT_THERE
    found = place.selectbox(what, options, key=key)
    return "" if found == NOT_THERE else str(found)


def _key(what: str, *files: Path | None) -> str:
    """The widget that asks for something of files: of others, or with one more beside them, it is asked anew."""
    return f"import-{what}-{'-'.join(map(str, files))}"


def _label(content: Content) -> str | None:
    """The column that holds the labels by its name, or the only one if its entries repeat."""
    known = named(content.columns, LABELS)
    if known is None and len(content.columns) == 1:
        ((name, column),) = content.columns.items()
        known = name if repeats(column) else None
    return known


def _name(content: Content) -> str | None:
    """The column that holds the names: called so, ids that are text, or the only one if its entries don't repeat."""
    ids = named(content.columns, IDS)
    if ids is not None and content.columns[ids].dtype.kind != "O":
        ids = None
    only = next(iter(content.columns)) if len(content.columns) == 1 else None
    if only is not None and (only == _label(content) or content.columns[only].dtype.kind != "O"):
        only = None
    return named(content.columns, NAMES) or ids or only


def _cell(entry: object) -> str:
    return "an image" if isinstance(entry, dict | bytes) else "" if entry is None else str(entry)
