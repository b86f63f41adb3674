"""Images from a folder of one's own, held in memory."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor
from tqdm import tqdm

from moco_core.data.decode import DecodeError, decode
from moco_core.data.images import DataError, ImageSet
from moco_core.data.listing import Listing, list_folder

DEFAULT_SIZE = 32
FEWEST = 2  # images in each of the two sets
NAMED = 5  # files named in a message


def load_folder(root: Path, image_size: int | None) -> tuple[ImageSet, ImageSet]:
    """Training and held-out images of a folder as squares of `image_size` pixels, 32 unless told.

    Sample ids are positions in the sorted list of files. Folders of grey images alone have one channel, all
    others three. Files that can't be read are named in `skipped`. Raises `DataError` when too little is left
    to learn from, or when the images don't fit into memory.
    """
    size = image_size or DEFAULT_SIZE
    listing = list_folder(root)
    _must_fit(root, len(listing.files), size)
    parts = [np.flatnonzero(~listing.held_out), np.flatnonzero(listing.held_out)]
    decoded = _decode_all(listing, parts, size)
    skipped = listing.unreadable + tuple(
        f"{listing.files[i]}: {reason}" for _, _, failures in decoded for i, reason in failures.items()
    )
    _must_suffice(listing, parts, decoded, skipped)
    channels = 1 if all(grey for _, grey, _ in decoded) else 3
    train, held_out = (
        _image_set(listing, rows, pictures[:, :channels], failures, skipped)
        for rows, (pictures, _, failures) in zip(parts, decoded, strict=True)
    )
    return train, held_out


def _decode_all(
    listing: Listing, parts: list[np.ndarray], size: int
) -> list[tuple[Tensor, bool, dict[int, str]]]:
    """For each part: pictures N×3×H×W, whether all are grey, and the reason of each file that failed."""

    def one(i: int) -> tuple[np.ndarray, bool] | DecodeError:
        try:
            return decode(listing.root / listing.files[i], size)
        except DecodeError as error:
            return error

    results = []
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
        tqdm(total=len(listing.files), desc=f"reading {listing.root.name}", unit=" images") as bar,
    ):
        warnings.simplefilter("ignore")  # Pillow warns of large pictures and odd palettes, which are handled
        for rows in parts:
            pictures = torch.zeros((len(rows), 3, size, size), dtype=torch.uint8)
            all_grey, failures = True, {}
            for place, (i, result) in enumerate(
                zip(rows.tolist(), pool.map(one, rows.tolist()), strict=True)
            ):
                if isinstance(result, DecodeError):
                    failures[i] = str(result)
                else:
                    pixels, grey = result
                    pictures[place] = torch.from_numpy(pixels.transpose(2, 0, 1))
                    all_grey &= grey
                bar.update()
            results.append((pictures, all_grey, failures))
    return results


def _image_set(
    listing: Listing, rows: np.ndarray, pictures: Tensor, failures: dict[int, str], skipped: tuple[str, ...]
) -> ImageSet:
    good = np.array([i not in failures for i in rows.tolist()], dtype=bool)
    return ImageSet(
        images=(pictures if good.all() else pictures[torch.from_numpy(good)]).contiguous(),
        labels=torch.from_numpy(listing.labels[rows[good]]),
        sample_ids=torch.from_numpy(rows[good].astype(np.int64)),
        class_names=listing.class_names,
        name=listing.root.name,
        skipped=skipped,
    )


def _must_fit(root: Path, count: int, size: int) -> None:
    needed, free = count * 3 * size**2, psutil.virtual_memory().available
    if needed > 0.8 * free:
        raise DataError(
            f"{root} holds {count:,} images, {needed / 1e9:.1f} GB at {size} pixels, and {free / 1e9:.1f} GB of "
            f"memory are free: choose an image_size below {size} or fewer images"
        )


def _must_suffice(
    listing: Listing,
    parts: list[np.ndarray],
    decoded: list[tuple[Tensor, bool, dict[int, str]]],
    skipped: tuple[str, ...],
) -> None:
    """Raise `DataError` when a set or a class has lost all its images to damage."""
    names = "; ".join(skipped[:NAMED]) + ("; …" if len(skipped) > NAMED else "")
    for what, rows, (_, _, failures) in zip(("training", "held-out"), parts, decoded, strict=True):
        left = len(rows) - len(failures)
        if left < FEWEST:
            raise DataError(
                f"{listing.root} must hold at least {FEWEST} readable {what} images, got {left}"
                + (f" ({len(skipped)} unreadable: {names})" if skipped else "")
            )
    failed = decoded[0][2].keys() | decoded[1][2].keys()
    readable = {int(label) for i, label in enumerate(listing.labels) if i not in failed}
    lost = [name for label, name in enumerate(listing.class_names) if label not in readable]
    if lost:
        raise DataError(
            f"{listing.root} has classes without a readable image: {', '.join(lost[:NAMED])}; "
            f"mend or remove them ({names})"
        )
