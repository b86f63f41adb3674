"""Files of vectors, opened by what they hold: one N×D array, and columns of N beside it.

Nothing is unpickled: a pickle runs whatever code is in it when it is read, so a file from someone else could do
anything. The formats here are numbers and text alone.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from moco_core.interop.columns import IDS, LABELS, named
from moco_core.interop.problem import VectorsError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Array = np.ndarray

VECTORS = ("embeddings", "embedding", "vectors", "vector", "x", "query", "features", "emb", "z")
MAGIC = {".npy": b"\x93NUMPY", ".npz": b"PK", ".parquet": b"PAR1"}
SPACES = r"\s+"
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib")


@dataclass(frozen=True)
class Content:
    """What a file holds: vectors, and columns of as many entries beside them."""

    path: Path
    format: str
    values: Array  # N×D, any kind of number
    taken: str  # where in the file they were
    columns: Mapping[str, Array]  # N each: numbers, or objects (text, None where missing, images)
    used: tuple[str, ...] = ()  # columns of a table that the vectors were made of
    beside: str = ""  # the file that further columns came from
    added: tuple[str, ...] = ()  # these columns


def open_vectors(path: Path, columns: Sequence[str] = (), kept: Iterable[str] = ()) -> Content:
    """Read a file of vectors: .npy, .npz, .safetensors, .parquet, .csv, .tsv or .txt, by its ending.

    `columns` names the array, or the columns of a table, that hold the vectors; `kept` those that don't, where they
    are not known by their names. `VectorsError` for a file that can't be read, or that leaves open which are meant.
    """
    kind = checked(path)
    reader: Callable[[Path, Sequence[str], set[str]], Content] = {
        ".npy": _npy,
        ".npz": _npz,
        ".safetensors": _safetensors,
        ".parquet": _parquet,
    }.get(kind, _text)
    return reader(path, columns, set(kept))


def with_columns(content: Content, path: Path) -> Content:
    """`content` with the columns of another file beside its own; `VectorsError` unless it has a row a vector."""
    found = open_columns(path, len(content.values))
    return replace(content, columns={**content.columns, **found}, beside=path.name, added=tuple(found))


def open_columns(path: Path, rows: int) -> dict[str, Array]:
    """Read a file of labels or names, one row a vector: .npy, .npz, .parquet, .csv, .tsv, or a line each in .txt.

    Text may have a line of titles or not: the number of lines says so. `VectorsError` unless it has `rows` rows.
    """
    kind = checked(path)
    if kind == ".npy":
        found = {"labels": _loaded(path)}
    elif kind == ".npz":
        with _loaded(path) as arrays:
            found = {name: _member(path, arrays, name) for name in arrays.files}
    elif kind == ".safetensors":
        found = _tensors(path)
    elif kind == ".parquet":
        found = _frame_columns(_read_parquet(path).to_pandas())
    elif kind == ".txt":
        found = {"0": _lines(path, rows)}
    else:
        frame = _read_text(path, titles=True)
        found = _frame_columns(frame if len(frame) != rows - 1 else _read_text(path, titles=False))
    lengths = {len(column) if column.ndim else 0 for column in found.values()}
    if lengths != {rows}:
        seen = " and ".join(f"{n:,}" for n in sorted(lengths)) or "no"
        raise VectorsError(f"{path.name} has {seen} rows where there are {rows:,} vectors")
    if any(column.ndim != 1 for column in found.values()):
        raise VectorsError(f"{path.name} must hold one label a row; it holds an array of more dimensions")
    return found


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
    if kind not in (*MAGIC, ".safetensors", ".csv", ".tsv", ".txt"):
        raise VectorsError(
            f"{path.name} can't be read: accepted are .npy, .npz, .parquet, .csv, .tsv and .safetensors"
        )
    if not path.stat().st_size:
        raise VectorsError(f"{path.name} is empty")
    with path.open("rb") as file:
        start = file.read(4096)
    magic = MAGIC.get(kind, b"")
    if not start.startswith(magic) or (kind in (".csv", ".tsv", ".txt") and b"\0" in start):
        raise VectorsError(f"{path.name} is no {kind[1:]} file, whatever its name says")
    return kind


def digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _npy(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    return Content(path, "npy", _rows(path, "the array", _loaded(path, mapped=True)), "the array", {})


def _npz(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    with _loaded(path) as arrays:
        found = {name: _member(path, arrays, name) for name in arrays.files}
    return _named_arrays(path, "npz", found, columns, kept)


def _safetensors(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    return _named_arrays(path, "safetensors", _tensors(path), columns, kept)


def _named_arrays(
    path: Path, kind: str, found: dict[str, Array], columns: Sequence[str], kept: set[str]
) -> Content:
    """One array holds the vectors: the one asked for, one known by its name, or the only one that can."""
    if columns:
        if len(columns) > 1 or columns[0] not in found:
            raise VectorsError(f"{path.name} has no array {' '.join(columns)!r}; it holds {_listed(found)}")
        name = columns[0]
    else:
        flat = [n for n, array in found.items() if array.ndim == 2 and n not in kept]
        known = named(flat, VECTORS)
        if known is None and len(flat) != 1:
            raise VectorsError(
                f"{path.name} leaves open which array holds the vectors; it holds {_listed(found)}. Name it with "
                "--columns, or call it embeddings"
            )
        name = flat[0] if known is None else known
    values = _rows(path, f"array {name!r}", found[name])
    beside = {n: _plain(a) for n, a in found.items() if n != name and a.shape == (len(values),)}
    return Content(path, kind, values, f"array {name!r}", beside)


def _parquet(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    import pyarrow.types as types

    table = _read_parquet(path)
    lists = [
        field.name
        for field in table.schema
        if (
            types.is_list(field.type)
            or types.is_large_list(field.type)
            or types.is_fixed_size_list(field.type)
        )
        and (types.is_floating(field.type.value_type) or types.is_integer(field.type.value_type))
    ]
    _check_known(path, columns, table.column_names)
    chosen = _list_column(path, lists, columns, kept)
    if chosen is not None:
        values = _from_lists(path, chosen, table.column(chosen))
        beside = _frame_columns(table.drop_columns(lists).to_pandas())
        return Content(path, "Parquet", values, f"column {chosen!r} of lists", beside, (chosen,))
    return _numeric(path, "Parquet", table.drop_columns(lists).to_pandas(), columns, kept)


def _text(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    titles = _has_titles(path)
    frame = _read_text(path, titles=titles)
    frame.columns = [str(name) for name in frame.columns]
    _check_known(path, columns, list(frame.columns))
    lists = [str(n) for n in frame.columns if _looks_like_lists(frame[n])]
    chosen = _list_column(path, lists, columns, kept)
    if chosen is not None:
        values = _parsed_lists(path, chosen, frame[chosen])
        beside = _frame_columns(frame.drop(columns=lists))
        return Content(path, "text", values, f"column {chosen!r} of lists", beside, (chosen,))
    content = _numeric(path, "text", frame, columns, kept)
    metadata = _projector_metadata(path)
    if titles or metadata is None:
        return content
    return replace(with_columns(content, metadata), format="TensorBoard projector TSV")


def _numeric(path: Path, kind: str, frame: pd.DataFrame, columns: Sequence[str], kept: set[str]) -> Content:
    """The vectors from a table's numeric columns: those asked for, or all but labels and ids."""
    names = [str(name) for name in frame.columns]
    numbers = [name for name in names if frame[name].dtype.kind in "iufb"]
    if columns:
        texts = [name for name in columns if name not in numbers]
        if texts:
            raise VectorsError(f"column {texts[0]!r} of {path.name} holds text; vectors are made of numbers")
        chosen = list(columns)
    else:
        axes = {"x", "y"} <= {n.lower() for n in numbers}  # then y is a coordinate, and no label
        spoken_for = kept | {n for n in numbers if n.lower() in (*LABELS, *IDS) and not (axes and n in "yY")}
        chosen = [name for name in numbers if name not in spoken_for]
        for name in names:
            if name not in numbers and name not in kept and _stem(name) in map(_stem, chosen):
                _check_text(path, name, frame[name])
    if not chosen:
        raise VectorsError(
            f"{path.name} has no numeric columns for the vectors; its columns are {_few(names)}. Accepted are "
            "columns of numbers, or one column of lists"
        )
    values = np.empty((len(frame), len(chosen)), np.float32)
    with np.errstate(over="ignore"):  # what float32 can't hold becomes infinite, and is refused later
        for i, name in enumerate(chosen):
            values[:, i] = frame[name].to_numpy()
    beside = _frame_columns(frame.drop(columns=chosen))
    taken = f"{len(chosen):,} columns, {_few(chosen)}" if len(chosen) > 1 else f"column {chosen[0]!r}"
    return Content(path, kind, _rows(path, taken, values), taken, beside, tuple(chosen))


def _stem(name: str) -> str:
    """A column's name without the number at its end: what the columns of one vector share."""
    return name.rstrip("0123456789")


def _check_text(path: Path, name: str, column: pd.Series) -> None:
    """Refuse a column that holds numbers but for a few cells: it would be missing among the vectors' columns."""
    import pandas as pd

    bad = (pd.to_numeric(column, errors="coerce").isna() & column.notna()).to_numpy()
    if 0 < bad.sum() <= len(bad) // 10:
        row = int(bad.argmax())
        raise VectorsError(
            f"column {name!r} of {path.name} holds numbers, but text in {int(bad.sum()):,} rows, first in row {row} "
            f"({str(column.iloc[row])[:20]!r}): mend it, or name the columns to take with --columns"
        )


def _list_column(path: Path, lists: list[str], columns: Sequence[str], kept: set[str]) -> str | None:
    """The column of lists that holds the vectors, or None where numeric columns do."""
    if columns:
        return columns[0] if len(columns) == 1 and columns[0] in lists else None
    free = [name for name in lists if name not in kept]
    known = named(free, VECTORS)
    if known is None and len(free) > 1:
        raise VectorsError(
            f"{path.name} has several columns of lists, {_few(free)}: name the one with the vectors with --columns"
        )
    return known if known is not None else (free[0] if free else None)


def _from_lists(path: Path, name: str, column: pa.ChunkedArray) -> Array:
    """A column of lists of numbers as N×D; a missing list becomes a row of NaN, to be refused with its number."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column).to_numpy().astype(np.float64)
    width = _one_width(path, name, lengths)
    there = np.isfinite(lengths)
    flat = pc.list_flatten(column).to_numpy()
    if there.all():
        return flat.reshape(len(lengths), width)
    values = np.full((len(lengths), width), np.nan, np.float32)
    values[there] = flat.reshape(-1, width)
    return values


def _parsed_lists(path: Path, name: str, column: pd.Series) -> Array:
    """A text column of lists, as JSON or as numpy prints them, as N×D."""
    rows: list[Array | None] = []
    for i, text in enumerate(column):
        if not isinstance(text, str):
            rows.append(None)
            continue
        try:
            rows.append(np.array(text.strip().strip("[]()").replace(",", " ").split(), np.float32))
        except ValueError as error:
            raise VectorsError(
                f"row {i} of column {name!r} in {path.name} is no list of numbers: {_told(error)}"
            ) from error
    lengths = np.array([np.nan if row is None else len(row) for row in rows])
    width = _one_width(path, name, lengths)
    return np.stack([np.full(width, np.nan, np.float32) if row is None else row for row in rows])


def _one_width(path: Path, name: str, lengths: Array) -> int:
    there = np.flatnonzero(np.isfinite(lengths))
    if not len(there):
        raise VectorsError(f"column {name!r} of {path.name} holds no list")
    width = int(lengths[there[0]])
    other = there[lengths[there] != width]
    if len(other):
        raise VectorsError(
            f"the lists in column {name!r} of {path.name} differ in length: {width} numbers in row {there[0]}, "
            f"{int(lengths[other[0]])} in row {other[0]} ({len(other):,} rows in all)"
        )
    return width


def _looks_like_lists(column: pd.Series) -> bool:
    if column.dtype.kind in "iufb":
        return False
    first = next((value for value in column if isinstance(value, str)), "")
    return first.lstrip().startswith(("[", "(")) and first.rstrip().endswith(("]", ")"))


def _loaded(path: Path, *, mapped: bool = False) -> Any:
    try:
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # zipfile's own
        raise VectorsError(f"{path.name} can't be read: {_told(error)}") from error


def _member(path: Path, arrays: Any, name: str) -> Array:
    try:
        return np.asarray(arrays[name])
    except Exception as error:  # zlib's and zipfile's own among them
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> VectorsError:
    if "pickle" in str(error) or "Python objects" in str(error):
        return VectorsError(
            f"{path.name} holds Python objects, which are stored as a pickle; a pickle can run any code when it is "
            "read, so it is never opened: save the numbers alone, as with numpy.save(path, x.astype('float32'))"
        )
    return VectorsError(f"{path.name} can't be read: {_told(error)}")


def _told(error: Exception) -> str:
    """What a library says, on one line and not too long."""
    return " ".join(str(error).split())[:200]


def _tensors(path: Path) -> dict[str, Array]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise VectorsError(
            f"{path.name} can't be read as safetensors of numpy's types: {_told(error)}"
        ) from error


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            table = file.read().replace_schema_metadata(None)  # an index of pandas is a column like others
        names = table.column_names
    except (pa.ArrowException, OSError, ValueError) as error:
        raise VectorsError(f"{path.name} can't be read: {_told(error)}") from error
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise VectorsError(
            f"{path.name} has more than one column {twice[0]!r}; columns need names of their own"
        )
    return table


def _read_text(path: Path, *, titles: bool) -> pd.DataFrame:
    import pandas as pd

    separator = _separator(path)

    def read(**more: Any) -> pd.DataFrame:
        return pd.read_csv(
            path,
            sep=separator,
            header=0 if titles else None,
            encoding="utf-8-sig",
            quoting=csv.QUOTE_NONE if separator == SPACES else csv.QUOTE_MINIMAL,
            low_memory=False,
            **more,
        )

    try:
        frame = read()
        texts = [i for i, kind in enumerate(frame.dtypes) if kind.kind not in "iufb"]
        if texts:  # once more: among numbers NA and null are missing, among words they are words
            as_written = read(usecols=texts, keep_default_na=False, na_values=[""])
            for i, name in zip(texts, as_written.columns, strict=True):
                frame.isetitem(i, as_written[name])
        return frame
    except (ValueError, OSError) as error:  # pandas' parser errors are ValueErrors
        raise VectorsError(f"{path.name} can't be read as a table of text: {_told(error)}") from error


def _lines(path: Path, rows: int) -> Array:
    """The lines of a text file, a title above `rows` of them left out."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise VectorsError(f"{path.name} can't be read as text: {_told(error)}") from error
    return np.array(lines[len(lines) == rows + 1 :], object)


def _separator(path: Path) -> str:
    """Tab, semicolon or comma, the first of them that the first line has; else spaces, if they part numbers."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    line = _first_line(path)
    cells = line.split()
    spaced = len(cells) < 2 * sum(map(_is_number, cells)) and len(cells) > 1
    return next((mark for mark in "\t;," if mark in line), SPACES if spaced else ",")


def _has_titles(path: Path) -> bool:
    """Whether the first line names the columns: unless half of it is numbers, other than 0, 1, 2, … in order."""
    line, separator = _first_line(path), _separator(path)
    cells = line.split() if separator == SPACES else line.split(separator)
    numbers = [cell.strip() for cell in cells if _is_number(cell)]
    return 2 * len(numbers) < len(cells) or numbers == [str(i) for i in range(len(numbers))]


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.readline().rstrip("\r\n")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _projector_metadata(path: Path) -> Path | None:
    """The metadata.tsv that TensorBoard's projector wants beside vectors.tsv or tensors.tsv."""
    for word in ("vectors", "tensors", "tensor"):
        if word in path.stem:
            beside = path.with_name(path.name.replace(word, "metadata"))
            return beside if beside.is_file() else None
    return None


def _frame_columns(frame: pd.DataFrame) -> dict[str, Array]:
    """Numbers as they are; all else as objects, None where missing."""
    found: dict[str, Array] = {}
    for name in frame.columns:
        column = frame[name]
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
            found[str(name)] = column.to_numpy()
        else:
            found[str(name)] = column.astype(object).where(column.notna(), None).to_numpy(object)
    return found


def _plain(array: Array) -> Array:
    return array if array.dtype.kind in "iufb" else array.astype(str).astype(object)


def _rows(path: Path, what: str, array: Array) -> Array:
    if array.dtype.kind not in "iufb":
        raise VectorsError(f"{what} of {path.name} holds {array.dtype}; vectors are made of real numbers")
    if array.ndim != 2:
        raise VectorsError(
            f"{what} of {path.name} has shape {array.shape}; vectors are N×D, one row a sample"
        )
    return array


def _check_known(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    for name in columns:
        if name not in names:
            raise VectorsError(f"{path.name} has no column {name!r}; it has {_few(names)}")


def _listed(found: Mapping[str, Array]) -> str:
    return ", ".join(f"{n} {'×'.join(map(str, a.shape))}" for n, a in found.items()) or "nothing"


def _few(names: Sequence[str]) -> str:
    """Names in a sentence: of many, the first and the last."""
    shown = list(names) if len(names) <= 6 else [*names[:3], "…", names[-1]]
    return ", ".join(shown) or "none"
