"""Which images form the batch of a step: a pure function of (seed, step)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from moco_core.data.draws import words

PURPOSE = 7  # of the draws; augmentation uses 0 … 6


def batch_indices(n: int, batch_size: int, seed: int, step: int) -> Tensor:
    """Positions 0 … n−1 of the images in the batch of `step` (1, 2, …), int64 B, on the CPU.

    Each epoch is a new order of all n images; what is left over at its end, n mod B images, sits out.
    Raises `ValueError` for a batch larger than the data set and for a step before the first.
    """
    if not 1 <= batch_size <= n:
        raise ValueError(f"batch_size must be at least 1 and at most the {n} images, got {batch_size}")
    if step < 1:
        raise ValueError(f"step must be at least 1, got {step}")
    epoch, place = divmod(step - 1, n // batch_size)
    return _order(n, seed, epoch)[place * batch_size : (place + 1) * batch_size]


@lru_cache(maxsize=4)
def _order(n: int, seed: int, epoch: int) -> Tensor:
    """A permutation of 0 … n−1: the ranks of n random 64-bit words."""
    drawn = words(seed, epoch << 3 | PURPOSE, -(-n // 4), 4).ravel()[:n]
    return torch.from_numpy(np.argsort(drawn, kind="stable"))
