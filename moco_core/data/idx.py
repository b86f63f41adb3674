"""The IDX files of MNIST and its kin, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from moco_core.data.images import DataError

UNSIGNED_BYTES = 0x08


def find_idx(folder: Path, name: str) -> Path | None:
    """`folder/name` or `folder/name.gz`, whichever is there."""
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def read_idx(path: Path) -> np.ndarray:
    """The array of unsigned bytes in an IDX file; `DataError` when the file is damaged."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read ({error}); remove it or fetch it again") from error
    kind, axes = content[:3], content[3] if len(content) > 3 else 0
    start = 4 + 4 * axes
    shape = np.frombuffer(content[4 : start if len(content) >= start else 4], ">u4").tolist()
    if kind != bytes((0, 0, UNSIGNED_BYTES)) or not shape or len(content) - start != math.prod(shape):
        raise DataError(f"{path} is damaged: not an IDX file of unsigned bytes; remove it or fetch it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
