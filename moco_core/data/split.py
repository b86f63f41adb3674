"""A fixed division of a data set that comes without one."""

from __future__ import annotations

import numpy as np

SHARE = 0.2
FEWEST_TO_SPLIT = 4  # two to train on, two held out
SEED = 20191113  # of the division alone: every run of a data set trains on the same images


def held_out_rows(labels: np.ndarray) -> np.ndarray:
    """Which of N samples are held out (N bool): a fifth, at least two, the same share of every class.

    Each sample gets its rank in a fixed random order of its class, over the size of the class; the lowest
    fifth is held out. So classes of one or two samples stay in training where there are others to take.
    """
    order = np.random.Generator(np.random.Philox(SEED)).permutation(len(labels))
    rank = np.empty(len(labels))
    for label in np.unique(labels):
        members = order[labels[order] == label]
        rank[members] = (np.arange(len(members)) + 0.5) / len(members)
    held_out = np.zeros(len(labels), dtype=bool)
    lowest = order[np.argsort(rank[order], kind="stable")]
    held_out[lowest[: max(2, round(SHARE * len(labels)))]] = True
    return held_out
