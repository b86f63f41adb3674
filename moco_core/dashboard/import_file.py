"""The file that the import page reads: dropped there, or named by its path, with another one beside it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from moco_core.interop.formats import Content, checked, open_vectors, with_columns

ENDINGS = ["npy", "npz", "parquet", "csv", "tsv", "txt", "safetensors"]
WAYS = {"drop": "File dropped here", "path": "Path on this machine"}
FOLDER = "_import_folder"


@dataclass(frozen=True)
class Named:
    """A file of vectors, one with a row a vector beside it, and where in the first the vectors are."""

    path: Path
    beside: Path | None
    columns: tuple[str, ...]  # empty when that is to be found out


def named_file() -> Named | None:
    """Ask for the files; None until there is one of vectors."""
    way = st.segmented_control(
        "Vectors from",
        WAYS,
        format_func=WAYS.__getitem__,
        default="drop",
        required=True,
        key="way",
        bind="query-params",
    )
    left, right = st.columns(2)
    what, beside = "Vectors", "Labels, names or metadata, one row a vector (optional)"
    if way == "path":
        typed = (
            left.text_input(what, key="import_path", placeholder="/data/embeddings.npy"),
            right.text_input(beside, key="import_beside_path", placeholder="/data/labels.csv"),
        )
        first, second = (_place(text) if text.strip() else None for text in typed)
    else:
        uploads = (
            left.file_uploader(what, ENDINGS, key="import_file"),
            right.file_uploader(beside, ENDINGS, key="import_beside"),
        )
        first, second = _kept(uploads)
    if first is None:
        return None
    columns = left.text_input(
        "Array or columns that hold the vectors",
        key=f"import_columns-{first}",
        placeholder="found by itself",
        help="Needed only where the file leaves it open. Separate several by commas.",
    )
    return Named(first, second, tuple(filter(None, map(str.strip, columns.split(",")))))


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
    return with_columns(content, others[0]) if others else content


def _kept(uploads: Sequence[UploadedFile | None]) -> list[Path | None]:
    """Where the dropped files lie while this session looks at them; earlier ones are removed."""
    folder = st.session_state.setdefault(FOLDER, tempfile.TemporaryDirectory(prefix="moco-lens-"))
    root = Path(folder.name)
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
    return Path(text.strip().strip("'\"")).expanduser()
