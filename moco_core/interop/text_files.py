"""Tables kept as text: what parts their cells, and whether the first line names the columns."""

from __future__ import annotations

import csv
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from moco_core.interop.content import check_names, told
from moco_core.interop.problem import VectorsError

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray

SPACES = r"\s+"
PEEKED = 20  # lines that show which mark stands before the fractions
QUOTED_TITLES = re.compile(r'"[^"]*"( "[^"]*")+')  # as R parts them
WITH_COMMA = re.compile(r"[-+]?\d+,\d+(e[-+]?\d+)?", re.IGNORECASE)


def text_table(path: Path, *, titles: bool) -> pd.DataFrame:
    """A whole file of comma-, semicolon-, tab- or space-separated values; `VectorsError` when it can't be read."""
    import pandas as pd

    separator = _separator(path)

    def read(header: int | None = 0 if titles else None, **more: Any) -> pd.DataFrame:
        return pd.read_csv(
            path,
            sep=separator,
            header=header,
            decimal="," if decimal_commas(path) else ".",
            encoding="utf-8-sig",
            quoting=csv.QUOTE_MINIMAL if _quoted(path, separator) else csv.QUOTE_NONE,
            low_memory=False,
            skipinitialspace=True,
            **more,
        )

    try:
        frame = read()
        more: dict[str, Any] = {}
        if titles and len(frame) and read(header=None, skiprows=1, nrows=1).shape[1] > frame.shape[1]:
            more = {"names": [_title_of_rows(path, frame), *frame.columns]}  # pandas has made them its index
            frame = read(**more)
        texts = [i for i, kind in enumerate(frame.dtypes) if kind.kind not in "iufb"]
        if texts:  # once more: among numbers NA and null are missing, among words they are words
            as_written = read(usecols=texts, dtype=str, keep_default_na=False, na_values=[""], **more)
            for i, name in zip(texts, as_written.columns, strict=True):
                frame.isetitem(i, as_written[name])
    except VectorsError:
        raise
    except (ValueError, OSError) as error:  # pandas' parser errors are ValueErrors
        if "EOF inside string" in str(error):
            raise _open_quote(path, _last_row(path, separator)) from error
        raise VectorsError(f"{path.name} can't be read as a table of text: {told(error)}") from error
    _check_quotes(path, frame, separator)
    frame.columns = [str(name).strip() for name in frame.columns]
    check_names(path, list(frame.columns))
    ends = [
        n for n in frame.columns if not titles or n.startswith("Unnamed: ")
    ]  # where lines end with a separator
    return frame.drop(columns=[name for name in ends if frame[name].isna().all()])


def _title_of_rows(path: Path, frame: pd.DataFrame) -> str:
    """A title for the names of the rows, which R leaves without one; `VectorsError` where they may be no names."""
    names, last = frame.index, frame.iloc[:, -1]
    counted = names.tolist() in (list(range(len(frame))), list(range(1, len(frame) + 1)))
    title = "id" if counted else "name"
    words = names.nlevels == 1 and names.is_unique and not any(map(_is_number, map(str, names)))
    if (counted or words) and title not in frame.columns and not last.isna().all():
        return title
    raise VectorsError(
        f"the rows of {path.name} have more cells than its first line has titles: give every column one"
    )


def text_lines(path: Path, rows: int) -> Array:
    """The lines of a text file, a title above `rows` of them left out."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise VectorsError(f"{path.name} can't be read as text: {told(error)}") from error
    return np.array(lines[len(lines) == rows + 1 :], object)


def decimal_commas(path: Path) -> bool:
    """Whether fractions are written 0,5: only where no comma parts the cells, and none of them is written 0.5."""
    separator = _separator(path)
    if separator == ",":
        return False
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        cells = [cell for line in islice(file, PEEKED) for cell in _cells(line, separator)]
    return any(map(WITH_COMMA.fullmatch, cells)) and not any("." in c and _is_number(c) for c in cells)


def has_titles(path: Path) -> bool:
    """Whether the first line names the columns: unless half of it is numbers, other than 0, 1, 2, … in order."""
    cells = _cells(_first_line(path), _separator(path))
    numbers = [cell for cell in cells if _is_number(cell) or WITH_COMMA.fullmatch(cell)]
    return 2 * len(numbers) < len(cells) or numbers == [str(i) for i in range(len(numbers))]


def _separator(path: Path) -> str:
    """Tab, semicolon or comma, the first of them that the first line has; else spaces, if they part numbers."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    line = _first_line(path)
    if QUOTED_TITLES.fullmatch(line):
        return SPACES
    cells = line.split()
    if len(cells) > 1 and all(_is_number(cell) or WITH_COMMA.fullmatch(cell) for cell in cells):
        return "\t" if "\t" in line else SPACES  # a comma in such a cell is that of a fraction
    spaced = len(cells) < 2 * sum(map(_is_number, cells)) and len(cells) > 1
    return next((mark for mark in "\t;," if mark in line), SPACES if spaced else ",")


def _cells(line: str, separator: str) -> list[str]:
    cells = line.split() if separator == SPACES else line.split(separator)
    return [cell.strip().strip('"') for cell in cells]


def _quoted(path: Path, separator: str) -> bool:
    """Whether quotation marks enclose cells: TensorBoard's projector takes those in its metadata as they are."""
    if separator == SPACES:  # else a quotation mark is a word like others
        return QUOTED_TITLES.fullmatch(_first_line(path)) is not None
    return not (separator == "\t" and "metadata" in path.stem)


def _check_quotes(path: Path, frame: pd.DataFrame, separator: str) -> None:
    """Refuse a cell that has swallowed lines, being opened by a quotation mark that none closes.

    Text may have lines of its own; one with numbers in the places of the table's numbers is a row.
    """
    numbers = [kind.kind in "iufb" for kind in frame.dtypes]

    def is_row(line: str, first: int) -> bool:
        cells = line.split(separator)
        places = numbers[first:]
        return (
            len(cells) == len(places)
            and any(places)
            and all(_is_number(c) for c, n in zip(cells, places, strict=True) if n)
        )

    for i in range(len(numbers)):
        if numbers[i]:
            continue
        cells = frame.iloc[:, i]
        for cell in cells[cells.str.contains("\n", regex=False, na=False)]:
            first, *others = cell.replace("\r", "").split("\n")
            if is_row(first, i) or any(is_row(line, 0) for line in others):
                before = path.read_text(encoding="utf-8-sig").partition(f'"{first}\n')[0]
                raise _open_quote(path, before.count("\n") + 1)


def _last_row(path: Path, separator: str) -> int:
    """The line in which the last row of a table begins."""
    begins = ends = 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        try:
            for _ in reader:
                begins, ends = ends, reader.line_num
        except csv.Error:  # a cell too long for this reader
            begins = ends
    return begins + 1


def _open_quote(path: Path, line: int) -> VectorsError:
    return VectorsError(
        f"a quotation mark in line {line} of {path.name} is not closed, so that lines below it belong to its cell: "
        "close it, or take it out"
    )


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.readline().rstrip("\r\n")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
