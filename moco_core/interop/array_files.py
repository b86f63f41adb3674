"""Files of arrays: numpy's own and safetensors.

Nothing is unpickled: a pickle runs whatever code is in it when it is read, so a file from someone else could do
anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moco_core.interop.columns import named, one_hot
from moco_core.interop.content import VECTORS, Content, check_room, checked_rows, told
from moco_core.interop.problem import VectorsError
from moco_core.runs.files import NO_ARRAYS

Array = np.ndarray


def read_npy(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    """The one array of an .npy file, left on disk until it is asked for."""
    if columns:
        raise VectorsError(f"{path.name} holds one array, which has no name: there is none to choose by")
    return Content(path, "npy", checked_rows(path, "the array", loaded(path, mapped=True)), "the array", {})


def read_npz(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    """One array of an .npz file, with the columns beside it."""
    return _named_arrays(path, "npz", members(path), columns, kept)


def read_safetensors(path: Path, columns: Sequence[str], kept: set[str]) -> Content:
    """One array of a safetensors file, with the columns beside it."""
    return _named_arrays(path, "safetensors", tensors(path), columns, kept)


def members(path: Path) -> dict[str, Array]:
    """All arrays of an .npz file; `VectorsError` when one can't be read."""
    with loaded(path) as arrays:
        check_room(path, sum(entry.file_size for entry in arrays.zip.infolist()))
        return {name: _member(path, arrays, name) for name in arrays.files}


def tensors(path: Path) -> dict[str, Array]:
    """All arrays of a safetensors file; `VectorsError` when they can't be read."""
    from safetensors import safe_open

    try:
        with safe_open(path, "numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (*NO_ARRAYS, OSError) as error:
        raise VectorsError(
            f"{path.name} can't be read as safetensors of numpy's types: {told(error)}"
        ) from error


def loaded(path: Path, *, mapped: bool = False) -> Any:
    """What numpy makes of a file without unpickling anything; `VectorsError` when it can't be read."""
    try:
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise _unreadable(path.name, error) from error
    except Exception as error:  # zipfile's own
        raise VectorsError(f"{path.name} can't be read: {told(error)}") from error


def _named_arrays(
    path: Path, kind: str, found: dict[str, Array], columns: Sequence[str], kept: set[str]
) -> Content:
    """One array holds the vectors: the one asked for, one known by its name, or the only one that can."""
    if columns:
        if len(columns) > 1 or columns[0] not in found:
            raise VectorsError(f"{path.name} has no array {' '.join(columns)!r}; it holds {_listed(found)}")
        name = columns[0]
    else:
        flat = [n for n, a in found.items() if a.ndim == 2 and n not in kept]
        flat = [n for n in flat if not one_hot(found[n])] or flat
        known = named(flat, VECTORS)
        if known is None and len(flat) != 1:
            raise VectorsError(
                f"{path.name} leaves open which array holds the vectors; it holds {_listed(found)}. Name it with "
                "--columns, or call it embeddings"
            )
        name = flat[0] if known is None else known
    values = checked_rows(path, f"array {name!r}", found[name])
    beside = {
        n: column for n, a in found.items() if n != name and (column := plain(a)).shape == (len(values),)
    }
    aside = tuple(n for n in found if n not in (name, *beside))
    return Content(path, kind, values, f"array {name!r}", beside, aside=aside)


def _member(path: Path, arrays: Any, name: str) -> Array:
    try:
        return np.asarray(arrays[name])
    except Exception as error:  # zlib's and zipfile's own among them
        raise _unreadable(f"array {name!r} of {path.name}", error) from error


def _unreadable(what: str, error: Exception) -> VectorsError:
    if "Object arrays" in str(error) or "Python objects" in str(error):
        return VectorsError(
            f"{what} holds Python objects, which are stored as a pickle; a pickle can run any code when it is read, so "
            "it is never opened: save numbers as x.astype('float32'), and text as names.astype(str)"
        )
    return VectorsError(f"{what} can't be read: {told(error)}")


def plain(array: Array) -> Array:
    """A column as tables have it: numbers as they are, all else as objects that hold text.

    An array of N×1 is a column, too, and so is N×C where each row holds one 1: that of its class.
    """
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if one_hot(array):
        array = array.argmax(1)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind == "V":  # of several fields
        return np.array([str(entry) for entry in array.flat], object).reshape(array.shape)
    return array if array.dtype.kind in "iufb" else array.astype(str).astype(object)


def _listed(found: Mapping[str, Array]) -> str:
    return ", ".join(f"{n} {'×'.join(map(str, a.shape))}" for n, a in found.items()) or "nothing"
