"""Reads files that may be damaged, or no files at all."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from moco_core.runs.schema import RunError


def read(path: Path) -> bytes:
    """A file's content; `RunError` where it can't be read, or would never end, as a pipe or a device does."""
    try:
        if not is_file(path):
            raise RunError(f"{path.name} can't be read: it is no file")
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"{path.name} can't be read: {error.strerror or error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; `RunError` when there is none."""
    data = read(path)
    try:
        value = json.loads(data, parse_int=whole)
        if b"\\ud" in data.lower():  # so half of a character is written, which no text may hold
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path.name} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise RunError(f"{path.name} must hold a JSON object, not {type(value).__name__}")
    return value


def is_file(path: Path) -> bool:
    """Whether reading this ends, as that of a pipe or a device need not; `OSError` where nothing can be found."""
    return stat.S_ISREG(path.stat().st_mode)


def whole(text: str) -> int:
    """A whole number of 64 bits: others can be neither counted nor drawn."""
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"the whole number {text[:20]}… has more than 64 bits")
    return number
