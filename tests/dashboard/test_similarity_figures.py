"""What the similarity charts contain."""

from __future__ import annotations

import numpy as np
import pytest

from moco_core.dashboard.figures.cosine_histograms import (
    Histogram,
    Panel,
    Weights,
    cosine_histograms,
    histogram_grid,
    histogram_overlay,
)
from moco_core.dashboard.palette import series_colour

EDGES = np.linspace(-1, 1, 5)
POSITIVE = Histogram("positives", np.array([0, 0, 1, 3]))
NEGATIVE = Histogram("queue negatives", np.array([10, 20, 10, 0]), look=1)


def bars(figure):
    return [trace for trace in figure.data if trace.type == "bar"]


def test_bars_stand_on_their_bins_and_carry_their_kind_and_count():
    positive, negative = bars(cosine_histograms(EDGES, [POSITIVE, NEGATIVE], scale="counts"))
    assert list(positive.x) == [-0.75, -0.25, 0.25, 0.75]
    assert list(positive.width) == [0.5] * 4
    assert list(positive.y) == [0, 0, 1, 3]
    assert [list(c) for c in negative.customdata] == [
        ["queue negatives", 0, 10], ["queue negatives", 1, 20], ["queue negatives", 2, 10], ["queue negatives", 3, 0]
    ]  # fmt: skip


def test_shares_add_up_to_one_for_each_kind_alone():
    for trace in bars(cosine_histograms(EDGES, [POSITIVE, NEGATIVE])):
        assert sum(trace.y) == pytest.approx(1)


def test_a_kind_of_pair_looks_the_same_beside_runs_without_positives():
    positive, negative = Histogram("positives", np.ones(4)), Histogram("negatives", np.ones(4), 1)
    alone, grid, overlay = (
        cosine_histograms(EDGES, [negative]),
        histogram_grid(EDGES, [Panel("imported", [negative]), Panel("trained", [positive, negative])]),
        histogram_overlay(EDGES, [Panel("imported", [negative]), Panel("trained", [positive, negative])]),
    )
    assert bars(alone)[0].marker.color == series_colour(1)
    assert [bar.marker.color for bar in bars(grid)] == [series_colour(i) for i in (1, 0, 1)]
    told = {trace.name: trace.legendrank for trace in grid.data if trace.showlegend}
    assert told == {"negatives": 1, "positives": 0}
    assert [line.line.dash for line in overlay.data] == ["dot", "solid", "dot"]


def test_a_kind_without_pairs_has_no_share():
    trace = bars(cosine_histograms(EDGES, [Histogram("none", np.zeros(4, int))]))[0]
    assert list(trace.y) == [0, 0, 0, 0]


@pytest.mark.parametrize(("scale", "kind", "title"), [
    ("share", None, "share of its pairs"), ("counts", None, "pairs"), ("log", "log", "pairs (log scale)"),
])  # fmt: skip
def test_the_scale_sets_axis_and_title_in_every_layout(scale, kind, title):
    panels = [Panel("m = 0", [POSITIVE]), Panel("m = 0.9", [NEGATIVE]), Panel("m = 0.99", [NEGATIVE])]
    for figure in (
        cosine_histograms(EDGES, [POSITIVE], scale=scale),
        histogram_grid(EDGES, panels, scale),
        histogram_overlay(EDGES, panels, scale),
    ):
        assert figure.layout.yaxis.type == kind
        assert figure.layout.yaxis.title.text == title
        assert all(axis.type == kind for axis in figure.select_yaxes())


def test_softmax_weights_stand_below_on_their_own_axis_unscaled():
    weights = Weights(0.07, np.array([0, 0, 0.1, 0.5]), np.array([0, 0.1, 0.3, 0]))
    figure = cosine_histograms(EDGES, [POSITIVE, NEGATIVE], weights, "log")
    below = [trace for trace in bars(figure) if trace.yaxis == "y2"]
    negative, positive = below
    assert list(negative.y) == [0, 0.1, 0.3, 0]
    assert list(positive.y) == [0, 0, 0.1, 0.5]
    assert list(positive.base) == list(negative.y)  # one on the other: together they sum to 1
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis2.type is None
    assert "τ = 0.07" in figure.layout.yaxis2.title.text
    assert figure.layout.xaxis2.matches == "x" or figure.layout.xaxis.matches == "x2"  # one cosine axis


def test_small_multiples_share_bins_and_one_legend_and_show_names_as_text():
    panels = [Panel(f"<i>m = {m}</i>", [POSITIVE, NEGATIVE]) for m in (0, 0.9, 0.99)]
    figure = histogram_grid(EDGES, panels)
    assert [a.text for a in figure.layout.annotations] == [
        f"&lt;i&gt;m = {m}&lt;/i&gt;" for m in (0, 0.9, 0.99)
    ]
    assert len(bars(figure)) == 6
    assert sum(trace.showlegend is not False for trace in figure.data) == 2
    assert len({trace.yaxis for trace in figure.data}) == 3
    assert len({axis.matches for axis in figure.select_xaxes()}) == 2  # one leads (None), the others follow
    assert {axis.matches for axis in figure.select_yaxes()} == {None}


def test_long_names_take_several_lines_above_small_charts():
    titles = [f"a run & one of m = {m}, step 400" for m in (0, 1)]
    figure = histogram_grid(EDGES, [Panel(title, [POSITIVE]) for title in titles])
    assert [a.text.split("<br>") for a in figure.layout.annotations] == [
        [f"a run &amp; one of m = {m},", "step 400"] for m in (0, 1)
    ]


def test_a_single_panel_is_one_chart():
    assert {trace.xaxis for trace in histogram_grid(EDGES, [Panel("only", [POSITIVE])]).data} == {"x"}


def test_overlay_tells_runs_by_colour_and_kinds_by_dash():
    figure = histogram_overlay(
        EDGES, [Panel("a", [POSITIVE, NEGATIVE], 1), Panel("b", [POSITIVE, NEGATIVE], 3)]
    )
    a_positive, a_negative, b_positive, b_negative = figure.data
    assert (a_positive.line.color, b_positive.line.color) == (series_colour(1), series_colour(3))
    assert a_positive.line.color == a_negative.line.color
    assert a_positive.line.dash == b_positive.line.dash != b_negative.line.dash
    assert a_negative.name == "a: queue negatives"
