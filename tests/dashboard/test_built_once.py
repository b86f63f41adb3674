"""A figure of the same content is built once; the least difference makes another."""

import numpy as np

from moco_core.dashboard.figures.cosine_histograms import Histogram, Panel, histogram_grid
from moco_core.dashboard.figures.neighbour_overlap import overlap_chart

EDGES = np.linspace(-1, 1, 5)


def panels(*counts: int, name: str = "m = 0.99") -> list[Panel]:
    return [Panel(name, [Histogram("positives", np.array(counts))])]


def test_equal_content_is_one_figure():
    assert histogram_grid(EDGES, panels(1, 2, 3, 4)) is histogram_grid(EDGES.copy(), panels(1, 2, 3, 4))
    assert overlap_chart(np.array([0.0, 1.0]), 3) is overlap_chart(np.array([0.0, 1.0]), 3)


def test_each_difference_is_another_figure():
    made = [
        histogram_grid(EDGES, panels(1, 2, 3, 4)),
        histogram_grid(EDGES, panels(1, 2, 3, 5)),
        histogram_grid(EDGES, panels(1, 2, 3, 4, name="m = 0")),
        histogram_grid(EDGES, panels(1, 2, 3, 4), scale="log"),
        histogram_grid(EDGES * 0.5, panels(1, 2, 3, 4)),
    ]
    assert len({figure.to_json() for figure in made}) == len(made)
