"""A first look at a folder too large for memory: which images can be read, and what they are."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from moco_core.data.images import DataError, begin_fingerprint
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
    """Read every image, or recall having done so while no file has changed since.

    So the images that can't be read are known before the first step, and every later batch is as it would be
    in memory. Processes that ask at once share one reading. `cache` is a folder of our own. Raises
    `DataError` where it can't be written to.
    """
    path = cache / f"survey-{_key(listing, size)}.json"
    try:
        with alone(cache, "survey"):
            found = _recall(path)
            if found is None:
                found = _look(listing, size, known={})
                temporary = path.with_suffix(".tmp")
                temporary.write_text(json.dumps(asdict(found)))
                temporary.replace(path)
            return found
    except OSError as error:
        raise DataError(
            f"{cache} can't be written to ({error.strerror}): set MOCO_DATA to a folder that can"
        ) from error


def _look(listing: Listing, size: int, known: dict[int, str]) -> Survey:
    """Read all but the files known to fail; where others do, begin again, as the fingerprint leaves them out."""
    failures, all_grey = dict(known), True
    parts = [
        np.array([i for i in np.flatnonzero(part).tolist() if i not in known], dtype=np.int64)
        for part in (~listing.held_out, listing.held_out)
    ]
    digests = {
        channels: [
            begin_fingerprint((len(part), channels, size, size), listing.labels[part]) for part in parts
        ]
        for channels in (1, 3)
    }
    for which, part in enumerate(parts):
        for position, reading in zip(part.tolist(), read_all(listing, part, size), strict=True):
            if reading.pixels is None:
                failures[position] = reading.reason
                continue
            all_grey &= reading.grey
            if all_grey:
                digests[1][which].update(reading.pixels[:1].tobytes())
            digests[3][which].update(reading.pixels.tobytes())
    if len(failures) > len(known):
        return _look(listing, size, failures)
    channels = 1 if all_grey else 3
    train, held_out = (digest.hexdigest() for digest in digests[channels])
    return Survey(failures, channels, (train, held_out))


def _key(listing: Listing, size: int) -> str:
    """A name that changes with the size and with every file's path, length and time of change."""
    digest = hashlib.sha256(os.fsencode(f"{listing.root}\0{size}\0"))
    for file, held_out in zip(listing.files, listing.held_out, strict=True):
        try:
            status = os.stat(listing.root / file)
            state = f"{held_out}\0{status.st_size}\0{status.st_mtime_ns}"
        except OSError as error:
            state = f"{error.errno}"
        digest.update(os.fsencode(f"{file}\0{state}\0"))  # names need not be UTF-8
    return digest.hexdigest()[:32]


def _recall(path: Path) -> Survey | None:
    try:
        saved = json.loads(path.read_text())
        failures = {int(position): str(reason) for position, reason in saved["failures"].items()}
        train, held_out = saved["fingerprints"]
        return Survey(failures, int(saved["channels"]), (str(train), str(held_out)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # never made, or damaged: look again
