"""Images that don't fit into memory: read from their files when a batch is asked for, ahead where announced."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from moco_core.data.folder import DEFAULT_SIZE, must_suffice, skipped
from moco_core.data.images import ImageSet
from moco_core.data.listing import Listing, list_folder
from moco_core.data.readahead import Files, ReadAhead
from moco_core.data.reading import BLOCK, read_all
from moco_core.data.survey import Survey, survey


def stream_folder(
    root: Path, image_size: int | None, cache: Path, workers: int | None = None
) -> tuple[StreamedImages, StreamedImages]:
    """Training and held-out images of a folder, the same as `load_folder`'s, left on disk.

    All files are read once at the first call, to find those that can't be; `cache` keeps what was found.
    Raises `DataError` as `load_folder` does.
    """
    size = image_size or DEFAULT_SIZE
    listing = list_folder(root)
    found = survey(listing, size, cache)
    must_suffice(listing, found.failures)
    return (
        StreamedImages(listing, found, size, held_out=False, workers=workers),
        StreamedImages(listing, found, size, held_out=True, workers=workers),
    )


class StreamedImages:
    """The training or held-out images of a folder; answers as an `ImageSet` does, without holding pixels."""

    def __init__(
        self, listing: Listing, found: Survey, size: int, *, held_out: bool, workers: int | None = None
    ) -> None:
        part = listing.held_out if held_out else ~listing.held_out
        positions = np.array([i for i in np.flatnonzero(part).tolist() if i not in found.failures])
        self.labels = torch.from_numpy(listing.labels[positions])  # N, int64, −1 where unknown
        self.sample_ids = torch.from_numpy(positions)  # N, int64, positions in the listing
        self.class_names = listing.class_names
        self.name = listing.root.name
        self.skipped = skipped(listing, found.failures)
        self.channels = found.channels
        self.image_size = size
        self.device = torch.device("cpu")
        self._fingerprint = found.fingerprints[held_out]
        self._files = Files(listing, positions, size, found.channels)
        self._workers = workers
        self._ahead: ReadAhead | None = None
        self._last: tuple[list[int], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.sample_ids)

    def fingerprint(self) -> str:
        """The same as that of the images in memory."""
        return self._fingerprint

    def to(self, device: torch.device | str) -> StreamedImages:
        """The same set, whose batches go to `device`."""
        moved = copy.copy(self)
        moved.device = torch.device(device)
        moved.labels, moved.sample_ids = self.labels.to(device), self.sample_ids.to(device)
        moved._ahead = moved._last = None
        return moved

    def subset(self, rows: Tensor) -> ImageSet:
        """The images at positions `rows`, read into memory."""
        rows = rows.cpu()
        return ImageSet(
            images=self._read(rows.tolist()).to(self.device),
            labels=self.labels[rows.to(self.device)],
            sample_ids=self.sample_ids[rows.to(self.device)],
            class_names=self.class_names,
            name=self.name,
            skipped=self.skipped,
        )

    def expect(self, batches: Iterable[Tensor]) -> None:
        """Start reading ahead the batches that `batch` will be asked for, in this order.

        Other requests in between are answered too, from the files.
        """
        self._ahead = ReadAhead(self._files, batches, self._workers, pin=self.device.type == "cuda")

    def batch(self, indices: Tensor) -> Tensor:
        """The images at positions `indices` (B) as uint8 B×C×H×W on the set's device.

        Raises `DataError` when a file has become unreadable since it was surveyed.
        """
        rows = indices.tolist()
        if self._last is None or self._last[0] != rows:  # the second view of a batch asks again
            images = self._ahead.take(rows) if self._ahead else None
            if images is None:
                images = self._read(rows)
            self._last = rows, images.to(self.device, non_blocking=True)
        return self._last[1]

    def _read(self, rows: list[int]) -> Tensor:
        files = self._files
        positions = files.sample_ids[rows]
        readings = read_all(files.listing, positions, self.image_size, progress=len(rows) > BLOCK)
        return files.stack(rows, readings)
