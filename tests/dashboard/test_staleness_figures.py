"""The charts of queue staleness draw the numbers they are given, and say so where there are none."""

import math

import numpy as np
import pytest

from moco_core.analysis.staleness import CONSISTENT, RankCorrelation, by_age
from moco_core.dashboard import measured, readings
from moco_core.dashboard.drift import Drift, DriftError, read_drift
from moco_core.dashboard.figures import staleness as figures
from moco_core.runs import Run
from tests.stale_runs import write_stale_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return {
        "slow": Run(write_stale_run(root, "slow", angle=0.01)),
        "fast": Run(write_stale_run(root, "fast", angle=0.8, momentum=0.0)),
        "collapsed": Run(write_stale_run(root, "collapsed", collapsed=True)),
        "sampled": Run(write_stale_run(root, "sampled", every=2, queue_size=64, steps=(0, 20))),
        "in-batch": Run(write_stale_run(root, "in-batch", queue=False)),
    }


def newest(run, name="run") -> Drift:
    return read_drift(run.steps[-1].drift, name, run.steps[-1].step)


def lines(figure):
    return [trace for trace in figure.data if trace.mode and "lines" in trace.mode and trace.fill != "toself"]


def test_the_gradient_cosine_is_drawn_with_its_threshold_and_k_star(runs):
    drifts = [newest(runs["slow"], "a <b>"), newest(runs["fast"], "fast")]
    figure = figures.gradient_cosine_by_length(drifts)
    for trace, drift in zip(lines(figure), drifts, strict=True):
        assert list(trace.x) == drift.length.tolist()
        assert list(trace.y) == drift.gradient_cosine.tolist()
    assert lines(figure)[0].name == "a &lt;b&gt;"
    stars = [trace for trace in figure.data if trace.marker.symbol == "star"]
    assert [trace.x[0] for trace in stars] == [drift.k_star for drift in drifts]
    assert [shape.y0 for shape in figure.layout.shapes] == [CONSISTENT]
    assert figure.layout.xaxis.type == "log"
    assert "slots" in figure.layout.xaxis.title.text


def test_drift_by_age_is_the_known_turn_with_a_control_at_zero(runs):
    drift = newest(runs["fast"])
    raw = figures.drift_by_age([drift], relative=False)
    line = lines(raw)[0]
    profile = by_age(drift.age, drift.drift)
    assert list(line.x) == profile.age.tolist() == [0, 1, 2, 3]
    assert list(line.y) == profile.mean.tolist()
    control = next(trace for trace in raw.data if trace.name.startswith("control"))
    assert (control.x[0], control.y[0]) == (0, 0)
    relative = lines(figures.drift_by_age([drift], relative=True))[0]
    assert np.array(relative.y) == pytest.approx(profile.mean / drift.spread)
    band = next(trace for trace in raw.data if trace.fill == "toself")
    assert sorted(band.y) == sorted([*profile.low, *profile.high])
    log = figures.drift_by_age([drift], relative=False, log=True)
    assert log.layout.yaxis.type == "log"
    assert list(lines(log)[0].x) == [1, 2, 3]  # age 0 has no drift, and a log axis no 0


def test_a_collapsed_run_has_no_relative_drift_but_a_raw_one(runs):
    drift = newest(runs["collapsed"])
    assert drift.collapsed
    assert np.isnan(drift.relative).all()
    assert math.isnan(drift.oldest_relative)
    assert not lines(figures.drift_by_age([drift], relative=True))
    assert len(lines(figures.drift_by_age([drift], relative=False))) == 1
    assert "all keys lie in one place" in readings.collapsed_runs([drift])
    assert "collapsed" in readings.consistency(drift, 32)


@pytest.mark.parametrize("builder", [figures.lag_by_age, figures.logit_error_by_age, figures.weight_by_age])
def test_quantities_by_age_have_one_line_a_run(runs, builder):
    figure = builder([newest(runs["slow"]), newest(runs["fast"])])
    assert len(lines(figure)) == 2
    assert figure.layout.xaxis.title.text == "age (steps since written)"


def test_softmax_weight_is_one_where_it_is_even(runs):
    drift = newest(runs["sampled"])
    even = drift.stands_for / drift.stands_for.sum()
    level = Drift(**{**vars(drift), "weight_share": even})
    line = lines(figures.weight_by_age([level]))[0]
    assert np.array(line.y) == pytest.approx(np.ones(len(line.y)))
    assert np.sum(line.customdata) == pytest.approx(1)


def test_kl_is_drawn_by_length(runs):
    drift = newest(runs["fast"])
    line = lines(figures.kl_by_length([drift]))[0]
    assert list(line.y) == drift.kl.tolist()
    assert line.y[-1] > 0


def test_the_strip_shows_every_slot_once_oldest_first():
    drift = np.array([0.3, np.nan, 0.1])
    figure = figures.queue_strip(100, drift, np.array([2, 1, 0]), np.array([1]))
    filled, shown, marks = figure.data
    flat = np.array(shown.z, float).ravel()
    assert flat[0] == 0.3
    assert np.isnan(flat[1])
    assert flat[2] == 0.1
    assert np.isnan(flat[3:]).all()
    assert np.isfinite(np.array(filled.z, float)).sum() == 3
    assert (marks.x[0], marks.y[0]) == (1, 0)
    assert flat.size >= 100


@pytest.mark.parametrize("size", [1, 5, 63, 64, 100, 1024, 65536])
def test_the_strip_is_wider_than_high(size):
    figure = figures.queue_strip(size, np.zeros(size), np.zeros(size), np.zeros(0, int))
    rows, width = np.array(figure.data[1].z).shape
    assert size <= rows * width < size + width
    assert width >= rows


def test_of_a_giant_queue_the_stored_slots_are_drawn():
    figure = figures.queue_strip(2**24, np.zeros(65536), np.zeros(65536), np.zeros(0, int))
    assert np.array(figure.data[1].z).size == 65536
    assert "holds 65,536" in readings.thinned(65536, 2**24)
    assert readings.thinned(1024, 1024) == readings.thinned(100, 2**24) == ""


def test_curves_over_training_have_a_point_a_snapshot(runs):
    series = [measured.measured(runs[name], name)[0] for name in ("slow", "fast")]
    k_star = [trace for trace in figures.k_star_by_step(series).data if "markers" in trace.mode]
    assert [list(trace.x) for trace in k_star] == [[10, 20], [10, 20]]
    assert [list(trace.y) for trace in k_star] == [[d.k_star for d in drifts] for drifts in series]
    oldest = figures.oldest_drift_by_step(series).data
    assert oldest[1].y[-1] == pytest.approx(series[1][-1].oldest / series[1][-1].spread)


def test_the_counterfactual_has_a_line_a_policy(runs):
    drift = newest(runs["fast"])
    figure = figures.gradient_cosine_by_eviction(drift)
    assert [trace.name for trace in figure.data] == list(figures.POLICY_NAMES.values())
    assert {round(trace.y[-1], 6) for trace in figure.data} == {round(float(figure.data[0].y[-1]), 6)}


# What is read


def test_arrays_that_the_contract_names_are_enough(tmp_path):
    arrays = {
        "age": np.array([0, 1]),
        "cosine_key": np.array([1, 0.9]),
        "cosine_query": np.array([0.95, 0.9]),
        "length": np.array([1, 2]),
        "gradient_cosine": np.array([1, 0.5]),
        "k_star": np.array(1),
        "spread": np.array(0.8),
    }
    drift = read_drift(arrays, "run", 3)
    assert drift.filled == 2
    assert drift.drift == pytest.approx([0, 0.1])
    assert math.isnan(drift.control)
    assert drift.evictions == {}
    for builder in (figures.logit_error_by_age, figures.weight_by_age, figures.kl_by_length):
        assert not lines(builder([drift]))
    assert read_drift({}, "run", 3) is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"age": None}, "lacks 'age'"),
        ({"k_star": None}, "lacks 'k_star'"),
        ({"cosine_key": np.ones(3)}, "'cosine_key' must hold"),
        ({"age": np.zeros(0)}, "'age' must hold at least one number"),
        ({"cosine_key": np.full(32, np.nan)}, "'cosine_key' holds numbers that are not finite"),
        ({"gradient_cosine": np.array([np.inf])}, "gradient_cosine"),
        ({"k_star": np.array(np.nan)}, "'k_star' must count slots"),
        ({"k_star": np.array(1e300)}, r"'k_star' must count slots, got 1e\+300"),
        (
            {"age": np.full(32, 2**64 - 1, np.uint64)},
            r"'age' holds 1\.84e\+19; accepted are numbers below 2\^53",
        ),
        ({"k_star": np.zeros(2)}, "'k_star' must be one number"),
        ({"slot": np.full(32, 10**12)}, "'slot' must count from 0 to below 32"),
        ({"slot": np.full(32, -1)}, "'slot' must count"),
    ],
)
def test_a_damaged_drift_file_says_what_is_wrong(runs, change, sentence):
    arrays = {k: v for k, v in (runs["slow"].steps[-1].drift | change).items() if v is not None}
    with pytest.raises(DriftError, match=sentence):
        read_drift(arrays, "run", 20)


def test_gathering_takes_each_run_at_the_nearest_step(runs):
    shown = measured.gather(
        runs["slow"], runs["slow"].steps[1], [runs["fast"], runs["in-batch"], runs["sampled"]]
    )
    assert shown.own.step == 10
    named = [(drift.name, drift.step) for drift in shown.drifts]
    assert set(named) == {("slow", 10), ("fast", 10), ("sampled, step 20", 20)}
    assert len(shown.series) == 4
    assert [drift.step for drift in shown.history] == [10, 20]
    assert not shown.problems
    assert shown.size == 32


def test_slots_find_their_drift_also_in_a_thinned_file(runs):
    drift = newest(runs["sampled"])
    every = measured.slot_drift(64, drift)
    assert np.isfinite(every).sum() == 32
    assert every[drift.slot] == pytest.approx(drift.drift)
    thinned = measured.slot_drift(32, drift)
    assert np.array_equal(thinned, every[np.rint(np.linspace(0, 63, 32)).astype(int)], equal_nan=True)
    assert np.isnan(measured.slot_drift(5, None)).all()
    assert len(measured.slot_drift(0, drift)) == 0


def test_tables_hold_what_the_charts_show(runs):
    drift = newest(runs["slow"], "slow")
    slots = measured.slot_table([drift])
    assert len(slots) == len(drift.age)
    assert slots["drift"].tolist() == drift.drift.tolist()
    assert measured.length_table([drift])["gradient_cosine"].tolist() == drift.gradient_cosine.tolist()
    assert set(measured.eviction_table(drift).columns) >= {"kept", *figures.POLICY_NAMES}
    assert measured.summary_table([drift])["k_star"].tolist() == [drift.k_star]
    assert measured.slot_table([]).empty
    queue = runs["slow"].steps[-1].queue
    table = measured.queue_table(queue, 20, drift)
    assert table["drift"].notna().all()
    assert table["label"].tolist() == queue.labels.tolist()


# What is said


def changed(drift: Drift, **fields) -> Drift:
    return Drift(**{**vars(drift), **fields})


def test_the_headline_follows_the_numbers(runs):
    drift = newest(runs["slow"])
    whole = changed(drift, k_star=32, gradient_cosine=np.array([1, 0.999]), length=np.array([1, 32]))
    assert "whole queue is consistent" in readings.consistency(whole, 32)
    assert "only a run with a larger K" in readings.consistency(whole, 32)  # its limit lies further out
    assert readings.consistency(whole, 100).endswith("The queue is 32% full so far.")
    half = changed(whole, k_star=8, gradient_cosine=np.array([1, 0.0]))
    assert "newest 8 of 32 keys are consistent" in readings.consistency(half, 32)
    assert "90° away" in readings.consistency(half, 32)
    assert "Not even the newest" in readings.consistency(changed(half, k_star=0), 32)
    lost = changed(whole, gradient_cosine=np.full(2, np.nan))
    assert "lost in rounding" in readings.consistency(lost, 32)


def test_the_share_measured_is_told(runs):
    assert readings.measured_share(newest(runs["slow"])).startswith("All 32 keys")
    assert "32 of 64 keys were encoded again, 4 whole batches" in readings.measured_share(
        newest(runs["sampled"])
    )


def test_a_length_between_measured_batches_is_a_lower_bound(runs):
    part = changed(newest(runs["sampled"]), k_star=16)
    assert part.k_star_text == "≥ 16"
    assert "**At least the newest 16 of 64 keys are consistent**" in readings.consistency(part, 64)
    assert "K\\* may therefore be larger" in readings.measured_share(part)
    assert "to ≥ 16 of 64 keys" in readings.over_training([part, part])
    exact = (changed(part, k_star=64), changed(part, k_star=0), changed(newest(runs["slow"]), k_star=16))
    assert [drift.k_star_text for drift in exact] == ["64", "0", "16"]
    assert "may therefore" not in "".join(map(readings.measured_share, exact))


@pytest.mark.parametrize(
    ("value", "words"), [(0.0, "read 0, as they must"), (1e-3, "where 0 is due"), (math.nan, "No control")]
)
def test_the_control_is_read_out(value, words):
    assert words in readings.control(value)


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        (RankCorrelation(0.98, 0.9, 0.99, 8), "evicts the right ones"),
        (RankCorrelation(0.4, 0.1, 0.6, 8), "loosely"),
        (RankCorrelation(0.1, -0.2, 0.3, 8), "nothing certain"),
        (RankCorrelation(-0.6, -0.8, -0.3, 8), "evicts the wrong ones"),
        (RankCorrelation(-0.6, -0.8, -0.3, 8), "ρ = −0.60, 95% interval −0.80 to −0.30 over 8 ages"),
        (RankCorrelation(0.93, 0.93, 0.93, 2), "is 0.93 over 2 ages: too few to judge"),
        (RankCorrelation(-0.9, -0.95, -0.8, 4), "over 4 ages: too few to judge"),
        (RankCorrelation(0.98, 0.9, 0.99, 5), "evicts the right ones"),
        (RankCorrelation(math.nan, math.nan, math.nan, 1), "one age"),
        (RankCorrelation(math.nan, math.nan, math.nan, 5), "no key has drifted"),
    ],
)
def test_the_order_of_age_is_put_in_words(rank, words):
    assert words in readings.order_of_age(rank)


def test_the_best_eviction_is_named(runs):
    drift = newest(runs["fast"])
    kept = np.array([1, 16, 32])

    def with_cosines(**at_half):
        curves = {policy: np.array([1, at_half.get(policy, 0.5), 0.4]) for policy in figures.POLICY_NAMES}
        return readings.best_eviction(changed(drift, kept=kept, evictions=curves), figures.POLICY_NAMES)

    assert "Evicting most drifted first would do best" in with_cosines(most_drifted_first=0.9)
    assert "as good as any" in with_cosines(oldest_first=0.9)
    assert "hardly matters" in with_cosines()
    assert "16 of 32 slots" in with_cosines()
    assert "can't be compared" in with_cosines(random=math.nan)


def test_training_is_told_as_a_story(runs):
    drifts = measured.measured(runs["slow"], "slow")[0]
    assert "second will show" in readings.over_training(drifts[:1])
    assert "consistent at every snapshot" in readings.over_training(
        [changed(d, k_star=d.filled) for d in drifts]
    )
    fell = [
        changed(drifts[0], k_star=30),
        changed(drifts[0], k_star=4, step=15),
        changed(drifts[1], k_star=20),
    ]
    assert "fell to 4" in readings.over_training(fell)
    assert "went from 3 of 32 at step 10 to 9" in readings.over_training(
        [changed(drifts[0], k_star=3), changed(drifts[1], k_star=9)]
    )


def test_false_negatives_are_counted():
    assert "no labels" in readings.false_negatives(0, 10, None, {})
    assert "Choose a class" in readings.false_negatives(0, 10, None, {1: "cat"})
    text = readings.false_negatives(3, 12, 1, {1: "cat_"})
    assert "3 of 12 keys (25.0%)" in text
    assert "cat\\_" in text
