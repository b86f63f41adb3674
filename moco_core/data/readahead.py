"""Batches of pictures read by worker processes before they are asked for."""

from __future__ import annotations

import os
import signal
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from moco_core.data.images import DataError
from moco_core.data.listing import Listing
from moco_core.data.reading import Reading, read_one

AHEAD = 4  # batches that each worker prepares
MOST_WORKERS = 16


class Files(Dataset[Tensor]):
    """The pictures of a listing by row; `sample_ids` (N) says which file each row is."""

    def __init__(self, listing: Listing, sample_ids: np.ndarray, size: int, channels: int) -> None:
        self.listing, self.sample_ids, self.size, self.channels = listing, sample_ids, size, channels

    def __getitem__(self, row: int) -> Tensor:
        """One picture, uint8 C×size×size."""
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: list[int]) -> Tensor:
        """Pictures B×C×size×size, one after the other."""
        return self.stack(rows, (read_one(self.listing, int(i), self.size) for i in self.sample_ids[rows]))

    def stack(self, rows: list[int], readings: Iterable[Reading]) -> Tensor:
        """Readings as one tensor; `DataError` for a file that was readable when it was surveyed."""
        images = torch.empty((len(rows), self.channels, self.size, self.size), dtype=torch.uint8)
        for place, reading in enumerate(readings):
            if reading.pixels is None:
                path = self.listing.root / self.listing.files[self.sample_ids[rows[place]]]
                raise DataError(
                    f"{path} can no longer be read ({reading.reason}): mend it, then resume the run"
                )
            images[place] = torch.from_numpy(reading.pixels[: self.channels])
        return images


class ReadAhead:
    """The announced batches, in order."""

    def __init__(self, files: Files, batches: Iterable[Tensor], workers: int | None, *, pin: bool) -> None:
        self._announced: deque[list[int]] = deque()
        loader = DataLoader(
            files,
            batch_sampler=_announce(batches, self._announced),
            num_workers=workers or default_workers(),
            prefetch_factor=AHEAD,
            collate_fn=_as_it_is,
            pin_memory=pin,
            worker_init_fn=_apart,
            generator=torch.Generator(),  # so that the global one stays as it was
        )
        self._read = iter(loader)

    def take(self, rows: list[int]) -> Tensor | None:
        """The images B×C×H×W at `rows` if these are the next announced, else None."""
        if not self._announced or self._announced[0] != rows:
            return None
        self._announced.popleft()
        try:
            return next(self._read)
        except DataError as error:  # a worker's, with its traceback before the sentence
            raise DataError(str(error).strip().splitlines()[-1].partition("DataError: ")[2]) from error
        except RuntimeError as error:  # torch: a worker is gone
            raise DataError(
                "a process that read images ahead has ended, perhaps for lack of memory: "
                "lower batch_size or image_size, then resume the run"
            ) from error


def default_workers() -> int:
    """Workers for one training process: the cores it may use, shared with its neighbours, less one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # set by torchrun
    return max(1, min(MOST_WORKERS, cores // neighbours - 1))


def _announce(batches: Iterable[Tensor], announced: deque[list[int]]) -> Iterator[list[int]]:
    """Batches as they are handed to the workers, each noted in `announced`."""
    for batch in batches:
        announced.append(batch.tolist())
        yield announced[-1]


def _as_it_is(images: Any) -> Any:
    return images


def _apart(worker: int) -> None:
    """A worker's own start: in a group of its own, out of reach of signals to the trainer's.

    Those are for the trainer to answer, who needs more batches to stop in order. A worker ends when the
    trainer says so, or seconds after it is gone.
    """
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # not the trainer's handlers, which came along
    warnings.simplefilter("ignore")  # Pillow's, of large pictures and odd palettes, which are handled
