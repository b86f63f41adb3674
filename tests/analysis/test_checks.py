"""What can't be answered is refused in a sentence with the argument, the value and what is accepted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.analysis import checks
from moco_core.analysis.checks import as_count, as_labels, as_pair, as_positive, as_rows, blocks, evenly

good = np.arange(6.0).reshape(3, 2) + 1


@pytest.mark.parametrize(
    ("x", "unit", "message"),
    [
        (np.ones(3), False, r"x must be an N×D array .* got shape \(3,\)"),
        (np.ones((3, 0)), False, r"x must be an N×D array with D at least 1, got shape \(3, 0\)"),
        (np.ones((1, 3)), False, "x must have at least 2 rows, got 1"),
        ([[1.0, 2], [3]], False, "x must be an array; its rows differ in length"),
        ([["a", "b"], ["c", "d"]], False, "x must hold real numbers, got"),
        (np.ones((2, 2), complex), False, "x must hold real numbers, got complex128"),
        ([[1, 2], [np.nan, 4], [5, np.nan]], False, r"x is not finite in row 1 \(2 such in all\)"),
        ([[1, np.inf], [3, 4]], False, "x is not finite in row 0"),
        ([[1, -np.inf], [3, 4]], False, "x is not finite in row 0"),
        ([[1, 1], [0, 0]], True, r"x is zero in row 1 \(1 such in all\); every row needs a length above 0"),
    ],
)
def test_rows_that_cannot_be_used(x, unit, message):
    with pytest.raises(ValueError, match=message):
        as_rows(x, "x", unit=unit)


def test_zero_rows_are_fine_where_no_direction_is_needed():
    assert as_rows([[0, 0], [1, 1]], "x").tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("i4", "f8"), ("u1", "f8"), ("?", "f8")],
)
def test_narrow_floats_stay_narrow(given_type, kept):
    assert as_rows(good.astype(given_type), "x").dtype == kept
    assert as_rows(good.astype(given_type), "x", unit=True).dtype == kept


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_unit_rows_of_any_scale(scale):
    assert as_rows(good * scale, "x", unit=True) == pytest.approx(
        good / np.hypot(*good.T)[:, None], rel=1e-14
    )


def test_the_input_is_left_alone():
    x = good.copy()
    as_rows(x, "x", unit=True)
    assert (x == good).all()


def test_pairs_need_equally_many_rows():
    with pytest.raises(ValueError, match=r"second must have as many rows as first \(3\), got 2"):
        as_pair(good, good[:2], ("first", "second"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "labels must give the class of each row; there are none"),
        ([0, 1], r"labels must be one number a row, 3 in all, got shape \(2,\)"),
        ([0.0, 1.0, 2.0], "labels must be whole numbers, got float64"),
        (["a", "b", "c"], "labels must be whole numbers"),
    ],
)
def test_labels_that_cannot_be_used(labels, message):
    with pytest.raises(ValueError, match=message):
        as_labels(labels, 3)


@pytest.mark.parametrize("value", [0, -3, 6, 1.5, "2", None, np.nan])
def test_counts_out_of_range(value):
    with pytest.raises(ValueError, match=r"k must be .*at least 1 and at most 5 \(N − 1\), got"):
        as_count(value, "k", 5, "N − 1")


def test_counts_in_range():
    assert [as_count(v, "k", 5) for v in (1, 5, np.int32(3))] == [1, 5, 3]


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf])
def test_positive_numbers(value):
    with pytest.raises(ValueError, match="t must be a finite number above 0, got"):
        as_positive(value, "t")


@given(rows=st.integers(0, 500), width=st.integers(0, 300), most=st.integers(1, 50))
def test_blocks_cover_every_row_once_and_stay_small(rows, width, most):
    covered = [i for block in blocks(rows, width, most) for i in range(rows)[block]]
    assert covered == list(range(rows))
    assert all(0 < block.stop - block.start <= most for block in blocks(rows, width, most))


@given(count=st.integers(0, 10**7), most=st.integers(2, 70_000))
def test_rows_are_evenly_spaced_and_none_comes_twice(count, most):
    rows = evenly(count, most)
    assert len(rows) == min(count, most)
    if len(rows) > 1:
        assert (rows[0], rows[-1]) == (0, count - 1)
        gaps = np.diff(rows)
        assert 1 <= gaps.min() <= gaps.max() <= gaps.min() + 1


def test_blocks_shrink_with_the_width():
    assert next(iter(blocks(10**6, checks.BLOCK // 8))).stop == 8
    assert next(iter(blocks(10**6, checks.BLOCK * 8))).stop == 1
