"""What a run has logged, read as it grows: a look takes in only what came since the look before."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import numpy as np

from moco_core.runs.reading import Mark, is_file, settled_mark, whole
from moco_core.runs.schema import HISTORY_FILE, HISTORY_KEYS

_DECODER = json.JSONDecoder(parse_int=whole)
_ROW = np.dtype((np.float64, len(HISTORY_KEYS)))


class History:
    """The history.jsonl of one run, for as many looks as one likes, from any thread."""

    def __init__(self, run: Path) -> None:
        self._path = run / HISTORY_FILE
        self._lock = Lock()
        self._mark: Mark | None = None  # of the file when it was last looked at
        self._forget()

    def read(self) -> dict[str, np.ndarray]:
        """Equally long arrays of the logged quantities; lines that can't be read are left out."""
        with self._lock:
            mark = settled_mark(self._path)
            if mark is None or mark != self._mark:  # else nothing was written since
                self._look()
                self._mark = mark
            return dict(zip(HISTORY_KEYS, self._columns, strict=True))

    def _look(self) -> None:
        try:
            if is_file(self._path):
                with self._path.open("rb") as file:
                    self._follow(file)
            else:
                self._forget()
        except OSError:
            self._forget()

    def _forget(self) -> None:
        self._taken = 0  # bytes of the file that the columns hold
        self._last = b""  # the line that ends there
        self._columns = np.empty((len(HISTORY_KEYS), 0))
        self.unread = 0  # whole lines that can't be read, as of the last look

    def _follow(self, file: BinaryIO) -> None:
        file.seek(self._taken - len(self._last))
        if file.read(len(self._last)) != self._last:  # another file in its place, as when a run goes on
            self._forget()
            file.seek(0)
        rows = np.fromiter(self._new_rows(file), _ROW)
        if len(rows):
            self._columns = np.concatenate([self._columns, rows.T], axis=1)

    def _new_rows(self, file: BinaryIO) -> Iterator[tuple[float, ...]]:
        for line in file:
            row = _row(line)
            if row is None and not line.endswith(b"\n"):
                return  # it is being written
            self._taken += len(line)
            self._last = line
            if row is None:
                self.unread += 1
            else:
                yield row


def _row(line: bytes) -> tuple[float, ...] | None:
    try:
        record = _DECODER.decode(line.decode())
        row = tuple(math.nan if record[key] is None else float(record[key]) for key in HISTORY_KEYS)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return row if math.isfinite(row[HISTORY_KEYS.index("step")]) else None
