"""What the geometry charts contain: every number handed in is drawn, and nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.analysis.geometry import circle_density
from moco_core.dashboard.figures import class_profile as profile
from moco_core.dashboard.figures.alignment_plane import StepPath, alignment_plane
from moco_core.dashboard.figures.circle import circle_density_chart
from moco_core.dashboard.figures.class_profile import class_profile
from moco_core.dashboard.figures.confusion import confusion_chart
from moco_core.dashboard.figures.hubness import BARS, hubness_chart
from moco_core.dashboard.figures.spectrum import Spectrum, spectrum_chart


def titles(figure):
    return {axis.title.text for axis in (*figure.select_xaxes(), *figure.select_yaxes())}


# alignment and uniformity


def test_plane_draws_each_run_in_step_order_with_the_newest_step_largest():
    paths = [
        StepPath("slow", [0, 10, 20], [0.9, 0.6, 0.3], [-0.5, -1.0, -2.0]),
        StepPath("fast", [0, 20], [0.8, 0.2], [-0.4, -3.0]),
    ]
    figure = alignment_plane(paths, {8: -3.2})
    slow, fast = figure.data
    assert [slow.name, fast.name] == ["slow", "fast"]
    assert list(slow.x) == [-0.5, -1.0, -2.0]
    assert list(slow.y) == [0.9, 0.6, 0.3]
    assert list(slow.customdata) == [0, 10, 20]
    assert slow.marker.size[-1] > slow.marker.size[0]
    assert slow.line.color != fast.line.color
    assert slow.marker.symbol != fast.marker.symbol


def test_plane_marks_better_and_the_ideal_of_each_dimension():
    figure = alignment_plane([StepPath("run", [0], [1.0], [-1.0])], {8: -3.2, 128: -3.94})
    texts = [annotation.text for annotation in figure.layout.annotations]
    assert "<b>better</b>" in texts
    assert "uniform, D = 8: −3.20" in texts
    assert {shape.x0 for shape in figure.layout.shapes} == {-3.2, -3.94}
    better = next(a for a in figure.layout.annotations if "better" in a.text)
    assert better.showarrow is not False
    assert (better.ax, better.ay) > (
        0,
        -1000,
    )  # the tail lies right of and above the head: it points down left
    assert better.ay < 0


def test_plane_leaves_out_steps_without_numbers_and_shows_names_as_text():
    path = StepPath("<b>bold</b>", [0, 1, 2], [0.5, math.nan, 0.3], [-1.0, -1.0, -math.inf])
    trace = alignment_plane([path], {}).data[0]
    assert list(trace.customdata) == [0]
    assert trace.name == "&lt;b&gt;bold&lt;/b&gt;"


def test_plane_without_runs_is_an_empty_frame():
    figure = alignment_plane([], {})
    assert not figure.data
    assert any("uniformity" in title for title in titles(figure))


# spectrum


def test_spectrum_draws_the_logs_given_and_a_line_at_each_rank():
    projector = Spectrum("projector output", np.log([4.0, 2.0, 1.0]), 2.5)
    backbone = Spectrum("backbone features", np.log([9.0, 3.0, 1.0, 0.5]), 3.25)
    figure = spectrum_chart([projector, backbone])
    assert [list(t.x) for t in figure.data] == [[1, 2, 3], [1, 2, 3, 4]]
    np.testing.assert_array_equal(figure.data[0].y, projector.log_values)
    assert [shape.x0 for shape in figure.layout.shapes] == [2.5, 3.25]
    assert [t.name for t in figure.data] == [
        "projector output, 3 dimensions<br>dotted: effective rank 2.5",
        "backbone features, 4 dimensions<br>dotted: effective rank 3.2",
    ]
    assert figure.data[0].line.dash != figure.data[1].line.dash
    assert not figure.layout.annotations  # beside a line, its text would lie on the next one


# classes


def test_profile_sorts_by_tolerance_and_marks_the_mean():
    figure = class_profile(["a", "b", "c"], np.array([0.3, 0.2, 0.1]), np.array([0.9, 0.5, 0.7]))
    tolerance, alignment = figure.data
    assert list(tolerance.customdata) == ["b", "c", "a"]
    assert list(tolerance.x) == [0.5, 0.7, 0.9]
    assert list(alignment.x) == [0.2, 0.1, 0.3]
    assert [shape.x0 for shape in figure.layout.shapes] == pytest.approx([0.7, 0.2])
    titles = [axis.title.text for axis in figure.select_xaxes()]
    assert titles == ["tolerance<br>cosine in the class", "alignment<br>‖x − y‖² of views"]


def test_profile_of_a_class_with_one_sample_and_of_a_run_without_second_view():
    figure = class_profile(["a", "b"], None, np.array([np.nan, 0.4]))
    assert len(figure.data) == 1
    assert list(figure.data[0].customdata) == ["b", "a"]
    assert [shape.x0 for shape in figure.layout.shapes] == [0.4]


def test_profile_of_a_thousand_classes_shows_both_ends():
    tolerance = np.random.default_rng(0).permutation(1000) / 1000
    figure = class_profile([str(i) for i in range(1000)], None, tolerance)
    drawn = np.asarray(figure.data[0].x)
    half = profile.SHOWN // 2
    np.testing.assert_allclose(drawn, [*np.arange(half) / 1000, *np.arange(1000 - half, 1000) / 1000])


@given(st.lists(st.one_of(st.floats(-1, 1), st.just(math.nan)), max_size=60), st.integers(2, 20))
def test_profile_rows_are_ascending_and_unique(values, shown):
    values = np.array(values)
    rows = profile.shown_classes(values, shown)
    assert len(set(rows.tolist())) == len(rows) <= shown
    kept = values[rows][~np.isnan(values[rows])]
    assert (np.diff(kept) >= 0).all()
    known = np.count_nonzero(~np.isnan(values))
    assert len(rows) == (
        len(values) if len(values) <= shown else min(known, shown - shown % 2 if known > shown else known)
    )


# hubness


def test_hubness_counts_every_sample_once_and_marks_the_mean():
    occurrence = np.array([0, 0, 1, 2, 2, 2, 9])
    figure = hubness_chart(occurrence, 3)
    assert dict(zip(figure.data[0].x, figure.data[0].y, strict=True)) == {
        0: 2, 1: 1, 2: 3, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0, 9: 1,
    }  # fmt: skip
    assert figure.layout.shapes[0].x0 == 3
    assert figure.layout.annotations[0].text == "mean 3"


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=50))
def test_hubness_bars_hold_all_samples_and_stay_few(occurrence):
    bars = hubness_chart(np.array(occurrence), 5).data[0]
    assert sum(bars.y) == len(occurrence)
    assert len(bars.y) <= BARS


# confusion


def test_confusion_cells_carry_their_place_and_count():
    counts = np.array([[8, 2], [1, 3]])
    heat, cells = confusion_chart(counts, counts.sum(1), ["cat", "dog"]).data
    np.testing.assert_allclose(np.square(heat.z), [[0.8, 0.2], [0.25, 0.75]])
    assert [tuple(cell) for cell in cells.customdata] == [(0, 0, 8), (0, 1, 2), (1, 0, 1), (1, 1, 3)]
    assert list(zip(cells.y, cells.x, strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert cells.text[1] == "cat → dog"


def test_confusion_shares_are_of_all_votes_on_the_class():
    heat = confusion_chart(np.array([[1]]), np.array([4]), ["a"]).data[0]
    assert np.square(heat.z[0][0]) == pytest.approx(0.25)


def test_confusion_of_a_class_without_images_is_no_division_by_zero():
    heat = confusion_chart(np.array([[0, 0], [1, 3]]), np.array([0, 4]), ["a", "b"]).data[0]
    np.testing.assert_array_equal(heat.z[0], [0, 0])


def test_confusion_writes_counts_only_where_they_fit():
    few, many = (confusion_chart(np.eye(n, dtype=int), np.ones(n), ["x"] * n).data[0] for n in (20, 21))
    assert np.shape(few.text) == (20, 20)
    assert many.text is None


def test_confusion_shows_names_as_text():
    figure = confusion_chart(np.eye(2, dtype=int), np.ones(2), ["<b>x</b>", "a & b"])
    assert list(figure.layout.xaxis.ticktext) == ["&lt;b&gt;x&lt;/b&gt;", "a &amp; b"]
    assert figure.data[1].text[1] == "&lt;b&gt;x&lt;/b&gt; → a &amp; b"


def test_a_long_name_leaves_room_for_the_chart_and_is_whole_on_hover():
    long = "a class whose name goes on and on and on"
    cut = "a class whose name goes…"
    confused = confusion_chart(np.eye(2, dtype=int), np.ones(2), ["cat", long])
    assert list(confused.layout.xaxis.ticktext) == list(confused.layout.yaxis.ticktext) == ["cat", cut]
    assert confused.data[1].text[3] == f"{long} → {long}"
    profile = class_profile([long], None, np.array([0.5]))
    assert list(profile.layout.yaxis.ticktext) == [cut]
    assert list(profile.data[0].customdata) == [long]


# circle


def test_circle_shows_density_outward_and_stays_round():
    angle, density = circle_density(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]]))
    figure = circle_density_chart(angle, density)
    drawn = {t.name: t for t in figure.data if t.name}
    radius = np.hypot(drawn["density"].x, drawn["density"].y)
    assert radius.min() >= 1 - 1e-12
    assert radius.max() == pytest.approx(1.5)
    at_peak = np.argmax(radius)
    assert drawn["density"].customdata[at_peak][1] == pytest.approx(density.max())
    assert np.arctan2(drawn["density"].y, drawn["density"].x)[at_peak] == pytest.approx(
        angle[density.argmax()]
    )
    assert (drawn["density"].x[0], drawn["density"].y[0]) == (drawn["density"].x[-1], drawn["density"].y[-1])
    assert figure.layout.yaxis.scaleanchor == "x"


def test_circle_of_even_density_lies_on_the_dashed_ring():
    angle = np.linspace(-np.pi, np.pi, 90, endpoint=False)
    figure = circle_density_chart(angle, np.full(90, 1 / (2 * np.pi)))
    drawn = {t.name: t for t in figure.data if t.name}
    np.testing.assert_allclose(np.hypot(drawn["density"].x, drawn["density"].y), 1.5)
    np.testing.assert_allclose(np.hypot(drawn["if uniform"].x, drawn["if uniform"].y), 1.5)
