"""What the charts of two checkpoints contain."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.dashboard import compare_view
from moco_core.dashboard.compare_data import Common
from moco_core.dashboard.figures.class_changes import class_changes
from moco_core.dashboard.figures.metric_differences import MetricPair, metric_differences
from moco_core.dashboard.figures.neighbour_overlap import overlap_chart
from moco_core.dashboard.points import Colour, Pane, Points
from moco_core.runs import EvalSet

# metrics


def test_the_better_one_is_told_by_the_metrics_direction():
    assert MetricPair("kNN accuracy", 0.5, 0.9, +1).winner == "B"
    assert MetricPair("alignment", 0.5, 0.9, -1).winner == "A"
    assert MetricPair("alignment", 0.9, 0.5, -1).winner == "B"
    assert MetricPair("tolerance", 0.1, 0.9, 0).winner == ""
    assert MetricPair("kNN accuracy", 0.5, 0.5, +1).winner == ""


finite = st.floats(-1e6, 1e6)


@given(finite, finite, st.sampled_from([-1, 1]))
def test_gain_is_bounded_and_points_to_the_winner(a, b, better):
    pair, swapped = MetricPair("x", a, b, better), MetricPair("x", b, a, better)
    assert -2 <= pair.gain <= 2
    assert pair.gain == pytest.approx(-swapped.gain)
    assert {"A": pair.gain <= 0, "B": pair.gain >= 0, "": pair.gain == 0}[pair.winner]


def test_metrics_are_listed_from_the_top_with_both_numbers():
    figure = metric_differences(
        [MetricPair("kNN accuracy", 0.5, 1.0, +1), MetricPair("alignment", 0.2, 0.4, -1)]
    )
    bars = figure.data[0]
    assert list(bars.y) == [
        "alignment<br>0.2 → 0.4",
        "kNN accuracy<br>0.5 → 1",
    ]  # plotly draws from the bottom
    assert list(bars.x) == [-0.5, 0.5]
    assert bars.text is None  # beside a bar there is no room in a narrow window
    assert bars.marker.color[0] != bars.marker.color[1]
    assert bars.customdata[0][1] == "A"
    low, high = figure.layout.xaxis.range
    assert low < -0.5 < 0.5 < high
    assert figure.layout.xaxis.title.text == "relative difference<br>← A better · B better →"


def test_negative_metrics_have_a_minus_sign():
    bars = metric_differences([MetricPair("uniformity", -2.5, -3.0, -1)]).data[0]
    assert list(bars.y) == ["uniformity<br>−2.5 → −3"]
    assert bars.customdata[0][0] == "−0.5"


def test_metrics_that_are_zero_missing_or_infinite_break_nothing():
    figure = metric_differences(
        [
            MetricPair("zero", 0, 0, 1),
            MetricPair("missing", math.nan, 1, 1),
            MetricPair("log 0", -math.inf, 1, 1),
        ]
    )
    assert list(figure.data[0].y) == ["zero<br>0 → 0"]
    assert not metric_differences([]).data[0].y


# neighbour overlap


def test_overlap_counts_every_sample_and_marks_mean_and_chance():
    sharing = np.array([0, 1, 3, 3, 2])  # of 3 neighbours each
    figure = overlap_chart(sharing / (6 - sharing), 3)
    bars = figure.data[0]
    assert (list(bars.x), list(bars.y)) == ([0, 1, 2, 3], [1, 1, 1, 2])
    assert figure.layout.shapes[0].x0 == pytest.approx(1.8)
    assert figure.layout.shapes[1].x0 == pytest.approx(9 / 4)


def test_every_possible_overlap_has_its_own_bar():
    k = 100
    sharing = np.arange(k + 1)
    bars = overlap_chart(sharing / (2 * k - sharing), k).data[0]
    assert list(bars.y) == [1] * (k + 1)


# classes


def test_classes_are_sorted_by_their_change_and_coloured_by_its_sign():
    figure = class_changes(
        ["up", "down", "<b>same</b>"],
        np.array([0.5, 0.9, 0.7]),
        np.array([0.75, 0.8, 0.7]),
        np.array([4, 10, 3]),
    )
    bars = figure.data[0]
    assert list(bars.x) == pytest.approx([-10, 0, 25])
    assert list(figure.layout.yaxis.ticktext) == ["down", "&lt;b&gt;same&lt;/b&gt;", "up"]
    assert bars.marker.color[0] != bars.marker.color[1] == bars.marker.color[2]
    assert bars.customdata[2][:2] == ["up", 0.5]
    assert bars.customdata[2][3] == 4


def test_classes_without_samples_are_left_out_and_many_are_cut_to_the_ends():
    figure = class_changes(["a", "b"], np.array([np.nan, 0.5]), np.array([np.nan, 0.6]), np.array([0, 5]))
    assert list(figure.layout.yaxis.ticktext) == ["b"]
    change = np.random.default_rng(0).permutation(1000) / 1000
    figure = class_changes([str(i) for i in range(1000)], np.zeros(1000), change, np.ones(1000))
    assert max(figure.data[0].x) == pytest.approx(99.9)
    assert min(figure.data[0].x) == 0
    assert len(figure.data[0].x) == 40


def test_the_table_of_both_pictures_names_its_samples():
    images = EvalSet(
        np.zeros((3, 0, 0, 1), np.uint8),
        np.array([0, 1, 1]),
        np.array([7, 8, 9]),
        ("a", "b"),
        ("x", "y", "z"),
    )
    common = Common(np.arange(3), np.arange(3), True, images, "id", "")
    flat = Points(np.array([[[0.5, 1], [2, 3]]], np.float32), np.array([0, 2]), ("x", "y"))
    pane = Pane(flat, Colour.by_class("class", np.array([0, 1]), ("a", "b")))
    table = compare_view.panes_table([pane, pane], common, None)
    assert table["name"].tolist() == ["x", "z"]
    assert table["sample_id"].tolist() == [7, 9]
    assert table["label"].tolist() == [0, 1]
    assert table["x_A"].tolist() == table["x_B"].tolist() == [0.5, 2]
