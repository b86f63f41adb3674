"""What people type finds the samples they mean."""

import numpy as np
import pytest

from moco_core.dashboard.search import find_samples
from moco_core.runs import EvalSet

IMAGES = EvalSet(
    np.zeros((6, 1, 1, 1), np.uint8),
    np.array([0, 1, 2, 1, 0, -1]),
    np.array([1000, 1001, 1002, 3, 4, 5]),
    ("Ankle boot", "Bag", "<b>3</b>"),
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", []),
        (" , ,", []),
        ("boot", [0, 4]),
        ("BAG", [1, 3]),
        ("#1002", [2]),
        ("1002", [2]),
        ("3", [3]),  # an id first
        ("#3", [3]),
        ("<b>", [2]),
        ("boot, #5", [0, 4, 5]),
        ("#1, nothing", []),
        ("#99999999999999999999999", []),
        ("²", []),
        ("-5", []),
    ],
)
def test_find_samples(text, rows):
    assert find_samples(text, IMAGES).tolist() == rows


def test_names_of_samples_are_searched_too():
    images = EvalSet(
        np.zeros((3, 0, 0, 0), np.uint8),
        np.array([0, 1, -1]),
        np.arange(3),
        ("boot", "bag"),
        ("Rain", "boots", ""),
    )
    assert find_samples("boot", images).tolist() == [0, 1]
    assert find_samples("rain", images).tolist() == [0]


def test_numbers_that_are_no_ids_are_class_names():
    digits = EvalSet(
        np.zeros((2, 1, 1, 1), np.uint8), np.array([7, 3]), np.array([100, 101]), tuple("0123456789")
    )
    assert find_samples("7", digits).tolist() == [0]
