"""Writing files so that a crash leaves the old one or the new one, never half of either."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

ABANDONED = 86_400.0  # seconds after which nobody writes such a file any more
# What reading arrays raises: damage, or a type numpy lacks.
NO_ARRAYS = (SafetensorError, ValueError, TypeError, KeyError, AttributeError)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, unless it is there; `NotADirectoryError` where something else is."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # which says that the folder is there, and it is not
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


def fsync_dir(folder: Path) -> None:
    """Make renames inside `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Whatever the system says against writing, as when the disk is full, names `path`; by itself it names no file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # else it is not the system's
            error.filename, error.filename2 = str(path), None
        raise


def reason(error: Exception) -> str:
    """What an error says. What the system says stands behind the path that it is about: `a/b: Permission denied`."""
    if not isinstance(error, OSError):
        return str(error)
    return f"{error.filename}: " * (error.filename is not None) + (error.strerror or str(error))


def write_bytes(path: Path, data: bytes) -> None:
    """Write and sync a file that nobody reads yet."""
    with naming(path), path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_bytes(path: Path, data: bytes) -> None:
    """Replace a file atomically; readers see the old content or the new."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with naming(path):
        try:
            write_bytes(temporary, data)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def clear_abandoned(folder: Path, name: str = "*") -> None:
    """Remove what a kill left of files (or exports' folders) called `name` that were about to be replaced."""
    for path in folder.glob(f".{name}.{'[0-9a-f]' * 8}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def replace_json(path: Path, value: Any) -> None:
    """Replace a JSON file atomically. Numbers must be finite: NaN is no JSON."""
    replace_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Readable UTF-8 JSON; what is no character, as in a file name of another encoding, becomes a `?`."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode(errors="replace")


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()
