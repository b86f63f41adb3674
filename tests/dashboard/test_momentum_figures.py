"""Sweeps are grouped, averaged and drawn beside the paper's numbers without mixing the two."""

import dataclasses
import io
import json
import math

import numpy as np
import pandas as pd
import pytest

from moco_core import paper
from moco_core.config import TrainConfig
from moco_core.dashboard import readings, sweep_views, sweeps
from moco_core.dashboard.figures import momentum as figures
from moco_core.dashboard.figures import sweep_panels
from moco_core.dashboard.sweeps import (
    Group,
    Outcome,
    grouped,
    label,
    momentum_lines,
    negatives_lines,
    outcome,
)
from moco_core.runs import Run
from moco_core.tables import results
from tests.stale_runs import write_stale_run
from tests.synthetic import write_run


def one(name="run", verdict="none", values=None, **config) -> Outcome:
    settings = TrainConfig(name=name, **config)
    reached = {"loss": 3.0, "knn": 0.5} if values is None else values
    return Outcome(name, name, settings, "finished", 400, reached, verdict)


@pytest.fixture
def sweep() -> list[Group]:
    return grouped(
        [
            one(
                "a",
                momentum=0.0,
                verdict="complete",
                values={"knn": 0.2, "linear": 0.3, "gradient_cosine_lowest": 0.1},
            ),
            one(
                "b",
                momentum=0.99,
                values={"knn": 0.8, "linear": 0.9, "k_star_lowest": 1024.0, "gradient_cosine_lowest": 0.999},
            ),
            one("c", momentum=0.99, seed=1, values={"knn": 0.9, "linear": 0.8}),
            one("d", momentum=0.99, queue_size=4096),
            one("e", method="memory-bank"),
            one("f", method="in-batch"),
        ]
    )


# Grouping


def test_runs_that_differ_in_seed_alone_are_averaged(sweep):
    group = next(g for g in sweep if len(g.outcomes) == 2)
    assert [o.run_id for o in group.outcomes] == ["b", "c"]
    assert group.mean("knn") == pytest.approx(0.85)
    assert group.deviation("knn") == pytest.approx(np.std([0.8, 0.9], ddof=1))
    assert group.text("knn") == "0.850 ± 0.071"
    assert group.mean("k_star_lowest") == 1024
    assert math.isnan(group.deviation("k_star_lowest"))
    assert group.text("k_star_lowest") == "1,024"
    assert group.text("uniformity") == "–"


@pytest.mark.parametrize(
    "change",
    [
        *({"seed": 5}, {"device": "cpu"}, {"threads": 1}, {"compile": True}, {"storage": "memory"}),
        *({"snapshots": 9}, {"drift_share": 0.5}, {"tensorboard": True}, {"eval_size": 9}, {"knn_k": 9}),
    ],
)
def test_settings_that_make_no_difference_are_ignored(change):
    groups = grouped([one("a"), one("b", **change)])
    assert len(groups) == 1
    assert label(groups[0], grouped([one("a"), one("b", lr=0.1, **change)])) == "m = 0.99, lr 0.06"


@pytest.mark.parametrize("change", [{"momentum": 0.5}, {"queue_size": 7}, {"lr": 0.1}, {"temperature": 0.1}])
def test_settings_that_make_a_difference_are_kept_apart(change):
    assert len(grouped([one("a"), one("b", **change)])) == 2


def test_what_a_method_ignores_does_not_tell_runs_apart():
    assert (
        len(grouped([one("a", method="in-batch"), one("b", method="in-batch", momentum=0.5, queue_size=9)]))
        == 1
    )
    assert len(grouped([one("a", method="memory-bank"), one("b", method="memory-bank", momentum=0.5)])) == 1
    assert len(grouped([one("a", method="memory-bank"), one("b", method="memory-bank", queue_size=9)])) == 2


def test_groups_come_in_order_and_are_named_by_what_varies(sweep):
    assert [label(g, sweep) for g in sweep] == [
        "m = 0, K = 1024",
        "m = 0.99, K = 1024",
        "m = 0.99, K = 4096",
        "memory-bank, K = 1024",
        "in-batch",
    ]
    alone = grouped([one("a", momentum=0.9)])
    assert label(alone[0], alone) == "m = 0.9"
    varied = grouped([one("a", lr=0.1), one("b", lr=0.2)])
    assert [label(g, varied) for g in varied] == ["m = 0.99, lr 0.1", "m = 0.99, lr 0.2"]


def test_a_line_along_momentum_holds_everything_else_fixed(sweep):
    lines = momentum_lines(sweep)
    assert [[(g.momentum, g.config.queue_size) for g in line] for line in lines] == [
        [(0.0, 1024), (0.99, 1024)],
        [(0.99, 4096)],
    ]
    assert [sweeps.momentum_line_label(line, lines) for line in lines] == ["K = 1024", "K = 4096"]


def test_a_line_along_the_negatives_holds_everything_else_fixed():
    settings = [
        *(dict(queue_size=size, momentum=m) for m in (0.9, 0.99) for size in (4096, 256)),
        dict(queue_size=256, temperature=0.1),
        *(dict(method="memory-bank", queue_size=size) for size in (1024, 256)),
        *(dict(method="in-batch", batch_size=size, queue_size=k) for size, k in ((256, 1), (64, 2))),
    ]
    lines = negatives_lines(grouped(one(f"{i}", **setting) for i, setting in enumerate(settings)))
    found = {sweeps.negatives_line_label(line, lines): [g.config.negatives for g in line] for line in lines}
    assert found == {
        "m = 0.9, temperature 0.2, batch size 128": [256, 4096],
        "m = 0.99, temperature 0.2, batch size 128": [256, 4096],
        "m = 0.99, temperature 0.1, batch size 128": [256],
        "memory-bank, temperature 0.2, batch size 128": [256, 1024],
        "in-batch, temperature 0.2": [63, 255],
    }


def test_a_group_has_the_verdicts_of_its_runs_each_once(sweep):
    assert [g.verdict for g in sweep] == ["complete", "none", "none", "none", "none"]
    mixed = grouped([one("a", verdict="complete"), one("b", seed=1)])[0]
    assert mixed.verdict == "complete, none"


# Reading runs


def test_an_outcome_holds_the_newest_numbers(tmp_path):
    run = Run(write_stale_run(tmp_path, angle=0.8))
    found = outcome(run)
    newest = run.steps[-1]
    assert found.step == 20
    assert found.values["loss"] == pytest.approx(run.history()["loss"][-2:].mean())
    assert found.values["knn"] == newest.metrics["knn"]["value"]
    assert found.values["k_star"] == int(newest.drift["k_star"][0])
    cosines = [step.drift["gradient_cosine"][-1] for step in run.steps if step.drift]
    assert found.values["gradient_cosine_lowest"] == min(cosines) < 0.99
    lowest = [int(step.drift["k_star"][0]) for step in run.steps if step.drift]
    assert found.values["k_star_lowest"] == min(lowest) < 32
    assert found.verdict == "none"
    assert not found.problem


def test_a_queue_that_was_always_consistent_has_no_lower_k_star_than_now(tmp_path):
    run = Run(write_stale_run(tmp_path, angle=0.0, queue_size=100))
    assert [int(step.drift["k_star"][0]) for step in run.steps if step.drift] == [80, 100]
    assert outcome(run).values["k_star_lowest"] == 100


def test_a_consistent_length_that_was_not_measured_finely_is_a_lower_bound(tmp_path):
    options = {"angle": 0.8, "queue_size": 64, "steps": (20,)}
    part, whole = (Run(write_stale_run(tmp_path, f"{n}", every=n, **options)) for n in (3, 1))
    found = outcome(part)
    assert found.at_least == {"k_star", "k_star_lowest"}
    text = f"≥ {found.values['k_star']:.0f}"
    assert grouped([found])[0].text("k_star_lowest") == grouped([found])[0].text("k_star") == text
    assert not grouped([found])[0].text("knn").startswith("≥")
    assert results(part)[-1] == text
    assert "may be larger" in readings.lower_bounds(grouped([found]))
    assert not outcome(whole).at_least
    assert results(whole)[-1] == f"{outcome(whole).values['k_star']:.0f}"
    assert not readings.lower_bounds(grouped([outcome(whole)]))


def test_a_damaged_drift_file_costs_its_own_numbers_alone(tmp_path):
    run = Run(write_stale_run(tmp_path))
    path = run.steps[-1].path / "drift.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    found = outcome(run)
    assert "damaged" in found.problem
    assert "gradient_cosine_lowest" not in found.values
    assert "knn" in found.values


def test_a_run_without_snapshots_or_history_is_empty(tmp_path):
    path = write_run(tmp_path, steps=(0,), queue=False)
    (path / "history.jsonl").unlink()
    for step in path.glob("step-*"):
        (step / "manifest.json").unlink()
    found = outcome(Run(path))
    assert found.values == {}
    assert found.step == 0


def test_values_that_are_not_numbers_are_left_out(tmp_path):
    path = write_run(tmp_path)
    metrics = path / "step-00000020" / "metrics.json"
    content = json.loads(metrics.read_text()) | {"knn": {"value": "high"}}
    text = json.dumps(content)
    metrics.write_text(text)
    manifest = path / "step-00000020" / "manifest.json"
    entries = json.loads(manifest.read_text())
    entries["files"]["metrics.json"]["bytes"] = len(text)
    manifest.write_text(json.dumps(entries))
    assert "knn" not in outcome(Run(path)).values


# The table


def test_the_papers_numbers_have_a_column_of_their_own(sweep):
    table = sweep_views.table(sweep)
    column = sweep_views.PAPER_COLUMN
    ours = table[table["runs"] != ""]
    assert ours[column].tolist() == ["fails", "57.8", "57.8", "", ""]
    theirs = table[table["runs"] == ""]
    assert theirs[column].tolist() == ["55.2", "59.0", "58.9"]
    assert (theirs["kNN accuracy, %"] == "").all()
    assert table["collapse"].tolist()[:2] == ["complete", "none"]
    assert ours["chance loss"].tolist()[0] == f"{math.log(1025):.2f}"
    assert list(table).index("lowest K*") < list(table).index("loss, nats")  # in sight in a common window


def test_the_papers_momenta_stand_beside_no_sweep_over_k(lengths):
    table = sweep_views.table(lengths)
    assert table["setting"].tolist() == ["m = 0.99, K = 1024", "m = 0.99, K = 4096"]
    assert sweep_views.PAPER_COLUMN not in table
    assert "italic" not in sweep_views.styled(table).to_html()
    both = grouped([one("a", queue_size=512), one("b", queue_size=1024), one("c", momentum=0.9)])
    assert sweep_views.PAPER_COLUMN in sweep_views.table(both)


def test_the_papers_numbers_are_painted_apart(sweep):
    html = sweep_views.styled(sweep_views.table(sweep)).to_html()
    assert "italic" in html


# Figures


def test_each_quantity_has_a_panel_and_the_paper_the_last(sweep):
    figure = sweep_panels.along_momentum(sweep_views.momentum_panels(sweep))
    titles = [note.text for note in figure.layout.annotations]
    assert titles[:2] == ["loss, nats", "kNN<br>accuracy, %"]
    assert any("ImageNet" in title for title in titles)
    assert any("not measured yet" in title for title in titles)  # alignment is missing here
    assert any(title.startswith("chance 6.93") for title in titles)
    assert any(title.startswith("floor") for title in titles)
    paper_line = next(trace for trace in figure.data if trace.name == "paper (ImageNet)")
    assert list(paper_line.y) == [a for a in paper.MOMENTUM_ABLATION.values() if a is not None]
    knn = next(trace for trace in figure.data if trace.xaxis == "x2" and trace.mode == "lines+markers")
    assert list(knn.x) == pytest.approx([1, 0.01])
    assert list(knn.y) == pytest.approx([20, 85])
    assert list(knn.error_y.array) == pytest.approx([0, np.std([80, 90], ddof=1)])
    assert {axis.type for axis in figure.select_xaxes()} == {"log"}


def test_an_encoder_that_never_moves_still_has_a_place(sweep):
    still = grouped([one("a", momentum=1.0), one("b", momentum=0.5)])
    figure = sweep_panels.along_momentum(sweep_views.momentum_panels(still))
    knn = next(trace for trace in figure.data if trace.xaxis == "x2")
    assert min(knn.x) == sweep_panels.SMALLEST
    assert figures.turnover_map(sweep_views.placed(still)).data
    assert figures.timescales(sweep_views.timescales(still)).data


@pytest.fixture
def lengths() -> list[Group]:
    """A sweep over K, two seeds at its longest queue, of which not all keys were encoded again."""
    reached = {1024: (0.7, 1024.0), 4096: (0.75, 2000.0)}
    runs = [
        one(f"{size}", queue_size=size, values={"linear": linear, "k_star_lowest": k_star})
        for size, (linear, k_star) in reached.items()
    ]
    other = one("b", queue_size=4096, seed=1, values={"linear": 0.85, "k_star_lowest": 3000.0})
    return grouped([*runs, dataclasses.replace(other, at_least=frozenset({"k_star_lowest"}))])


def of_panel(figure, title):
    """The traces of the chart below a title."""
    titles = [note.text for note in figure.layout.annotations]
    number = titles.index(title) + 1
    return [trace for trace in figure.data if trace.xaxis == ("x" if number == 1 else f"x{number}")]


def test_a_sweep_over_k_is_drawn_along_k(lengths):
    figure = sweep_panels.along_negatives(sweep_views.negatives_panels(lengths))
    linear, seeds = of_panel(figure, "linear probe<br>accuracy, %")
    assert linear.name == "m = 0.99"
    assert list(linear.x) == [1024, 4096]
    assert list(linear.y) == pytest.approx([70, 80])
    assert list(seeds.x) == [4096, 4096]
    assert list(seeds.y) == pytest.approx([75, 85])
    chance, floor = of_panel(figure, "loss, nats")[1:]
    assert list(chance.y) == pytest.approx([math.log(1025), math.log(4097)])
    assert list(floor.x) == list(chance.x) == [1024, 4096]
    whole = of_panel(figure, "lowest K*")[-1]
    assert list(whole.x) == list(whole.y) == [1024, 4096]
    assert (list(whole.text), whole.textposition) == (
        ["", "K\u2002"],
        "top left",
    )  # below, a run's dot hides it
    theirs, _ = of_panel(figure, "paper: linear,<br>ImageNet, %")
    assert dict(zip(theirs.x, theirs.y, strict=True)) == {4096: 59.0, 65536: 60.6}
    assert {axis.type for axis in figure.select_xaxes()} == {"log"}


def test_a_k_star_that_is_a_lower_bound_is_drawn_as_one(lengths):
    figure = sweep_panels.along_negatives(sweep_views.negatives_panels(lengths))
    mean = next(trace for trace in of_panel(figure, "lowest K*") if trace.error_y.visible)
    assert [text.strip() for text in mean.text] == ["", "≥"]
    assert "text" in mean.mode
    assert mean.customdata[1] == "4,096<br>≥ "
    linear = of_panel(figure, "linear probe<br>accuracy, %")[0]
    assert "text" not in linear.mode
    assert list(sweep_views.method_panels(lengths)) == ["linear probe accuracy, %", "lowest K* (≥)"]
    hover = figures.turnover_map(sweep_views.placed(lengths)).data[-1].text
    assert [text.rpartition("<br>")[2] for text in hover] == [
        "lowest K* 1,024",
        "lowest K* 2,000",
        "lowest K* ≥ 3,000",
    ]
    assert sweep_views.curve_table(lengths)["at_least"].tolist() == ["", "", "k_star_lowest"]


def test_what_does_not_vary_has_no_charts(sweep, lengths):
    assert sweep_views.momentum_panels(sweep)
    assert sweep_views.negatives_panels(sweep)
    assert not sweep_views.momentum_panels(lengths)
    momenta = grouped([one("a", momentum=0.5), one("b", momentum=0.9), one("c", method="in-batch")])
    assert not sweep_views.negatives_panels(momenta)


def test_ticks_of_k_keep_apart():
    sizes = [1000, 1024, 2048, 2500]
    panels = sweep_views.negatives_panels(grouped(one(f"{k}", queue_size=k) for k in sizes))
    axis = sweep_panels.along_negatives(panels).layout.xaxis
    assert list(axis.ticktext) == ["65,536", "4,096", "2,500", "1,024"]


def test_the_map_places_every_run_over_lines_of_equal_turnover(sweep):
    figure = figures.turnover_map(sweep_views.placed(sweep))
    contours = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(contours) == len(figures.TURNOVERS)
    for trace, turnover in zip(contours, figures.TURNOVERS, strict=True):
        assert np.array(trace.x) * np.array(trace.y) / 128 == pytest.approx([turnover] * 2)
    title, *numbers = figure.layout.annotations
    assert "turnover" in title.text
    by_level = dict(zip(figures.TURNOVERS, contours, strict=True))
    for number in numbers:  # at the upper end of its line
        line = by_level[float(number.text)]
        assert np.interp(number.x, *np.log10([line.x, line.y])) == pytest.approx(number.y)
        assert number.y == figure.layout.yaxis.range[1]
    assert len(numbers) > 2
    measured, unmeasured = [trace for trace in figure.data if trace.mode == "markers"]
    assert list(measured.marker.color) == [0.1, 0.999]
    assert list(measured.x) == pytest.approx([1, 0.01])
    assert len(unmeasured.x) == 2
    assert "not measured" in unmeasured.text[0]
    assert "turnover 0.08" in measured.text[1]
    assert not figures.turnover_map([]).data


def test_three_clocks_stand_on_one_axis(sweep):
    scales = sweep_views.timescales(sweep)
    assert [(s.half_life, s.span, s.steps) for s in scales] == [
        (0, 8, 400),
        (pytest.approx(68.97, abs=0.01), 8, 400),
        (pytest.approx(68.97, abs=0.01), 32, 400),
    ]
    figure = figures.timescales(scales)
    marks = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    assert list(marks["queue span K/B"].x) == [8, 8, 32]
    assert marks["EMA half-life"].customdata[0] == "0"
    assert 0 < marks["EMA half-life"].x[0] < 8  # drawn at the edge of the log axis


def test_methods_stand_side_by_side(sweep):
    names = [label(g, sweep) for g in sweep]
    panels = sweep_views.method_panels(sweep)
    assert list(panels) == ["kNN accuracy, %", "linear probe accuracy, %", "lowest K*"]
    figure = figures.by_method(names, panels)
    headed = [title.text for title in figure.layout.annotations]
    assert headed[1] == "linear probe<br>accuracy, %"  # side by side in narrow windows too
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [(bar.y[0], round(bar.x[0], 3)) for bar in bars[:2]] == [(names[0], 20), (names[1], 85)]
    dots = [trace for trace in figure.data if trace.type == "scatter" and trace.y[0] == names[1]]
    assert list(dots[0].x) == [80, 90]
    assert len(sweep_views.methods(sweep)) == 3


def test_downloads_have_one_row_a_run(sweep):
    table = sweep_views.curve_table(sweep)
    assert table["run"].tolist() == ["a", "b", "c", "d", "e", "f"]
    assert table["linear"].tolist()[:3] == [0.3, 0.9, 0.8]
    assert sweep_views.timescale_table(sweep_views.timescales(sweep))["queue_span"].tolist() == [8, 8, 32]


# Readings


@pytest.mark.parametrize(
    ("half_life", "span", "steps", "words"),
    [
        (692.8, 8, 400, "half-life is 693 steps but the run has 400: 67% of its start is left at the end"),
        (0, 8, 400, "follows the query encoder at once"),
        (6.6, 8, 400, "changes visibly within one queue"),
        (6.6, 256, 4000, "the oldest keys come from another encoder"),
        (69, 8, 400, "well above the 8 steps a key waits and well below the run's 400"),
        (
            300,
            8,
            400,
            "half-life is 300 steps of 400 in all: it follows late, and renews 2% while a key waits 8 steps",
        ),
        (69, 32, 150, "renews 27% while a key waits 32 steps"),
        (math.inf, 8, 400, "never moves"),
    ],
)
def test_three_durations_read_as_one_sentence(half_life, span, steps, words):
    assert words in readings.timescales(half_life, span, steps)


def test_the_table_of_settings_downloads_unrounded():
    accuracies = (0.123456, 0.2, 0.345678)
    runs = [
        one("a", momentum=0.0, values={"knn": accuracies[0], "alignment": 3.97e-05}),
        one("b", momentum=0.99, values={"knn": accuracies[1], "uniformity": -0.8247695}),
        one("c", momentum=0.99, seed=1, values={"knn": accuracies[2], "uniformity": -0.8247695}),
    ]
    written = sweep_views.numbers(grouped(runs)).to_csv(index=False)
    assert f",{runs[0].config.negatives}," in written  # without separators or decimals
    read = pd.read_csv(io.StringIO(written))
    assert read["setting"].tolist()[2:] == [f"paper only, m = {m:g}" for m in (0.9, 0.999, 0.9999)]
    read = read[:2]
    assert read["runs"].tolist() == [1, 2]
    assert read["kNN accuracy, %"].tolist() == pytest.approx(
        [12.3456, 100 * np.mean(accuracies[1:])], rel=1e-12
    )
    assert read.loc[1, "± kNN accuracy, %"] == pytest.approx(100 * np.std(accuracies[1:], ddof=1), rel=1e-12)
    assert read.loc[0, "alignment"] == 3.97e-05
    assert read.loc[1, "uniformity"] == -0.8247695


def test_the_best_setting_is_named_and_collapse_told(sweep):
    text = readings.best_setting(sweep)
    assert "linear probe accuracy: **85.0 ± 7.1%**" in text
    assert text.endswith(" Complete collapse: m \\= 0, K \\= 1024.")
    assert "No accuracy" in readings.best_setting(grouped([one(values={"loss": 2.0})]))
    assert "ollapse" not in readings.best_setting(sweep[1:])
    clocks = readings.clocks(sweep_views.timescales(sweep))
    assert clocks.count("\n") == 2


def test_both_kinds_of_collapse_are_named_with_the_runs_that_have_them():
    runs = [
        one("a", momentum=0.0, verdict="complete"),
        one("b", momentum=0.9, verdict="dimensional"),
        one("c", momentum=0.9, seed=1),
        one("d", momentum=0.99),
    ]
    text = readings.best_setting(grouped(runs))
    assert text.endswith(" Complete collapse: m \\= 0. Dimensional collapse: m \\= 0\\.9 (1 of 2 runs).")
