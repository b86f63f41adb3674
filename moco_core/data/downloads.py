"""Well-known data sets: read from disk where they lie, fetched by torchvision on first use."""

from __future__ import annotations

import socket
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision import datasets

from moco_core.data.idx import find_idx, read_idx
from moco_core.data.images import DataError, ImageSet
from moco_core.data.lock import alone

SYSTEM_ROOT = Path("/usr/share/datasets")  # Debian's packages of data sets
TIMEOUT = 30.0  # seconds without a byte after which a download is given up

Arrays = tuple[Tensor, Tensor]  # images N×C×H×W uint8, labels N int64


def mnist(root: Path) -> tuple[ImageSet, ImageSet]:
    """60,000 and 10,000 handwritten digits, 28×28, one channel."""
    return _idx_sets("mnist", datasets.MNIST, root, tuple("0123456789"))


def fashion_mnist(root: Path) -> tuple[ImageSet, ImageSet]:
    """60,000 and 10,000 pieces of clothing, 28×28, one channel."""
    return _idx_sets("fashion-mnist", datasets.FashionMNIST, root, tuple(datasets.FashionMNIST.classes))


def cifar10(root: Path) -> tuple[ImageSet, ImageSet]:
    """50,000 and 10,000 photographs of ten classes, 32×32, colour."""
    return _cifar("cifar10", datasets.CIFAR10, root)


def cifar100(root: Path) -> tuple[ImageSet, ImageSet]:
    """50,000 and 10,000 photographs of a hundred classes, 32×32, colour."""
    return _cifar("cifar100", datasets.CIFAR100, root)


def stl10(root: Path) -> tuple[ImageSet, ImageSet]:
    """105,000 photographs, 5,000 of them labelled, and 8,000 held out; 96×96, colour."""

    def read(split: str) -> Callable[[bool], Any]:
        return lambda download: datasets.STL10(str(root), split=split, download=download)

    train = _fetch("stl10", datasets.STL10, root, read("train+unlabeled"))
    test = _fetch("stl10", datasets.STL10, root, read("test"))
    arrays = [(torch.from_numpy(np.ascontiguousarray(d.data)), _labels(d.labels)) for d in (train, test)]
    return _sets("stl10", arrays, tuple(train.classes))


def _cifar(name: str, kind: type[datasets.CIFAR10], root: Path) -> tuple[ImageSet, ImageSet]:
    def read(train: bool) -> Callable[[bool], Any]:
        return lambda download: kind(str(root), train=train, download=download)

    parts = [_fetch(name, kind, root, read(train)) for train in (True, False)]
    arrays = [(torch.from_numpy(d.data).permute(0, 3, 1, 2).contiguous(), _labels(d.targets)) for d in parts]
    return _sets(name, arrays, tuple(parts[0].classes))


def _idx_sets(
    name: str, kind: type[datasets.MNIST], root: Path, classes: tuple[str, ...]
) -> tuple[ImageSet, ImageSet]:
    """Read the four IDX files, gzipped or not, from the first folder that has them all."""
    files = [Path(archive).stem for archive, _ in kind.resources]
    raw = root / kind.__name__ / "raw"
    places = [raw, root / name, SYSTEM_ROOT / name]
    folder = next((p for p in places if all(find_idx(p, file) for file in files)), None)
    if folder is None:
        _fetch(name, kind, root, lambda download: kind(str(root), download=download))
        folder = raw
    train_x, train_y, test_x, test_y = (read_idx(_present(folder, file)) for file in files)
    for images, labels in ((train_x, train_y), (test_x, test_y)):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise DataError(
                f"{folder} holds images {images.shape} and labels {labels.shape} that don't belong together; "
                "fetch the files again"
            )
    arrays = [(torch.tensor(x)[:, None], _labels(y)) for x, y in ((train_x, train_y), (test_x, test_y))]
    return _sets(name, arrays, classes)


def _present(folder: Path, file: str) -> Path:
    path = find_idx(folder, file)
    if path is None:
        raise DataError(f"{folder} lacks {file}.gz; put it there by hand")
    return path


def _labels(values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values).astype(np.int64))


def _sets(name: str, arrays: list[Arrays], classes: tuple[str, ...]) -> tuple[ImageSet, ImageSet]:
    """The two sets; ids of the held-out images go on where those of the training images end."""
    train, held_out = arrays
    border = len(train[0])
    ids = torch.arange(border + len(held_out[0]))
    return ImageSet(*train, ids[:border], classes, name), ImageSet(*held_out, ids[border:], classes, name)


def _fetch(name: str, kind: type[Any], root: Path, read: Callable[[bool], Any]) -> Any:
    """`read(False)`, or `read(True)` after a download when the files aren't there yet.

    `DataError` when they can't be had: it says which files to put where.
    """
    try:
        return read(False)
    except RuntimeError:  # torchvision: not found or corrupted
        pass
    try:
        with alone(root, "download"), _impatient():  # others wait, then find the files
            return read(True)
    except (RuntimeError, OSError, EOFError, tarfile.TarError) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise DataError(f"{name} could not be downloaded ({reason}); {_by_hand(kind, root)}") from error


def _by_hand(kind: type[Any], root: Path) -> str:
    """Which files to put where, and where they come from."""
    if issubclass(kind, datasets.MNIST):
        files = ", ".join(archive for archive, _ in kind.resources)
        return f"put {files} from {kind.mirrors[0]} into {root / kind.__name__ / 'raw'} by hand"
    return f"put {kind.filename} from {kind.url} into {root} by hand"


@contextmanager
def _impatient() -> Iterator[None]:
    """Network connections that stay silent are given up, rather than waited for without end."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
