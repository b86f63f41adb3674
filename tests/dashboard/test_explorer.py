"""What comes back from the browser is taken only where it makes sense; what goes there is complete."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.dashboard.explorer import _sample_pack, picked_row, played_frame, selected_rows
from moco_core.dashboard.palette import CLASS_COLOURS
from moco_core.dashboard.points import UNKNOWN, Colour, Points
from moco_core.runs import EvalSet
from tests.dashboard.test_packs import unpack


def message(rows, count, images="a"):
    """What explorer.js sends: one bit a sample, lowest first."""
    octets = bytearray(-(-count // 8))
    for row in rows:
        octets[row // 8] |= 1 << (row % 8)
    return {"images": images, "bits": base64.b64encode(bytes(octets)).decode()}


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_selected_rows_are_those_sent(case):
    count, rows = case
    assert selected_rows(message(rows, count), "a", count).tolist() == sorted(rows)


def test_a_selection_on_other_images_is_forgotten():
    assert selected_rows(message([1, 2], 10), "b", 10).tolist() == []


@pytest.mark.parametrize(
    "event",
    [
        None,
        "text",
        [],
        {},
        {"images": "a"},
        {"images": "a", "bits": None},
        {"images": "a", "bits": ""},
        {"images": "a", "bits": "§"},
        {"images": "a", "bits": "not base64!"},
        message([1], 80),  # of more samples than there are
    ],
)
def test_anything_else_selects_nothing(event):
    assert selected_rows(event, "a", 10).tolist() == []


def test_bits_beyond_the_last_sample_do_not_count():
    assert selected_rows(
        {"images": "a", "bits": base64.b64encode(b"\xff\xff").decode()}, "a", 10
    ).tolist() == list(range(10))


@pytest.mark.parametrize(
    ("event", "row"),
    [
        ({"images": "a", "row": 0}, 0),
        ({"images": "a", "row": 9}, 9),
        ({"images": "a", "row": 10}, None),
        ({"images": "a", "row": -1}, None),
        ({"images": "a", "row": True}, None),
        ({"images": "a", "row": 1.5}, None),
        ({"images": "b", "row": 1}, None),
        ({"row": 1}, None),
        (None, None),
    ],
)
def test_a_click_is_a_row_or_nothing(event, row):
    assert picked_row(event, "a", 10) == row


def test_an_animation_reports_the_frame_it_was_left_at():
    points = Points(np.zeros((3, 2, 2)), np.arange(2), ("x", "y"), frame_names=("0", "10", "20"))
    assert played_frame({"points": "p", "frame": 2}, "p", points) == 2
    assert played_frame({"points": "p", "frame": 3}, "p", points) is None
    assert played_frame({"points": "other", "frame": 1}, "p", points) is None
    assert played_frame({"points": "p", "frame": "1"}, "p", points) is None


def test_points_travel_axis_by_axis():
    frames = np.arange(2 * 4 * 3, dtype=np.float64).reshape(2, 4, 3)
    points = Points(
        frames, np.array([0, 1, 2, -1]), ("a", "b", "c"), np.array([0, 0, 1, 2]), np.ones(4), ("0", "9")
    )
    _, meta, arrays = unpack(points.packed.data)
    assert meta == {"dim": 3, "axes": ["a", "b", "c"], "frames": ["0", "9"]}
    assert arrays["frames"].shape == (2, 3, 4)
    np.testing.assert_array_equal(arrays["frames"][1, 2], frames[1, :, 2])
    assert arrays["samples"].tolist() == [0, 1, 2, -1]
    assert arrays["kinds"].tolist() == [0, 0, 1, 2]
    assert arrays["fade"].tolist() == [1, 1, 1, 1]


def test_unknown_classes_get_a_code_of_their_own():
    colour = Colour.by_class("class", np.array([0, 1, -1]), ("<b>a</b>", "b"))
    _, meta, arrays = unpack(colour.packed.data)
    assert arrays["values"].tolist() == [0, 1, UNKNOWN]
    assert meta["names"] == ["<b>a</b>", "b"]  # the browser shows names as text
    assert meta["colours"] == list(CLASS_COLOURS[:2])


def test_a_scale_leaves_outliers_and_gaps_out():
    values = np.concatenate([np.linspace(0, 1, 1000), [1e9, np.nan]])
    _, meta, arrays = unpack(Colour.by_value("density", values).packed.data)
    assert -0.1 < meta["low"] < 0.1
    assert 0.9 < meta["high"] < 1.1
    assert np.isnan(arrays["values"][-1])
    assert meta["stops"][0][0] == 0
    assert meta["stops"][-1][0] == 1


def test_a_scale_without_any_value_still_has_limits():
    _, meta, _ = unpack(Colour.by_value("density", np.full(3, np.nan)).packed.data)
    assert (meta["low"], meta["high"]) == (0, 1)


def test_a_recolouring_of_fifty_thousand_points_moves_well_under_a_megabyte():
    count = 50_000
    scale = Colour.by_value("density", np.random.default_rng(0).random(count))
    classes = Colour.by_class("class", np.arange(count) % 10, tuple("abcdefghij"))
    assert len(scale.packed.data) < 250_000
    assert len(classes.packed.data) < 250_000


def test_hover_details_come_with_the_colour():
    colour = Colour.by_value(
        "x",
        np.zeros(2),
        details={"age": np.array([1.0, np.nan])},
        labels={"vote": (np.array([1, -1]), ("a", "b"))},
    )
    _, meta, arrays = unpack(colour.packed.data)
    assert [detail["name"] for detail in meta["details"]] == ["age", "vote"]
    assert arrays[meta["details"][1]["array"]].tolist() == [1, UNKNOWN]


def test_sample_ids_of_any_size_arrive():
    ids = np.array([0, -1, 2**62 + 1])
    images = EvalSet(np.zeros((3, 2, 2, 1), np.uint8), np.array([0, 1, -1]), ids, ("a", "b"))
    _, meta, arrays = unpack(_sample_pack("ids", _images=images).data)
    assert arrays["ids"].tolist() == ids.tolist()
    assert arrays["labels"].tolist() == [0, 1, -1]
    assert meta["names"] == ["a", "b"]


def test_names_arrive_as_lines_and_no_picture_is_sent_where_there_is_none():
    images = EvalSet(
        np.zeros((2, 0, 0, 0), np.uint8), np.array([0, -1]), np.arange(2), ("a",), ("<b>one</b>", "")
    )
    _, meta, arrays = unpack(_sample_pack("named", _images=images).data)
    assert arrays["called"].tobytes().decode().split("\n") == ["<b>one</b>", ""]
    assert meta["side"] == 0
    assert not len(arrays["sheet"])
