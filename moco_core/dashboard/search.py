"""Finding samples by what people call them."""

from __future__ import annotations

import numpy as np

from moco_core.runs import EvalSet


def find_samples(text: str, images: EvalSet) -> np.ndarray:
    """Rows (ascending) of the samples that `text` names: ids such as `#1017, #12`, or part of a class or a name.

    Whole numbers are ids first; those that no sample has are tried as names (digits are classes too).
    """
    found: set[int] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        number = word.removeprefix("#").strip()
        rows = np.flatnonzero(images.sample_ids == int(number)) if _is_id(number) else np.zeros(0, int)
        if not len(rows) and not word.startswith("#"):
            named = [i for i, name in enumerate(images.class_names) if word.lower() in name.lower()]
            called = [row for row, name in enumerate(images.names or ()) if word.lower() in name.lower()]
            rows = np.union1d(np.flatnonzero(np.isin(images.labels, named)), called).astype(np.int64)
        found.update(rows.tolist())
    return np.array(sorted(found), np.int64)


def _is_id(number: str) -> bool:
    return number.removeprefix("-").isascii() and number.removeprefix("-").isdigit() and len(number) < 19
