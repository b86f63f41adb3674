"""What the columns beside the vectors say of each sample: its class, its id, its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from moco_core.interop.problem import VectorsError

Array = np.ndarray

# Names by which columns are known, in lower case, the first ones preferred.
LABELS = ("label", "labels", "target", "targets", "y", "class", "classes", "category", "cluster")
CLASS_NAMES = ("class", "class_name", "label_name")
IDS = ("sample_id", "sample_ids", "id", "ids", "index", "unnamed: 0", "__index_level_0__")
NAMES = ("name", "names", "filename", "file_name", "file", "path", "word", "token", "text", "title")
MOST_CLASSES = 65_534  # that the pictures can tell apart
LARGEST = 2**63  # whole numbers lie below it
MOST_NUMBERED = 10_000  # class numbers below this are kept as they are


@dataclass(frozen=True)
class Classes:
    """N class numbers, −1 where unknown, and a name for each class."""

    labels: Array
    names: tuple[str, ...]


def named(columns: Iterable[str], names: Sequence[str]) -> str | None:
    """The column whose name, in any case, comes first among `names`; None when there is none."""
    found = {column.lower(): column for column in columns}
    return next((found[name] for name in names if name in found), None)


def classes(column: Array, what: str, named_by: Array | None = None) -> Classes:
    """Class numbers from a column of whole numbers or text; missing entries and negative numbers are unknown.

    `named_by` gives the names of numbered classes, where each number goes with one name. `VectorsError` for
    fractions and for more than `MOST_CLASSES`.
    """
    if column.dtype.kind == "b":
        return Classes(column.astype(np.int64), ("False", "True"))
    if column.dtype.kind == "f":
        known = np.isfinite(column)
        if (column[known] != np.round(column[known])).any():
            raise VectorsError(f"{what} holds fractions; labels are whole numbers or text")
        column = np.where(known, column, -1)
    if column.dtype.kind in "iuf":
        column = _whole(column, what)
        highest = int(column.max(initial=-1))
        if highest < MOST_NUMBERED:
            labels = np.maximum(column, -1)
            return Classes(labels, _names_of_numbers(labels, highest + 1, named_by))
        found, codes = np.unique(column, return_inverse=True)
        unknown = int((found < 0).sum())
        _check_number(len(found) - unknown, what)
        return Classes(np.maximum(codes - unknown, -1), tuple(map(str, found[unknown:])))
    texts = np.array([_text(entry) for entry in column], object)
    known_texts = sorted({text for text in texts if text})
    _check_number(len(known_texts), what)
    code = {text: i for i, text in enumerate(known_texts)}
    return Classes(np.array([code.get(text, -1) for text in texts], np.int64), tuple(known_texts))


def one_hot(array: Array) -> bool:
    """Whether an array tells classes by the place of the 1 in each row, all else 0."""
    return (
        array.ndim == 2
        and array.shape[1] > 1
        and array.dtype.kind in "iufb"
        and bool(((array == 0) | (array == 1)).all() and (array.sum(1) == 1).all())
    )


def ids(column: Array, what: str) -> Array | None:
    """Sample ids from a column of whole numbers; None for text, which makes names. `VectorsError` for repeats."""
    if column.dtype.kind in "iu" or (
        column.dtype.kind == "f" and np.isfinite(column).all() and (column == np.round(column)).all()
    ):
        column = _whole(column, what)
    numbered = column.dtype.kind == "i"
    entries = column if numbered else np.array([_text(entry) for entry in column], object)
    found, counts = np.unique(entries.astype(str) if not numbered else entries, return_counts=True)
    if (counts > 1).any():
        raise VectorsError(
            f"{what} gives {int((counts > 1).sum()):,} ids more than once, the first is {found[counts > 1][0]!s}; ids "
            "must differ. A column that only names the samples may repeat: say --names and its name"
        )
    return column if numbered else None


def names(column: Array) -> tuple[str, ...]:
    """What the samples are called: the column's entries as text."""
    return tuple(_text(entry) for entry in column)


def repeats(column: Array) -> bool:
    """Whether a column says classes rather than names: its entries repeat, twice each on average or more."""
    return 2 * len(set(names(column))) <= len(column)


def class_names_beside(columns: Mapping[str, Array], label: str) -> Array | None:
    """The text column that names the classes of a numbered one."""
    others = [name for name, column in columns.items() if name != label and column.dtype.kind == "O"]
    found = named(others, CLASS_NAMES)
    return None if found is None else columns[found]


def _whole(column: Array, what: str) -> Array:
    """Whole numbers as int64; `VectorsError` for those that it can't hold, which would become others."""
    low, high = column.min(initial=0), column.max(initial=0)
    if low < -LARGEST or high >= LARGEST:
        worst = high if high >= LARGEST else low
        raise VectorsError(f"{what} holds {worst!s}; whole numbers are below 2^63 = {LARGEST:,} here")
    return column.astype(np.int64)


def _check_number(classes: int, what: str) -> None:
    if classes > MOST_CLASSES:
        raise VectorsError(
            f"{what} holds {classes:,} different values, where labels are at most {MOST_CLASSES:,} classes; say "
            "--labels none, and --names if these are the samples' names"
        )


def _names_of_numbers(labels: Array, count: int, named_by: Array | None) -> tuple[str, ...]:
    numbers = tuple(map(str, range(count)))
    if named_by is None:
        return numbers
    pairs = {(int(label), _text(entry)) for label, entry in zip(labels, named_by, strict=True) if label >= 0}
    found = dict(pairs)
    if len(found) != len(pairs) or not all(found.values()):
        return numbers
    return tuple(found.get(i, numbers[i]) for i in range(count))


def _text(entry: object) -> str:
    if entry is None or (isinstance(entry, float) and np.isnan(entry)):
        return ""
    return str(entry).strip()
