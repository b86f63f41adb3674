"""A fixed division of a data set that comes without one."""

from __future__ import annotations

import numpy as np

SHARE = 0.2
FEWEST_TO_SPLIT = 4  # two to train on, two held out
SEED = 20191113  # of the division alone: every run of a data set trains on the same images


def held_out_rows(labels: np.ndarray) -> np.ndarray:
    """Which of N samples are held out (N bool): a fifth, at least two, the same share of every class.

    Classes of one or two samples stay in training where there are others to take.
    """
    return stratified_rows(labels, max(2, round(SHARE * len(labels))), SEED)


def stratified_rows(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Which of N samples are among `count` chosen ones (N bool), the same share of every class; all if N is less.

    Each sample gets its rank in a random order of its class, over the size of the class; the lowest are chosen.
    """
    order = np.random.Generator(np.random.Philox(seed)).permutation(len(labels))
    grouped = order[np.argsort(labels[order], kind="stable")]  # class by class, each in random order
    _, starts, sizes = np.unique(labels[grouped], return_index=True, return_counts=True)
    rank = np.empty(len(labels))
    rank[grouped] = (np.arange(len(labels)) - np.repeat(starts, sizes) + 0.5) / np.repeat(sizes, sizes)
    chosen = np.zeros(len(labels), dtype=bool)
    lowest = order[np.argsort(rank[order], kind="stable")]
    chosen[lowest[:count]] = True
    return chosen
