"""Many image files, read side by side."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from moco_core.data.decode import DecodeError, decode
from moco_core.data.listing import Listing

BLOCK = 1024  # files read ahead of the one asked for, which bounds memory


class Reading(NamedTuple):
    """What became of one file."""

    pixels: np.ndarray | None  # uint8 3×size×size, None where the file can't be read
    grey: bool
    reason: str  # why not, or empty


def read_one(listing: Listing, position: int, size: int) -> Reading:
    """The picture at a position of the listing."""
    try:
        pixels, grey = decode(listing.root / listing.files[position], size)
    except DecodeError as error:
        return Reading(None, False, str(error))
    return Reading(pixels.transpose(2, 0, 1), grey, "")


def read_all(
    listing: Listing, positions: np.ndarray, size: int, *, progress: bool = True, block: int = BLOCK
) -> Iterator[Reading]:
    """The pictures at `positions`, in that order; threads decode them, as Pillow lets others run meanwhile.

    At most `block` pictures are held at a time.
    """
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool,
        tqdm(
            total=len(positions), desc=f"reading {listing.root.name}", unit=" images", disable=not progress
        ) as bar,
    ):
        warnings.simplefilter("ignore")  # Pillow warns of large pictures and odd palettes, which are handled
        for start in range(0, len(positions), block):
            part = positions[start : start + block].tolist()
            for reading in pool.map(lambda i: read_one(listing, i, size), part):
                yield reading
                bar.update()
