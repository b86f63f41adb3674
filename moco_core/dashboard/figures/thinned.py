"""Long series as a chart can show them."""

from __future__ import annotations

import numpy as np

MOST_POINTS = 2000  # more than a chart has pixels across


def thinned(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """The values, or where there are more than `most`, their means over as many equal stretches."""
    if len(values) <= most:
        return values
    edges = np.linspace(0, len(values), most + 1).astype(int)
    return np.asarray(np.add.reduceat(values, edges[:-1]) / np.diff(edges))
