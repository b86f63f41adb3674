"""The file that the import page reads: dropped there, or named by its path, with another one beside it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from moco_core.dashboard.widgets import one_of
from moco_core.interop.content import Content
from moco_core.interop.formats import checked, open_vectors, with_columns

ENDINGS = ["npy", "npz", "parquet", "csv", "tsv", "txt", "safetensors"]
WAYS = {"drop": "File dropped here", "path": "Path on this machine"}
FILES = {
    "vectors": "Vectors",
    "labels": "Labels, names, metadata (optional)",
    "second": "Second view, same rows (optional)",
}
FOLDER = "_import_folder"


@dataclass(frozen=True)
class Named:
    """A file of vectors, others with a row a vector, and where in the first the vectors are."""

    path: Path
    beside: Path | None  # labels, names, metadata
    second: Path | None  # the second view
    columns: tuple[str, ...]  # empty when that is to be found out


def named_file() -> Named | None:
    """Ask for the files; None until there is one of vectors."""
    way = one_of("Vectors from", WAYS, "way")
    columns = st.columns(len(FILES))
    if way == "path":
        typed = [
            column.text_input(what, key=f"import_path_{name}", placeholder=f"/data/{name}.npy")
            for column, (name, what) in zip(columns, FILES.items(), strict=True)
        ]
        paths = [_place(text) if text.strip() else None for text in typed]
    else:
        paths = _kept(
            [
                column.file_uploader(what, ENDINGS, key=f"import_file_{name}")
                for column, (name, what) in zip(columns, FILES.items(), strict=True)
            ]
        )
    first, beside, second = paths
    if first is None:
        return None
    named = columns[0].text_input(
        "Array or columns that hold the vectors",
        key=f"import_columns-{first}",
        placeholder="found by itself",
        help="Needed only where the file leaves it open. Separate several by commas.",
    )
    return Named(first, beside, second, tuple(filter(None, map(str.strip, named.split(",")))))


def opened(named: Named, kept: Sequence[str]) -> Content:
    """What the files hold, `kept` columns not taken for vectors; `VectorsError` when they can't be read."""
    files = [named.path, *([named.beside] if named.beside else [])]
    for path in files:
        checked(path)
    stamps = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
    return _opened(stamps, named.columns, tuple(sorted(kept)))


@st.cache_resource(max_entries=2, show_spinner="Reading the file …")
def _opened(
    stamps: tuple[tuple[str, int, int], ...], columns: tuple[str, ...], kept: tuple[str, ...]
) -> Content:
    path, *others = (Path(stamp[0]) for stamp in stamps)
    content = open_vectors(path, columns, kept)
    if isinstance(content.values, np.memmap):  # a file that is written anew would take the app down with it
        content = replace(content, values=np.array(content.values))
    return with_columns(content, others[0]) if others else content


def _kept(uploads: Sequence[UploadedFile | None]) -> list[Path | None]:
    """Where the dropped files lie while this session looks at them; earlier ones are removed."""
    if FOLDER not in st.session_state:
        st.session_state[FOLDER] = tempfile.TemporaryDirectory(prefix="moco-lens-")
    root = Path(st.session_state[FOLDER].name)
    paths: list[Path | None] = []
    for upload in uploads:
        if upload is None:
            paths.append(None)
            continue
        path = root / upload.file_id / (Path(upload.name).name or "file")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(upload.getbuffer())
        paths.append(path)
    for old in root.iterdir():
        if old not in [path.parent for path in paths if path is not None]:
            shutil.rmtree(old, ignore_errors=True)
    return paths


def _place(text: str) -> Path:
    return Path(os.path.expanduser(text.strip().strip("'\"")))
