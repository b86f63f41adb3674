"""What a folder holds: image files, their classes, and which of them are held out. Nothing is opened."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moco_core.config import some
from moco_core.data.decode import SUFFIXES, is_data
from moco_core.data.images import DataError
from moco_core.data.split import FEWEST_TO_SPLIT, held_out_rows

TRAIN = "train"
HELD_OUT = ("val", "valid", "validation", "test")  # the first that is there


@dataclass(frozen=True)
class Listing:
    """The image files of a folder."""

    root: Path
    files: tuple[str, ...]  # N, relative to the root, sorted
    labels: np.ndarray  # N int64, −1 where unknown
    held_out: np.ndarray  # N bool
    class_names: tuple[str, ...]
    unreadable: tuple[str, ...]  # "path: reason" of sub-folders that can't be listed


def list_folder(root: Path) -> Listing:
    """List the images below `root`.

    A sub-folder is a class, with all the images anywhere below it; images outside any have no label. With
    `train/` beside `val/` or `test/` these are the training and held-out images, each with its classes;
    otherwise a fixed fifth is held out. Hidden files and folders are left out; symbolic links are followed,
    each folder once, never upwards. Raises `DataError` when there is nothing to learn from.
    """
    root = Path(os.path.realpath(root))
    if not root.is_dir():
        raise DataError(f"{root} is not a folder" if root.exists() else f"there is no folder {root}")
    division = next((name for name in HELD_OUT if (root / TRAIN).is_dir() and (root / name).is_dir()), None)
    bases = [root / TRAIN, root / division] if division else [root]
    found = [_walk(root, base) for base in bases]
    files = sorted(file for paths, _ in found for file in paths)
    unreadable = {path: reason for _, reasons in found for path, reason in reasons.items()}
    reasons = tuple(f"{path}: {reason}" for path, reason in sorted(unreadable.items()))
    if not files:
        blocked = f" ({some(reasons)})" if reasons else ""
        raise DataError(f"{root} holds no images{blocked}; accepted are {', '.join(SUFFIXES)}")

    depth = 1 if division else 0
    classes = [_class_of(file, depth) for file in files]
    class_names = tuple(sorted(set(classes) - {""}))
    _no_empty_class(root, bases[0], {*class_names, *(_class_of(f"{path}/", depth) for path in unreadable)})
    number = {name: label for label, name in enumerate(class_names)} | {"": -1}
    labels = np.array([number[name] for name in classes], dtype=np.int64)
    if division:
        held_out = np.array([file.startswith(f"{division}/") for file in files])
    elif len(files) < FEWEST_TO_SPLIT:
        raise DataError(f"{root} must hold at least {FEWEST_TO_SPLIT} images, got {len(files)}")
    else:
        held_out = held_out_rows(labels)
    return Listing(root, tuple(files), labels, held_out, class_names, reasons)


def _walk(root: Path, base: Path) -> tuple[list[str], dict[str, str]]:
    """Image files below `base`, and the folders that can't be listed with the reason, relative to the root."""
    files: list[str] = []
    unreadable: dict[str, str] = {}

    def note(error: OSError) -> None:
        unreadable[Path(error.filename).relative_to(root).as_posix()] = error.strerror or "unreadable"

    seen = {*base.parents}  # where no link may lead
    for folder, below, names in os.walk(base, onerror=note, followlinks=True):
        real = Path(os.path.realpath(folder))
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(filter(is_data, below))
        relative = Path(folder).relative_to(root)
        images = (name for name in names if is_data(name) and name.lower().endswith(SUFFIXES))
        files += [(relative / name).as_posix() for name in images]
    return files, unreadable


def _class_of(file: str, depth: int) -> str:
    """The name of the sub-folder that a file lies in, or nothing."""
    parts = file.split("/")
    return parts[depth] if len(parts) > depth + 1 else ""


def _no_empty_class(root: Path, base: Path, accounted_for: Collection[str]) -> None:
    """Raise `DataError` when a sub-folder, which is a class, holds no image."""
    empty = sorted(
        entry.relative_to(root).as_posix()
        for entry in base.iterdir()
        if entry.is_dir() and is_data(entry.name) and entry.name not in accounted_for
    )
    if empty:
        raise DataError(
            f"{root} has sub-folders without images, and each is a class: fill or remove {some(empty)}"
        )
