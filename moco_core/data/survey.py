"""A first look at a folder too large for memory: which images can be read, and what they are."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from moco_core.data.images import fingerprint
from moco_core.data.listing import Listing
from moco_core.data.lock import alone
from moco_core.data.reading import read_all


@dataclass(frozen=True)
class Survey:
    """What only reading every image can tell."""

    failures: dict[int, str]  # position in the listing → why that file can't be read
    channels: int  # 1 where all images are grey, else 3
    fingerprints: tuple[str, str]  # of the readable training and held-out images


def survey(listing: Listing, size: int, cache: Path) -> Survey:
    """Read every image once, or recall having done so while no file has changed since.

    So the images that can't be read are known before the first step, and every later batch is as it would be
    in memory. Processes that ask at once share one reading. `cache` is a folder of our own.
    """
    path = cache / f"survey-{_key(listing, size)}.json"
    with alone(cache, "survey"):
        recalled = _recall(path)
        if recalled is None:
            recalled = _look(listing, size)
            temporary = path.with_suffix(".tmp")
            temporary.write_text(json.dumps(asdict(recalled)))
            temporary.replace(path)
    return recalled


def _look(listing: Listing, size: int) -> Survey:
    failures: dict[int, str] = {}
    pixels = {channels: [hashlib.sha256(), hashlib.sha256()] for channels in (1, 3)}
    all_grey = True
    for which, part in enumerate((~listing.held_out, listing.held_out)):
        positions = np.flatnonzero(part)
        for position, reading in zip(positions.tolist(), read_all(listing, positions, size), strict=True):
            if reading.pixels is None:
                failures[position] = reading.reason
                continue
            all_grey &= reading.grey
            if all_grey:
                pixels[1][which].update(reading.pixels[:1].tobytes())
            pixels[3][which].update(reading.pixels.tobytes())
    channels = 1 if all_grey else 3
    readable = np.array([i not in failures for i in range(len(listing.files))], dtype=bool)
    fingerprints = [
        fingerprint(
            pixels[channels][which].digest(),
            (int((part & readable).sum()), channels, size, size),
            torch.from_numpy(listing.labels[part & readable]),
        )
        for which, part in enumerate((~listing.held_out, listing.held_out))
    ]
    return Survey(failures, channels, (fingerprints[0], fingerprints[1]))


def _key(listing: Listing, size: int) -> str:
    """A name that changes with the size and with every file's path, length and time of change."""
    digest = hashlib.sha256(f"{listing.root}\0{size}\0".encode())
    for file, held_out in zip(listing.files, listing.held_out, strict=True):
        try:
            status = os.stat(listing.root / file)
            digest.update(f"{file}\0{held_out}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
        except OSError as error:
            digest.update(f"{file}\0{error.errno}\0".encode())
    return digest.hexdigest()[:32]


def _recall(path: Path) -> Survey | None:
    try:
        saved = json.loads(path.read_text())
        failures = {int(position): str(reason) for position, reason in saved["failures"].items()}
        train, held_out = saved["fingerprints"]
        return Survey(failures, int(saved["channels"]), (str(train), str(held_out)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # never made, or damaged: look again
