"""What is packed here is what a reader of the format finds."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.dashboard.packs import pack


def unpack(data):
    """The format as its description says, read without the writer."""
    length = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + length])
    arrays = {}
    for name, (kind, shape, offset) in header["arrays"].items():
        start = 4 + length + offset
        assert start % np.dtype(kind).itemsize == 0
        size = int(np.prod(shape))
        arrays[name] = np.frombuffer(data, kind, size, start).reshape(shape)
    return header["id"], header["meta"], arrays


@given(
    st.lists(st.floats(width=32, allow_nan=False), max_size=9),
    st.binary(max_size=9),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9),
    st.text(max_size=5),
)
def test_arrays_and_values_come_back(floats, raw, integers, text):
    arrays = {
        "a": np.array(floats, np.float32),
        "b": np.frombuffer(raw, np.uint8),
        "c": np.array(integers, np.int32).reshape(1, -1),
    }
    packed = pack(arrays, {"text": text})
    name, meta, found = unpack(packed.data)
    assert name == packed.id
    assert meta == {"text": text}
    for key, array in arrays.items():
        np.testing.assert_array_equal(found[key], array)


def test_the_id_names_the_content():
    one = pack({"a": np.zeros(3, np.float32)}, {"t": 1})
    assert one == pack({"a": np.zeros(3, np.float32)}, {"t": 1})
    assert one.id != pack({"a": np.zeros(3, np.float32)}, {"t": 2}).id
    assert one.id != pack({"a": np.array([0, 0, 1e-30], np.float32)}, {"t": 1}).id
    assert one.id != pack({"b": np.zeros(3, np.float32)}, {"t": 1}).id


def test_types_that_browsers_lack_are_refused():
    with pytest.raises(ValueError, match=r"a must be of one of the types .* got <f8"):
        pack({"a": np.zeros(2)}, {})


def test_numbers_that_are_no_json_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        pack({}, {"low": float("nan")})
