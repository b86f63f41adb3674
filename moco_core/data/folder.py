"""Images from a folder of one's own, held in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor

from moco_core.config import some
from moco_core.data.images import DataError, ImageSet
from moco_core.data.listing import Listing, list_folder
from moco_core.data.reading import read_all

DEFAULT_SIZE = 32
FEWEST = 2  # images in each of the two sets


def load_folder(root: Path, image_size: int | None) -> tuple[ImageSet, ImageSet]:
    """Training and held-out images of a folder as squares of `image_size` pixels, 32 unless told.

    Sample ids are positions in the sorted list of files. Folders of grey images alone have one channel, all
    others three. Files that can't be read are named in `skipped`. Raises `DataError` when too little is left
    to learn from, or when the images don't fit into memory.
    """
    size = image_size or DEFAULT_SIZE
    listing = list_folder(root)
    needed, free = bytes_needed(listing, size), psutil.virtual_memory().available
    if needed > 0.8 * free:
        raise DataError(
            f"{root} holds {len(listing.files):,} images, {needed / 1e9:.1f} GB at {size} pixels, and "
            f"{free / 1e9:.1f} GB of memory are free: stream them, or choose an image_size below {size}"
        )
    failures: dict[int, str] = {}
    parts = [
        _read(listing, np.flatnonzero(part), size, failures) for part in (~listing.held_out, listing.held_out)
    ]
    must_suffice(listing, failures)
    channels = 1 if all(grey for _, grey in parts) else 3
    train, held_out = (
        _image_set(listing, part, pixels[:, :channels], failures)
        for part, (pixels, _) in zip((~listing.held_out, listing.held_out), parts, strict=True)
    )
    return train, held_out


def bytes_needed(listing: Listing, size: int) -> int:
    """Memory that all images of a folder take as colour squares of `size` pixels."""
    return len(listing.files) * 3 * size**2


def must_suffice(listing: Listing, failures: Mapping[int, str]) -> None:
    """Raise `DataError` when a set or a class has lost too many images to damage."""
    names = skipped(listing, failures)
    named = some(names, "; ")
    readable = np.array([i not in failures for i in range(len(listing.files))])
    for what, part in (("training", ~listing.held_out), ("held-out", listing.held_out)):
        left = int((part & readable).sum())
        if left < FEWEST:
            raise DataError(
                f"{listing.root} must hold at least {FEWEST} readable {what} images, got {left}"
                + (f" ({len(names)} unreadable: {named})" if names else "")
            )
    found = set(listing.labels[readable].tolist())
    lost = [name for label, name in enumerate(listing.class_names) if label not in found]
    if lost:
        raise DataError(
            f"{listing.root} has classes without a readable image: {some(lost)}; "
            f"mend or remove them ({named})"
        )


def skipped(listing: Listing, failures: Mapping[int, str]) -> tuple[str, ...]:
    """The files and folders that can't be read, as "path: reason"."""
    return listing.unreadable + tuple(
        f"{listing.files[i]}: {reason}" for i, reason in sorted(failures.items())
    )


def _read(
    listing: Listing, positions: np.ndarray, size: int, failures: dict[int, str]
) -> tuple[Tensor, bool]:
    """Pixels N×3×H×W, blank where a file failed, and whether all are grey; adds to the failures."""
    pixels = torch.zeros((len(positions), 3, size, size), dtype=torch.uint8)
    all_grey = True
    for place, reading in enumerate(read_all(listing, positions, size)):
        if reading.pixels is None:
            failures[int(positions[place])] = reading.reason
        else:
            pixels[place] = torch.from_numpy(reading.pixels)
            all_grey &= reading.grey
    return pixels, all_grey


def _image_set(listing: Listing, part: np.ndarray, pixels: Tensor, failures: Mapping[int, str]) -> ImageSet:
    positions = np.flatnonzero(part)
    good = np.array([i not in failures for i in positions.tolist()], dtype=bool)
    return ImageSet(
        images=(pixels if good.all() else pixels[torch.from_numpy(good)]).contiguous(),
        labels=torch.from_numpy(listing.labels[positions[good]]),
        sample_ids=torch.from_numpy(positions[good]),
        class_names=listing.class_names,
        name=listing.root.name,
        skipped=skipped(listing, failures),
    )
