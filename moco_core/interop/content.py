"""What a file of vectors holds, and the words in which it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from moco_core.interop.problem import VectorsError

Array = np.ndarray

VECTORS = ("embeddings", "embedding", "vectors", "vector", "x", "query", "features", "emb", "z")


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
    aside: tuple[str, ...] = ()  # what else it holds, of other lengths or of several numbers a vector


def checked_rows(path: Path, what: str, array: Array) -> Array:
    """`array` if it is N×D real numbers; `VectorsError` otherwise, which names the file and `what` in it."""
    if array.dtype.kind not in "iufb":
        raise VectorsError(f"{what} of {path.name} holds {array.dtype}; vectors are made of real numbers")
    if array.ndim != 2:
        raise VectorsError(
            f"{what} of {path.name} has shape {array.shape}; vectors are N×D, one row a sample"
        )
    return array


def check_room(path: Path, size: int) -> None:
    """`VectorsError` for a packed file whose `size` bytes of content would fill the memory: small files can be huge."""
    free = psutil.virtual_memory().available
    if size > free:
        raise VectorsError(
            f"{path.name} unpacks to {size / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB of memory are free; bring a "
            "part of it, or its vectors as .npy, which is read from disk"
        )


def check_names(path: Path, names: Sequence[str]) -> None:
    """`VectorsError` where two columns of a table have the same name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise VectorsError(
            f"{path.name} has more than one column {twice[0]!r}; columns need names of their own"
        )


def few(names: Sequence[str]) -> str:
    """Names in a sentence: of many, the first and the last."""
    shown = list(names) if len(names) <= 6 else [*names[:3], "…", names[-1]]
    return ", ".join(shown) or "none"


def told(error: Exception) -> str:
    """What a library says, on one line and not too long."""
    return " ".join(str(error).split())[:200]
