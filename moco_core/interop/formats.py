"""Files of vectors, opened by their ending and by what they hold: one N×D array, and columns of N beside it."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from moco_core.interop.array_files import (
    loaded,
    members,
    plain,
    read_npy,
    read_npz,
    read_safetensors,
    tensors,
)
from moco_core.interop.columns import one_hot
from moco_core.interop.content import Content
from moco_core.interop.problem import VectorsError
from moco_core.interop.table_files import frame_columns, parquet_columns, read_parquet, read_text
from moco_core.interop.text_files import has_titles, text_lines, text_table

Array = np.ndarray

MAGIC: dict[str, bytes | tuple[bytes, ...]] = {
    ".npy": b"\x93NUMPY",
    ".npz": (b"PK\x03\x04", b"PK\x05\x06"),
    ".parquet": b"PAR1",
}
TEXT = (".csv", ".tsv", ".txt")
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib")


def open_vectors(path: Path, columns: Sequence[str] = (), kept: Iterable[str] = ()) -> Content:
    """Read a file of vectors: .npy, .npz, .safetensors, .parquet, .csv, .tsv or .txt, by its ending.

    `columns` names the array, or the columns of a table, that hold the vectors; `kept` those that don't, where they
    are not known by their names. `VectorsError` for a file that can't be read, or that leaves open which are meant.
    """
    kind = checked(path)
    reader: Callable[[Path, Sequence[str], set[str]], Content] = {
        ".npy": read_npy,
        ".npz": read_npz,
        ".safetensors": read_safetensors,
        ".parquet": read_parquet,
    }.get(kind, read_text)
    content = reader(path, columns, set(kept))
    metadata = _projector_metadata(path) if kind in TEXT and not has_titles(path) else None
    if metadata is None:
        return content
    return replace(with_columns(content, metadata), format="TensorBoard projector TSV")


def with_columns(content: Content, path: Path) -> Content:
    """`content` with the columns of another file beside its own; `VectorsError` unless it has a row a vector."""
    found = open_columns(path, len(content.values))
    return replace(content, columns={**content.columns, **found}, beside=path.name, added=tuple(found))


def open_columns(path: Path, rows: int) -> dict[str, Array]:
    """Read a file of labels or names, one row a vector: .npy, .npz, .safetensors, .parquet, .csv, .tsv, or a line each
    in .txt.

    Text may have a line of titles or not: the number of lines says so. `VectorsError` unless it has `rows` rows.
    """
    kind = checked(path)
    if kind == ".npy":
        found = {"labels": plain(loaded(path))}
    elif kind == ".npz":
        found = {name: plain(column) for name, column in members(path).items()}
    elif kind == ".safetensors":
        found = {name: plain(column) for name, column in tensors(path).items()}
    elif kind == ".parquet":
        found = parquet_columns(path)
    elif kind == ".txt":
        found = {"0": text_lines(path, rows)}
    else:
        frame = text_table(path, titles=True)
        found = frame_columns(frame if len(frame) != rows - 1 else text_table(path, titles=False))
    lengths = {len(column) if column.ndim else 0 for column in found.values()}
    if lengths != {rows}:
        seen = " and ".join(f"{n:,}" for n in sorted(lengths)) or "no"
        raise VectorsError(f"{path.name} has {seen} rows where there are {rows:,} vectors")
    if any(column.ndim != 1 for column in found.values()):
        raise VectorsError(
            f"{path.name} must hold one label a row, or a row of zeros with a 1 for its class; it holds an array of "
            "more dimensions"
        )
    return _told_by_title(found)


def _told_by_title(columns: dict[str, Array]) -> dict[str, Array]:
    """A table that has a column a class, with a 1 in the one that a row belongs to, as one column of class names."""
    if not all(column.dtype.kind in "iufb" for column in columns.values()):
        return columns
    table = np.stack(list(columns.values()), 1)
    return {"labels": np.array(list(columns), object)[table.argmax(1)]} if one_hot(table) else columns


def checked(path: Path) -> str:
    """The ending of a file that can be read as what it says it is; `VectorsError` otherwise."""
    kind = path.suffix.lower()
    if not path.is_file():
        raise VectorsError(f"there is no file {path}")
    if kind in PICKLES:
        raise VectorsError(
            f"{path.name} is a pickle, as {kind} files are, which can run any code when it is read and is never "
            "opened; save the numbers alone, with numpy.save or safetensors"
        )
    if kind not in (*MAGIC, ".safetensors", *TEXT):
        raise VectorsError(
            f"{path.name} can't be read: accepted are .npy, .npz, .parquet, .csv, .tsv and .safetensors"
        )
    if not path.stat().st_size:
        raise VectorsError(f"{path.name} is empty")
    with path.open("rb") as file:
        start = file.read(4096)
    if kind in TEXT and start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise VectorsError(f"{path.name} is text in UTF-16; save it as UTF-8")
    magic = MAGIC.get(kind, b"")
    if not start.startswith(magic) or (kind in TEXT and b"\0" in start):
        raise VectorsError(f"{path.name} is no {kind[1:]} file, whatever its name says")
    return kind


def digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _projector_metadata(path: Path) -> Path | None:
    """The metadata.tsv that TensorBoard's projector wants beside vectors.tsv or tensors.tsv."""
    for word in ("vectors", "tensors", "tensor"):
        if word in path.stem:
            beside = path.with_name(path.name.replace(word, "metadata"))
            return beside if beside.is_file() else None
    return None
