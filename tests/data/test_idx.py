from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moco_core.data.idx import find_idx, read_idx
from moco_core.data.images import DataError
from tests.data.files import write_idx


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=3, max_side=7)), st.booleans())
def test_what_is_written_is_read(tmp_path, array, zipped):
    np.testing.assert_array_equal(read_idx(write_idx(tmp_path / "x", array, zipped=zipped)), array)


def test_plain_files_come_before_gzipped_ones(tmp_path):
    assert find_idx(tmp_path, "x") is None
    zipped = write_idx(tmp_path / "x", np.zeros(3, np.uint8), zipped=True)
    assert find_idx(tmp_path, "x") == zipped
    plain = write_idx(tmp_path / "x", np.zeros(3, np.uint8), zipped=False)
    assert find_idx(tmp_path, "x") == plain


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        b"\0\0\x08\x03\0\0",  # ends within its shape
        b"\0\0\x0d\x01" + struct.pack(">I", 1) + bytes(4),  # floats
        b"\0\0\x08\x01" + struct.pack(">I", 5) + bytes(4),  # one byte short
        b"\0\0\x08\x01" + struct.pack(">I", 3) + bytes(4),  # one byte long
        b"PK\x03\x04 not an idx file",
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_damaged_files_are_named(tmp_path, content, zipped):
    path = tmp_path / ("x.gz" if zipped else "x")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError, match="is damaged: not an IDX file") as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("cut", [5, 30, -1])
def test_a_damaged_archive_is_named(tmp_path, cut):
    path = write_idx(tmp_path / "x", np.arange(200, dtype=np.uint8), zipped=True)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match="can't be read") as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
