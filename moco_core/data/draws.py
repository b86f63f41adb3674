"""Random numbers that are a function of where they are used, not of what was drawn before.

Philox (Salmon et al. 2011) turns (key, counter) into random bits. The key holds the run's seed and what the
numbers are for; the counter holds the row. Any row of any past draw can therefore be had again on its own.
"""

from __future__ import annotations

import numpy as np

WORDS_A_COUNT = 4  # 64-bit words that one value of the counter yields


def words(seed: int, purpose: int, rows: int, columns: int, start: int = 0) -> np.ndarray:
    """Random uint64 rows×columns, row i being row `start + i` of the endless table of (seed, purpose).

    `columns` must be a multiple of 4.
    """
    if columns % WORDS_A_COUNT:
        raise ValueError(f"columns must be a multiple of {WORDS_A_COUNT}, got {columns}")
    key = np.array([seed, purpose], dtype=np.uint64)
    philox = np.random.Philox(key=key, counter=start * columns // WORDS_A_COUNT)
    return philox.random_raw(rows * columns).reshape(rows, columns)


def uniform(seed: int, purpose: int, rows: int, columns: int, start: int = 0) -> np.ndarray:
    """`words` as float64 in [0, 1), of 53 random bits."""
    return (words(seed, purpose, rows, columns, start) >> np.uint64(11)) * 2.0**-53
