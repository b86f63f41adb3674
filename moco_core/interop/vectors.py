"""From a file of vectors, and what one says of it, to `Vectors`: labels, ids, names, images and second views."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from moco_core.analysis.checks import blocks
from moco_core.interop import columns as beside
from moco_core.interop.content import Content, few
from moco_core.interop.formats import digest, open_vectors, with_columns
from moco_core.interop.imported import Vectors
from moco_core.interop.problem import VectorsError
from moco_core.interop.thumbnails import in_column, in_folder, thumbnails

Array = np.ndarray

NONE = "none"  # leaves a column out that would be taken


@dataclass(frozen=True)
class Choices:
    """What a person says of a file; what they leave empty is known by its name, where it is there."""

    columns: tuple[str, ...] = ()  # of the vectors
    labels: str = ""  # a column, a file, or `none`
    names: str = ""  # a column or `none`
    images: str = ""  # a column or a folder
    second: str = ""  # a file
    drop_bad: bool = False

    @property
    def named(self) -> set[str]:
        """Columns that hold no vectors."""
        return {self.labels, self.names, self.images} - {"", NONE}


@dataclass(frozen=True)
class Reading:
    """Vectors, where they come from, and that in sentences."""

    vectors: Vectors
    source: Mapping[str, Any]  # for run.json
    sentences: tuple[str, ...]


@dataclass
class _Samples:
    """What is known of each of N samples, gathered bit by bit."""

    labels: Array | None = None
    class_names: tuple[str, ...] = ()
    ids: Array | None = None
    names: tuple[str, ...] | None = None
    pixels: Array | None = None
    source: dict[str, Any] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)


def read_vectors(path: Path, choices: Choices | None = None) -> Reading:
    """Read a file of vectors and all that belongs to it.

    `VectorsError` says what can't be read or doesn't fit: rows that are not finite or zero (unless `drop_bad`),
    labels of another length, ids that repeat, a file that isn't what its name says.
    """
    choices = choices or Choices()
    content = open_vectors(path, choices.columns, choices.named)
    return assembled(content, choices)


def assembled(content: Content, choices: Choices) -> Reading:
    """`read_vectors` of a file that is open already."""
    path, count = content.path, len(content.values)
    if min(content.values.shape) < 2:
        raise VectorsError(
            f"{content.taken} of {path.name} is {_shape(content.values)}; vectors need at least 2 rows and 2 dimensions"
        )
    labels_file = _labels_file(content, choices)
    if labels_file is not None:
        content = with_columns(content, labels_file)
    columns = content.columns
    labelling = {name: columns[name] for name in (columns if labels_file is None else content.added)}
    second = _second(path, choices, content)
    kept, dropped = _usable(content, second, choices)
    samples = _Samples()
    samples.source = {
        "kind": "import",
        "file": path.name,
        "sha256": digest(path),
        "format": content.format,
        "vectors": content.taken,
        "dtype": str(content.values.dtype),
        "rows": count,
        "left_out": dropped,
    }
    if content.beside:
        samples.source["columns_from"] = content.beside
        samples.sentences.append(f"{content.beside}: columns {', '.join(content.added)}")
    _take_labels(samples, labelling, choices, labels_file)
    _take_names(samples, columns, choices)
    _take_images(samples, columns, choices, path, count)
    if content.aside:
        samples.sentences.append(f"left aside, as not one entry a vector: {few(content.aside)}")
    if second is not None:
        samples.source["second_view"] = {"file": second.path.name, "sha256": digest(second.path)}
        samples.sentences.append(f"second view: {second.path.name}, {second.taken}")
    samples.sentences += [
        f"left out: {number:,} of {count:,} rows, {why}" for why, number in dropped.items() if number
    ]

    def part(array: Array | None) -> Array | None:
        return array if array is None or kept is None else array[kept]

    names = samples.names
    vectors = Vectors(
        content.values if kept is None else content.values[kept],
        labels=part(samples.labels),
        class_names=samples.class_names,
        sample_ids=part(samples.ids),
        names=names if names is None or kept is None else tuple(names[i] for i in np.flatnonzero(kept)),
        thumbnails=part(samples.pixels),
        second_view=None if second is None else part(second.values),
    )
    first = (
        f"{path.name}: {len(vectors):,} vectors of {vectors.values.shape[1]:,} dimensions from {content.taken} "
        f"({content.format})"
    )
    sentences = (first, *samples.sentences)
    return Reading(vectors, {**samples.source, "said": list(sentences)}, sentences)


def _labels_file(content: Content, choices: Choices) -> Path | None:
    """The file that `labels` names, when it names no column."""
    if choices.labels in ("", NONE) or choices.labels in content.columns:
        return None
    for place in (Path(os.path.expanduser(choices.labels)), content.path.parent / choices.labels):
        if place.is_file():
            return place
    raise VectorsError(
        f"labels must be a file or a column of {content.path.name}; there is no {choices.labels!r}, and its columns "
        f"beside the vectors are {', '.join(content.columns) or 'none'}"
    )


def _second(path: Path, choices: Choices, content: Content) -> Content | None:
    if not choices.second:
        return None
    place = Path(os.path.expanduser(choices.second))
    alike = place.suffix.lower() == path.suffix.lower()
    found = open_vectors(place, choices.columns if alike else (), choices.named)
    if found.values.shape != content.values.shape:
        raise VectorsError(
            f"the second view needs the shape of {path.name}, {_shape(content.values)}; {place.name} has "
            f"{_shape(found.values)}"
        )
    name = beside.named(content.columns, beside.IDS)
    if name is not None and name in found.columns:
        differ = np.flatnonzero(found.columns[name] != content.columns[name])
        if len(differ):
            raise VectorsError(
                f"{place.name} must have the rows of {path.name} in the same order; column {name!r} differs first in "
                f"row {differ[0]}"
            )
    if _equal(content.values, found.values):
        raise VectorsError(
            f"the second view, {place.name}, holds the same vectors as {path.name}, so all pairs would be perfectly "
            "aligned. It takes the vectors of the same samples seen another way, such as changed images or "
            "paraphrases; leave it out where there are none"
        )
    return found


def _equal(a: Array, b: Array) -> bool:
    """Whether two arrays of one shape hold the same numbers as float32; NaN is equal to NaN."""
    with np.errstate(over="ignore"):
        return all(
            np.array_equal(a[part].astype(np.float32), b[part].astype(np.float32), equal_nan=True)
            for part in blocks(len(a), a.shape[1])
        )


def _usable(
    content: Content, second: Content | None, choices: Choices
) -> tuple[Array | None, dict[str, int]]:
    """Which rows to keep, None for all, and how many are left out and why; refuses bad rows unless told otherwise."""
    files = [content] if second is None else [content, second]
    bad_rows = [_bad_rows(file.values) for file in files]
    infinite, zero = (np.any(bad, axis=0) for bad in zip(*bad_rows, strict=True))
    found = {"not finite (NaN or infinity)": infinite, "zero": zero}
    if not (infinite.any() or zero.any()):
        return None, {}
    if not choices.drop_bad:
        parts = [
            f"{int(bad.sum()):,} {'is' if bad.sum() == 1 else 'are'} {why}, the first is row {int(bad.argmax())}"
            for why, bad in found.items()
            if bad.any()
        ]
        where = " and ".join(f.path.name for f, bad in zip(files, bad_rows, strict=True) if np.any(bad))
        raise VectorsError(
            f"of the {len(infinite):,} rows of {where} (the first row is 0), {'; '.join(parts)}. Mend "
            "them or leave them out (--drop-bad)"
        )
    return ~(infinite | zero), {why: int(bad.sum()) for why, bad in found.items() if bad.any()}


def _bad_rows(values: Array) -> tuple[Array, Array]:
    """Rows that are not finite as float32, and rows that are zero."""
    infinite, zero = np.zeros((2, len(values)), bool)
    with np.errstate(over="ignore"):
        for block in blocks(len(values), values.shape[1]):
            part = np.asarray(values[block], np.float32)
            infinite[block] = ~np.isfinite(part).all(1)
            zero[block] = ~part.any(1)
    return infinite, zero


def _take_labels(
    samples: _Samples, columns: Mapping[str, Array], choices: Choices, file: Path | None
) -> None:
    if choices.labels == NONE:
        return
    name = choices.labels if file is None else ""
    name = name or beside.named(columns, beside.LABELS) or ""
    if not name and file is not None:
        name = _only_label(columns, file)
    if not name:
        called = _single(columns)
        name = called if called and beside.repeats(columns[called]) else ""
    if not name:
        likely = [called for called, column in columns.items() if beside.repeats(column)]
        offered = f"; --labels takes a column: {', '.join(likely)}" if likely else ""
        samples.sentences.append(f"labels: none found{offered}")
        return
    try:
        found = beside.classes(columns[name], f"column {name!r}", beside.class_names_beside(columns, name))
    except VectorsError as error:
        if choices.labels:
            raise
        samples.sentences.append(f"labels: none taken, as {error}")
        return
    known = found.labels >= 0
    samples.labels, samples.class_names = found.labels, found.names
    where = f"column {name!r}" + (f" of {file.name}" if file is not None else "")
    unknown = int((~known).sum())
    samples.sentences.append(
        f"labels: {where}, {len(np.unique(found.labels[known])):,} classes"
        + (f", {unknown:,} without" if unknown else "")
    )
    samples.source["labels"] = where


def _only_label(columns: Mapping[str, Array], file: Path) -> str:
    """The column of a labels file that holds them, where none is called so."""
    candidates = [name for name, column in columns.items() if beside.repeats(column)]
    if len(columns) == 1:
        return next(iter(columns))
    if len(candidates) == 1:
        return candidates[0]
    raise VectorsError(
        f"{file.name} leaves open which column holds the labels; it has {', '.join(columns)}. Call one of them label"
    )


def _single(columns: Mapping[str, Array]) -> str:
    """The one column of text without a title, as the projector's metadata have it."""
    return next(iter(columns)) if len(columns) == 1 and next(iter(columns)).isdecimal() else ""


def _take_names(samples: _Samples, columns: Mapping[str, Array], choices: Choices) -> None:
    """Ids and names, from columns called so; ids that are text are names."""
    if choices.names not in ("", NONE) and choices.names not in columns:
        raise VectorsError(
            f"names must be a column beside the vectors ({', '.join(columns) or 'there are none'}); got "
            f"{choices.names!r}"
        )
    ids = beside.named(columns, beside.IDS)
    if ids is not None and ids != choices.names:
        samples.ids = beside.ids(columns[ids], f"column {ids!r}")
        samples.source["ids"] = f"column {ids!r}"
    if choices.names == NONE:
        return
    name = choices.names or beside.named(columns, beside.NAMES) or ""
    if not name and ids is not None and samples.ids is None:
        name = ids
    if not name and samples.labels is None:
        name = _single(columns)
    if name:
        samples.names = beside.names(columns[name])
        samples.source["names"] = f"column {name!r}"
        samples.sentences.append(f"names: column {name!r}")


def _take_images(
    samples: _Samples, columns: Mapping[str, Array], choices: Choices, path: Path, count: int
) -> None:
    if not choices.images:
        return
    folder = Path(os.path.expanduser(choices.images))
    if choices.images in columns:
        pictures, how = in_column(columns[choices.images], path.parent), f"column {choices.images!r}"
    elif folder.is_dir() or (path.parent / folder).is_dir():
        folder = folder if folder.is_dir() else path.parent / folder
        pictures, order = in_folder(folder, count, samples.names)
        how = f"folder {folder.name}, {order}"
    else:
        raise VectorsError(
            f"images must be a folder or a column beside the vectors ({', '.join(columns) or 'there are none'}); got "
            f"{choices.images!r}"
        )
    found = thumbnails(pictures)
    samples.pixels = found.pixels
    samples.source["images"] = how
    samples.source["images_unreadable"] = found.unreadable
    bad = f", {found.unreadable:,} unreadable and shown grey (the first is {found.first})"
    samples.sentences.append(
        f"images: {how}, {count - found.unreadable:,} read" + (bad if found.unreadable else "")
    )


def _shape(values: Array) -> str:
    return f"{len(values):,}×{values.shape[1]:,}"
