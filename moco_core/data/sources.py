"""Data sets by name: training and held-out images."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import torch
import torch.nn.functional as F
from torch import Tensor

from moco_core.config import FOLDER_PREFIX, nearest
from moco_core.data import downloads
from moco_core.data.folder import DEFAULT_SIZE, bytes_needed, load_folder
from moco_core.data.images import DataError, Images, ImageSet
from moco_core.data.listing import list_folder
from moco_core.data.split import held_out_rows
from moco_core.data.streaming import stream_folder

DIGITS_SIZE = 16
STORAGES = ("auto", "memory", "stream")
Loader = Callable[[Path, int | None], tuple[ImageSet, ImageSet]]


def load(
    dataset: str, data_root: Path | None = None, image_size: int | None = None
) -> tuple[ImageSet, ImageSet]:
    """(training, held-out) images of a data set of `LOADERS`, or of `folder:PATH`.

    Downloaded sets live in `data_root`, or else where `default_root` says. `image_size` in pixels resizes;
    without it images keep their own size (digits 16, folders 32). Sample ids of the held-out images go on
    where those of the training images end, or are positions in the source where it comes undivided. Raises
    `DataError` for an unknown name and when the images can't be had.
    """
    if dataset.startswith(FOLDER_PREFIX):
        return load_folder(_folder(dataset), image_size)
    if dataset not in LOADERS:
        raise DataError(
            f"dataset must be one of {', '.join(LOADERS)}, {FOLDER_PREFIX}PATH; "
            f"got {dataset!r}{nearest(dataset, LOADERS)}"
        )
    train, held_out = LOADERS[dataset](data_root or default_root(), image_size)
    return train, held_out


def open_images(
    dataset: str, data_root: Path | None = None, image_size: int | None = None, storage: str = "auto"
) -> tuple[Images, Images]:
    """`load`, or for folders too large for that the same images streamed from disk.

    `storage` is `memory`, `stream` (folders alone), or `auto`: memory while the images take at most half of
    what is free. Raises `DataError` as `load` does.
    """
    if storage not in STORAGES:
        raise DataError(f"storage must be one of {', '.join(STORAGES)}, got {storage!r}")
    if not dataset.startswith(FOLDER_PREFIX):
        if storage == "stream":
            raise DataError(f"storage 'stream' takes {FOLDER_PREFIX}PATH; {dataset} is always held in memory")
        return load(dataset, data_root, image_size)
    root = _folder(dataset)
    if storage == "auto":
        needed = bytes_needed(list_folder(root), image_size or DEFAULT_SIZE)
        storage = "memory" if needed <= psutil.virtual_memory().available / 2 else "stream"
    if storage == "memory":
        return load_folder(root, image_size)
    return stream_folder(root, image_size, cache=data_root or default_root())


def default_root() -> Path:
    """Where downloaded data sets live: the variable MOCO_DATA, or `~/.cache/moco-lens`."""
    return Path(os.environ.get("MOCO_DATA") or Path.home() / ".cache" / "moco-lens")


def _folder(dataset: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(dataset.removeprefix(FOLDER_PREFIX))))


def _digits(root: Path, image_size: int | None) -> tuple[ImageSet, ImageSet]:
    """scikit-learn's 1,797 handwritten digits of 8×8 pixels, made larger; a fixed fifth is held out."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    greys = torch.from_numpy(images * 255 / 16).view(-1, 1, 8, 8)  # from 0 … 16
    everything = ImageSet(
        images=resized(greys, image_size or DIGITS_SIZE),
        labels=torch.from_numpy(labels.astype(np.int64)),
        sample_ids=torch.arange(len(labels)),
        class_names=tuple("0123456789"),
        name="digits",
    )
    held_out = torch.from_numpy(held_out_rows(labels))
    return everything.subset((~held_out).nonzero()[:, 0]), everything.subset(held_out.nonzero()[:, 0])


def _from(read: Callable[[Path], tuple[ImageSet, ImageSet]]) -> Loader:
    """A loader of a data set whose images have a size of their own."""

    def loader(root: Path, image_size: int | None) -> tuple[ImageSet, ImageSet]:
        train, held_out = read(root)
        return _with_size(train, image_size), _with_size(held_out, image_size)

    return loader


def _with_size(images: ImageSet, size: int | None) -> ImageSet:
    if size is None or size == images.image_size:
        return images
    blocks = [resized(block, size) for block in images.images.split(4096)]
    return replace(images, images=torch.cat(blocks))


def resized(images: Tensor, size: int) -> Tensor:
    """Images N×C×H×W of values 0 … 255 as uint8 N×C×size×size, bilinear with antialiasing."""
    values = F.interpolate(images.float(), size=(size, size), mode="bilinear", antialias=True)
    return values.round().clamp(0, 255).to(torch.uint8)


LOADERS: dict[str, Loader] = {
    "digits": _digits,
    "mnist": _from(downloads.mnist),
    "fashion-mnist": _from(downloads.fashion_mnist),
    "cifar10": _from(downloads.cifar10),
    "cifar100": _from(downloads.cifar100),
    "stl10": _from(downloads.stl10),
}
