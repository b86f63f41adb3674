"""Small pictures of the samples, from image files or from images stored in a column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moco_core.data.decode import SUFFIXES, DecodeError, decode, is_data
from moco_core.interop.problem import VectorsError

SIDE = 64  # pixels of a thumbnail
SMALLEST = 8
BYTES = 2**28  # of all thumbnails together: beyond 20,000 images they are smaller
BLANK = 128  # grey of a sample whose image can't be read

Picture = Path | bytes | None


@dataclass(frozen=True)
class Thumbnails:
    """N pictures and what became of them."""

    pixels: np.ndarray  # N×S×S×3 uint8
    unreadable: int
    first: str  # the first that couldn't be read, and why; empty when all could


def thumbnails(pictures: Sequence[Picture]) -> Thumbnails:
    """Read N pictures, fit each into a square and count those that can't be read, which stay grey.

    `VectorsError` when none can be read.
    """
    side = min(SIDE, max(SMALLEST, math.isqrt(BYTES // (3 * max(len(pictures), 1)))))
    pixels = np.full((len(pictures), side, side, 3), BLANK, np.uint8)

    def read(row: int) -> str:
        picture = pictures[row]
        if picture is None:
            return f"row {row}: there is none"
        try:
            pixels[row], _ = decode(picture, side, whole=True)
        except DecodeError as error:
            return f"{picture.name if isinstance(picture, Path) else f'row {row}'}: {error}"
        return ""

    with ThreadPoolExecutor() as pool:
        problems = [problem for problem in pool.map(read, range(len(pictures))) if problem]
    if len(problems) == len(pictures):
        raise VectorsError(f"none of {len(pictures):,} images can be read; the first is {problems[0]}")
    return Thumbnails(pixels, len(problems), problems[0] if problems else "")


def in_column(column: np.ndarray, base: Path) -> list[Picture]:
    """What a column says of the images: paths relative to `base`, or the encoded images themselves."""
    return [_entry(entry, base) for entry in column]


def in_folder(folder: Path, count: int, called: Sequence[str] | None) -> tuple[list[Picture], str]:
    """The images of a folder and its sub-folders, matched by the samples' names or else by order; and which it was.

    A name matches a path below the folder, a file's name, or that without its ending. `VectorsError` when neither the
    names nor the number of files fit.
    """
    files = sorted(
        f
        for f in folder.rglob("*")
        if f.suffix.lower() in SUFFIXES and all(map(is_data, f.relative_to(folder).parts)) and f.is_file()
    )
    if not files:
        raise VectorsError(f"there are no images in {folder}; known are {', '.join(SUFFIXES)}")
    by_name = _by_name(files, folder)
    found = [by_name.get(name) for name in called or ()]
    if any(found):
        return list(found), "by name"
    if len(files) != count:
        names = "none of the names matches a file" if called else "without names they are matched by order"
        raise VectorsError(f"{folder} holds {len(files):,} images for {count:,} vectors, and {names}")
    return list(files), "by order of their paths"


def _by_name(files: Sequence[Path], folder: Path) -> Mapping[str, Path]:
    """Files by each name that only one of them has."""
    found: dict[str, Path] = {}
    for key in (lambda f: f.stem, lambda f: f.name, lambda f: f.relative_to(folder).as_posix()):
        named = [key(file) for file in files]
        twice = {name for name, times in zip(*np.unique(named, return_counts=True), strict=True) if times > 1}
        found |= {name: file for name, file in zip(named, files, strict=True) if name not in twice}
    return found


def _entry(entry: object, base: Path) -> Picture:
    if isinstance(entry, Mapping):  # how data sets are kept in Parquet: bytes, path, or both
        entry = entry.get("bytes") or entry.get("path")
    if isinstance(entry, bytes):
        return entry
    return base / entry if isinstance(entry, str) and entry else None
