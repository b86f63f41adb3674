"""Tables, as Parquet or text: vectors from numeric columns or from one column of lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from moco_core.interop.array_files import plain
from moco_core.interop.columns import IDS, LABELS, named
from moco_core.interop.content import VECTORS, Content, check_names, check_room, checked_rows, few, told
from moco_core.interop.problem import VectorsError
from moco_core.interop.text_files import decimal_commas, has_titles, text_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

Array = np.ndarray
Lists = Mapping[str, Callable[[], Array]]  # columns of lists, by name


def read_parquet(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    """Vectors from numeric columns, or a column of lists, of a Parquet file."""
    table = parquet_table(path)
    _check_known(path, columns, table.column_names)
    lists = _lists(path, table)
    frame = table.drop_columns(list(lists)).to_pandas()
    return _taken(path, "Parquet", frame, lists, columns, kept)


def parquet_columns(path: Path) -> dict[str, Array]:
    """All columns of a Parquet file; lists of one number, or of a 1 among zeros, are columns of numbers."""
    table = parquet_table(path)
    lists = _lists(path, table)
    found = frame_columns(table.drop_columns(list(lists)).to_pandas())
    return found | {name: plain(values()) for name, values in lists.items()}


def read_text(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    """Vectors from numeric columns, or a column of lists, of a table kept as text."""
    frame = text_table(path, titles=has_titles(path))
    _check_known(path, columns, list(frame.columns))
    lists = {
        n: partial(_parsed_lists, path, n, frame[n]) for n in frame.columns if _looks_like_lists(frame[n])
    }
    kind = "text with decimal commas" if decimal_commas(path) else "text"
    return _taken(path, kind, frame, lists, columns, kept)


def _taken(
    path: Path, kind: str, frame: pd.DataFrame, lists: Lists, columns: Sequence[str], kept: set[str]
) -> Content:
    """The vectors, from a column of lists or from numeric ones, and what lies beside them."""
    classes: dict[str, Array] = {}
    for name, values in lists.items():
        if name not in columns and (name in kept or name.lower() in LABELS):
            with suppress(VectorsError):  # of several lengths: no classes
                column = plain(values())
                classes |= {name: column} if column.ndim == 1 else {}
    chosen = _list_column(path, [name for name in lists if name not in classes], columns, kept)
    if chosen is None:
        content = _numeric(path, kind, frame, columns, kept)
    else:
        beside = frame_columns(frame.drop(columns=list(lists), errors="ignore"))
        content = Content(path, kind, lists[chosen](), f"column {chosen!r} of lists", beside, (chosen,))
    return replace(
        content,
        columns={**content.columns, **classes},
        aside=tuple(name for name in lists if name not in (chosen, *classes)),
    )


def _lists(path: Path, table: pa.Table) -> Lists:
    """The columns of lists of numbers, each to be read as an array."""
    import pyarrow.types as types

    return {
        field.name: partial(_from_lists, path, field.name, table.column(field.name))
        for field in table.schema
        if _is_list(field.type)
        and (types.is_floating(field.type.value_type) or types.is_integer(field.type.value_type))
    }


def parquet_table(path: Path) -> pa.Table:
    """A whole Parquet file; `VectorsError` when it can't be read, or names two columns alike."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            check_room(path, _unpacked(file.metadata))
            table = file.read().replace_schema_metadata(None)  # an index of pandas is a column like others
            table = table.cast(
                pa.schema([field.with_type(_plain_type(field.type)) for field in table.schema])
            )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise VectorsError(f"{path.name} can't be read: {told(error)}") from error
    check_names(path, table.column_names)
    return table


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that numpy has for a column, also within lists: decimal numbers become floating ones."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_decimal(kind):
        return pa.float64()
    return pa.list_(pa.float64()) if _is_list(kind) and types.is_decimal(kind.value_type) else kind


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _unpacked(metadata: pq.FileMetaData) -> int:
    """Bytes that a Parquet file takes in memory, at least."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    columns = (group.column(i) for group in groups for i in range(group.num_columns))
    return sum(max(column.total_uncompressed_size, 4 * column.num_values) for column in columns)


def frame_columns(frame: pd.DataFrame) -> dict[str, Array]:
    """Numbers as they are; all else as objects, None where missing."""
    found: dict[str, Array] = {}
    for name in frame.columns:
        column = frame[name]
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
            found[str(name)] = column.to_numpy()
        else:
            found[str(name)] = column.astype(object).where(column.notna(), None).to_numpy(object)
    return found


def _numeric(path: Path, kind: str, frame: pd.DataFrame, columns: Sequence[str], kept: set[str]) -> Content:
    """The vectors from a table's numeric columns: those asked for, or all but labels and ids."""
    names = [str(name) for name in frame.columns]
    numbers = {name: None for name in names if frame[name].dtype.kind in "iufb"}  # in order, found at once
    if columns:
        texts = [name for name in columns if name not in numbers]
        if texts:
            raise VectorsError(f"column {texts[0]!r} of {path.name} holds text; vectors are made of numbers")
        chosen = list(columns)
    else:
        axes = {"x", "y"} <= {n.lower() for n in numbers}  # then y is a coordinate, and no label
        spoken_for = kept | {n for n in numbers if n.lower() in (*LABELS, *IDS) and not (axes and n in "yY")}
        chosen = [name for name in numbers if name not in spoken_for]
        stems = set(map(_stem, chosen))
        for name in names:
            if name not in numbers and name not in kept and _stem(name) in stems:
                _check_text(path, name, frame[name])
    if not chosen:
        raise VectorsError(
            f"{path.name} has no numeric columns for the vectors; its columns are {few(names)}. Accepted are "
            "columns of numbers, or one column of lists"
        )
    values = np.empty((len(frame), len(chosen)), np.float32)
    with np.errstate(over="ignore"):  # what float32 can't hold becomes infinite, and is refused later
        for i, name in enumerate(chosen):
            values[:, i] = frame[name].to_numpy()
    beside = frame_columns(frame.drop(columns=chosen))
    taken = f"{len(chosen):,} columns, {few(chosen)}" if len(chosen) > 1 else f"column {chosen[0]!r}"
    return Content(path, kind, checked_rows(path, taken, values), taken, beside, tuple(chosen))


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
            f"{path.name} has several columns of lists, {few(free)}: name the one with the vectors with --columns"
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
                f"row {i} of column {name!r} in {path.name} is no list of numbers: {told(error)}"
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


def _check_known(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    for name in columns:
        if name not in names:
            raise VectorsError(f"{path.name} has no column {name!r}; it has {few(names)}")
