"""What is said of a selection."""

import numpy as np
import pytest

from moco_core.dashboard.selected import class_summary
from moco_core.runs import EvalSet


@pytest.mark.parametrize(
    ("classes", "start", "end"),
    [
        (1, "digit 0: 1.", "digit 0: 1."),
        (2, "digit 1: 2, digit 0: 1.", "digit 0: 1."),
        (6, "digit 5: 6, ", "digit 0: 1."),
        (7, "digit 6: 7, ", "digit 1: 2 and 1 more class."),
        (9, "digit 8: 9, ", "digit 3: 4 and 3 more classes."),
    ],
)
def test_classes_are_counted_most_frequent_first(classes, start, end):
    labels = np.repeat(np.arange(classes), np.arange(classes) + 1)  # class i has i + 1 images
    pictures, ids = np.zeros((len(labels), 1, 1, 1), np.uint8), np.arange(len(labels))
    images = EvalSet(pictures, labels, ids, tuple(f"digit {i}" for i in range(classes)))
    text = class_summary(ids, images)
    assert text.startswith(start)
    assert text.endswith(end)
