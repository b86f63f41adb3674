"""Reads files that may be damaged, or no files at all."""

from __future__ import annotations

import json
import math
import stat
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from moco_core.runs.schema import RunError

KEPT_FILES = 16_384  # whose content is kept, some kB each: those of a thousand runs
KEPT_BYTES = 65_536  # of the largest such file
SETTLED_NS = 2_000_000_000  # age of a write after which the next one is sure to bear another time

Mark = tuple[int, int, int, int]  # what a write changes: inode, size, and the two times of a file


def read(path: Path) -> bytes:
    """A file's content; `RunError` where it can't be read, or would never end, as a pipe or a device does."""
    try:
        if not is_file(path):
            raise RunError(f"{path.name} can't be read: it is no file")
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path.name} can't be read: {error.strerror or error}") from error


def read_json(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file, shared by all who read it and hence only looked at; `RunError` when there is none.

    What was not written since it was last read is not read again: pages look at the files of all runs all the time.
    """
    mark = settled_mark(path)
    if mark is None or mark[1] > KEPT_BYTES:
        return _json(path)
    return _kept_json(path, mark)


def is_file(path: Path) -> bool:
    """Whether reading this ends, as that of a pipe or a device need not; `OSError` where nothing can be found."""
    return stat.S_ISREG(path.stat().st_mode)


def settled_mark(path: Path) -> Mark | None:
    """What tells whether a file was written since; None of what was written a moment ago, or is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    written = max(found.st_mtime_ns, found.st_ctime_ns)
    if not stat.S_ISREG(found.st_mode) or time.time_ns() - written < SETTLED_NS:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def whole(text: str) -> int:
    """A whole number of 64 bits: others can be neither counted nor drawn."""
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"the whole number {text[:20]}… has more than 64 bits")
    return number


def finite(text: str) -> float:
    """A number that JSON can hold: NaN and infinity are none, however they are written."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _json(path: Path) -> Mapping[str, Any]:
    data = read(path)
    try:
        value = json.loads(data, parse_int=whole, parse_float=finite, parse_constant=finite)
        if b"\\ud" in data.lower():  # so half of a character is written, which no text may hold
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path.name} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise RunError(f"{path.name} must hold a JSON object, not {type(value).__name__}")
    return value


@lru_cache(KEPT_FILES)
def _kept_json(path: Path, mark: Mark) -> Mapping[str, Any]:
    return _json(path)
