"""The counter-based generator against Philox 4×64-10 written out with whole numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.data.draws import uniform, words

MASK = 2**64 - 1


def philox(counter: int, key: tuple[int, int]) -> list[int]:
    """One block of four words (Salmon et al. 2011, section 3.3)."""
    c = [counter >> 64 * i & MASK for i in range(4)]
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(b >> 64) ^ c[1] ^ k0, b & MASK, (a >> 64) ^ c[3] ^ k1, a & MASK]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & MASK, (k1 + 0xBB67AE8584CAA73B) & MASK
    return c


def test_reference_gives_the_published_known_answer():
    assert philox(0, (0, 0)) == [
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    ]


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**40), st.integers(0, 10**9))
def test_each_row_is_the_blocks_that_its_number_counts_to(seed, purpose, start):
    got = words(seed, purpose, rows=3, columns=8, start=start)
    for row in range(3):
        first = (start + row) * 2 + 1  # the generator counts up before its first block
        expected = philox(first, (seed, purpose)) + philox(first + 1, (seed, purpose))
        assert got[row].tolist() == expected


@given(st.integers(0, 500), st.integers(1, 50))
def test_any_rows_can_be_had_alone(start, rows):
    whole = words(3, 5, rows=start + rows, columns=16)
    np.testing.assert_array_equal(words(3, 5, rows=rows, columns=16, start=start), whole[start:])


def test_uniform_is_spread_over_the_unit_interval():
    drawn = uniform(1, 2, rows=20_000, columns=16)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.apply_along_axis(lambda u: np.histogram(u, bins=10, range=(0, 1))[0], 0, drawn)
    # 2,000 a bin, standard deviation 42
    assert np.abs(counts - 2000).max() < 6 * 42
    correlation = np.corrcoef(drawn.T) - np.eye(16)
    assert np.abs(correlation).max() < 6 / np.sqrt(20_000)


def test_odd_numbers_of_columns_are_refused():
    with pytest.raises(ValueError, match="multiple of 4, got 6"):
        words(0, 0, rows=1, columns=6)
