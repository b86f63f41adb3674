"""The comparison of two checkpoints: right numbers, right sentences, no tracebacks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from moco_core.analysis.geometry import uniformity
from moco_core.analysis.neighbors import knn_predict, overlap
from moco_core.dashboard import compare_data as data
from moco_core.dashboard import compare_view as view
from moco_core.dashboard.compare_data import Side
from moco_core.dashboard.projections import ProjectionDesk, Work
from moco_core.runs import RunStore, RunWriter, schema
from tests.charts import charts
from tests.pages.opening import headings, open_page, sentences
from tests.synthetic import write_run

HEADINGS = [
    "Side by side",
    "Which one is better?",
    "How alike are the two spaces?",
    "Classes that improved and got worse",
    "Whose neighbourhood changed most?",
]


def opened(root: Path, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    """The page with principal components, which need no process of their own."""
    monkeypatch.setenv("MOCO_RUNS", str(root))
    return open_page("compare", **{"method": "PCA", **query})


def sides(root: Path, a: str = "a", b: str = "b") -> tuple[Side, Side]:
    store = RunStore(root)
    return tuple(Side(store[name], store[name].steps[-1]) for name in (a, b))


@pytest.fixture
def two(tmp_path):
    """Two runs on the same images in spaces of their own."""
    write_run(tmp_path, "a", dim=8)
    write_run(tmp_path, "b", dim=6)
    return tmp_path


def subset(root: Path, name: str, rows: np.ndarray) -> None:
    """Cut a run's evaluation set and embeddings down to some of its images, in another order."""
    run = RunStore(root)[name]
    images, writer = run.eval_set, RunWriter(run.path)
    arrays = {"thumbnails": images.thumbnails, "labels": images.labels, "sample_ids": images.sample_ids}
    for checkpoint in run.steps:
        files = {
            file: checkpoint.arrays(file)
            for file in (schema.EMBEDDINGS_FILE, schema.QUEUE_FILE)
            if file in checkpoint.manifest["files"]
        }
        files[schema.EMBEDDINGS_FILE] = {k: v[rows] for k, v in files[schema.EMBEDDINGS_FILE].items()}
        writer.write_step(checkpoint.step, files, dict(checkpoint.metrics))
    writer.write_eval_set({key: value[rows] for key, value in arrays.items()}, images.class_names)


def test_two_runs_are_shown_whole(two, monkeypatch):
    app = opened(two, monkeypatch, a="a", b="b")
    assert headings(app) == HEADINGS
    assert not app.error
    assert "Both embed the same 60 images." in sentences(app.caption)
    assert len(charts(app)) == 3
    assert list(app.dataframe[0].value["metric"])[:3] == [
        "kNN accuracy (query embeddings)",
        "linear probe accuracy",
        "alignment",
    ]


def test_of_many_images_the_pictures_come_first(two, monkeypatch):
    searched = []
    found = data.neighbourhoods

    def neighbourhoods(a, b, common, k, layer):
        searched.append(data.quickly_found(a, b, common, k, layer))
        return found(a, b, common, k, layer)

    monkeypatch.setattr(data, "FEW", 10)
    monkeypatch.setattr(data, "neighbourhoods", neighbourhoods)
    app = opened(two, monkeypatch, a="a", b="b", k="7")
    assert headings(app) == HEADINGS
    assert not searched[0]  # after the pictures, which then are drawn again with what it found
    assert all(searched[1:])


def test_metrics_that_neither_run_stored_are_not_measured(two):
    a, b = sides(two)
    assert "knn_features" not in {**a.checkpoint.metrics, **b.checkpoint.metrics}
    assert not any("backbone features" in m.name for m in data.metrics(a, b, data.match(a, b)))


def test_two_steps_of_one_run(tmp_path, monkeypatch):
    write_run(tmp_path, "only")
    app = opened(tmp_path, monkeypatch, a="only", b="only", a_step="0")
    assert headings(app) == HEADINGS
    assert "B leads in " in sentences(app.markdown)
    knn = app.dataframe[0].value.set_index("metric").loc["kNN accuracy (query embeddings)"]
    assert (knn["A"], knn["B"], knn["better"]) == (0.4, 0.9, "B")


def test_a_run_alone_is_compared_with_its_own_beginning(tmp_path, monkeypatch):
    write_run(tmp_path, "only")
    app = opened(tmp_path, monkeypatch)
    assert headings(app) == HEADINGS
    assert [app.select_slider(key=f"_{side}_step").value for side in "ab"] == ["0", "20"]
    app.select_slider(key="_a_step").set_value("20").run()  # the same checkpoint twice
    assert "the same checkpoint" in sentences(app.info)
    assert not headings(app)


def test_a_link_to_one_run_twice_keeps_its_steps(tmp_path, monkeypatch):
    write_run(tmp_path, "only")
    app = opened(tmp_path, monkeypatch, a="only", b="only")
    assert "the same checkpoint" in sentences(app.info)


def test_the_first_suggestion_is_a_run_of_the_sweep_with_the_same_images(tmp_path, monkeypatch):
    write_run(tmp_path, "other images", seed=1, sweep="s")
    write_run(tmp_path, "same images", dim=5)
    write_run(tmp_path, "same sweep", dim=6, sweep="s")
    write_run(tmp_path, "newest", sweep="s")
    app = opened(tmp_path, monkeypatch)
    assert app.selectbox(key="_a").value == "newest"
    assert app.selectbox(key="_b").value == "same-sweep"


def test_settings_and_colours_all_work(two, monkeypatch):
    app = opened(two, monkeypatch, a="a", b="b")
    for colour in ("overlap", "votes", "class"):
        app.selectbox(key="compare_colour").set_value(colour).run()
        assert not app.exception
        assert not app.error
    app.slider(key="k").set_value(3).run()
    assert "its 3 nearest neighbours" in sentences(app.markdown)
    app.selectbox(key="layer").set_value("features").run()
    assert not app.exception


def test_the_most_changed_stand_beside_each_other_as_in_a_and_in_b(two, monkeypatch):
    a, b = sides(two)
    common = data.match(a, b)
    near = data.neighbourhoods(a, b, common, 20, "query")
    (shown,) = opened(two, monkeypatch, a="a", b="b").get("html")
    lines = re.findall(
        r'<div style="display:flex;gap:10px">.*?#(\d+)<', shown.proto.body
    )  # the sample of each
    changed = common.images.sample_ids[view.most_changed(near)]
    assert list(map(int, lines)) == np.repeat(changed, 2).tolist()


def test_different_evaluation_sets_are_compared_on_what_both_have(two, monkeypatch):
    subset(two, "b", np.arange(40)[::-1])
    app = opened(two, monkeypatch, a="a", b="b")
    assert headings(app) == HEADINGS
    assert "about the 40 samples that both hold (of 60 in A and 40 in B)" in sentences(app.caption)
    assert not app.error


def test_the_same_samples_in_another_order_are_no_different_set(two):
    subset(two, "b", np.arange(60)[::-1])
    common = data.match(*sides(two))
    assert common.sentence == "Both embed the same 60 samples, matched by sample id and picture."


def test_images_that_differ_under_one_id_are_not_matched(tmp_path, monkeypatch):
    write_run(tmp_path, "a", seed=0)
    write_run(tmp_path, "b", seed=1)
    app = opened(tmp_path, monkeypatch, a="a", b="b")
    assert "share 60 sample ids, but not the samples behind them" in sentences(app.info)
    assert not headings(app)


def test_sets_without_a_common_id_say_so(two, monkeypatch):
    run = RunStore(two)["b"]
    images = run.eval_set
    RunWriter(run.path).write_eval_set(
        {"thumbnails": images.thumbnails, "labels": images.labels, "sample_ids": images.sample_ids + 5000},
        images.class_names,
    )
    assert "have no sample id in common" in sentences(opened(two, monkeypatch, a="a", b="b").info)


def test_too_few_common_images_say_so(two, monkeypatch):
    subset(two, "b", np.arange(2))
    assert "share 2 of their samples" in sentences(opened(two, monkeypatch, a="a", b="b").info)


def test_no_runs(tmp_path, monkeypatch):
    app = opened(tmp_path, monkeypatch)
    assert "No runs yet." in sentences(app.caption)
    assert not headings(app)


@pytest.mark.parametrize("which", ["a", "b"])
def test_a_damaged_side_says_why(two, monkeypatch, which):
    file = two / which / schema.step_name(20) / schema.EMBEDDINGS_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    app = opened(two, monkeypatch, a="a", b="b")
    assert "is damaged" in sentences(app.error)
    assert not headings(app)


def test_a_picture_that_both_lack_can_be_tried_again_on_either_side(tmp_path, monkeypatch):
    """Runs that are alike, as those of a sweep are at step 0, have their pictures in common."""
    monkeypatch.setattr(ProjectionDesk, "ask", lambda *words: Work(error="there is not enough memory"))
    write_run(tmp_path, "a")
    write_run(tmp_path, "b")
    app = opened(tmp_path, monkeypatch, a="a", b="b", method="UMAP")
    assert [button.label for button in app.button].count("Try again") == 2


def test_without_labels_only_what_needs_them_is_missing(tmp_path, monkeypatch):
    write_run(tmp_path, "a", labelled=False)
    write_run(tmp_path, "b", labelled=False, dim=5)
    app = opened(tmp_path, monkeypatch, a="a", b="b")
    assert headings(app) == HEADINGS
    assert "have no labels" in sentences(app.info)
    assert not app.error
    assert app.selectbox(key="compare_colour").options == ["shared neighbours"]


@pytest.mark.parametrize(
    "shape",
    [
        {"samples": 2, "classes": 2, "queue_size": 4},
        {"dim": 2},
        {"dim": 3},
        {"classes": 1},
        {"samples": 2000, "classes": 1000, "steps": (0, 1), "queue_size": 8},
        {"classes": 3, "class_names": ("<b>x</b>", "*y*", "[z](http://z)")},
    ],
    ids=["two samples", "D = 2", "D = 3", "one class", "thousand classes", "markup"],
)
def test_unusual_shapes(tmp_path, monkeypatch, shape):
    write_run(tmp_path, "<i>run</i>", **shape)
    first = "0"
    app = opened(tmp_path, monkeypatch, a="i-run-i", b="i-run-i", a_step=first)
    assert not app.error
    assert headings(app) == HEADINGS
    everything = sentences([*app.markdown, *app.caption, *app.info])
    assert "<b>x" not in everything
    assert "<i>" not in everything


# the numbers behind the page


def test_overlap_and_votes_equal_direct_computation(two):
    a, b = sides(two)
    common = data.match(a, b)
    near = data.neighbourhoods(a, b, common, 7, "query")
    np.testing.assert_allclose(near.jaccard, overlap(a.checkpoint.query, b.checkpoint.query, 7))
    votes = data.votes(a, b, common, 7, "query")
    labels = a.run.eval_set.labels
    np.testing.assert_array_equal(votes.b, knn_predict(b.checkpoint.query, labels, k=7))
    assert (np.diff(near.jaccard[view.most_changed(near)]) >= 0).all()


def test_a_part_equals_comparing_runs_of_that_part(two):
    """Matched by id, whatever the order: as if both runs had embedded nothing else."""
    rows = np.random.default_rng(0).permutation(60)[:30]
    subset(two, "b", rows)
    a, b = sides(two)
    common = data.match(a, b)
    np.testing.assert_array_equal(
        a.run.eval_set.sample_ids[common.rows_a], b.run.eval_set.sample_ids[common.rows_b]
    )
    near = data.neighbourhoods(a, b, common, 5, "query")
    x, y = a.checkpoint.query[common.rows_a], b.checkpoint.query[common.rows_b]
    np.testing.assert_allclose(near.jaccard, overlap(x, y, 5))
    found = {m.name: m for m in data.metrics(a, b, common)}
    assert found["uniformity"].a == pytest.approx(uniformity(x))
    assert found["uniformity"].b == pytest.approx(uniformity(y))
    labels = a.run.eval_set.labels[common.rows_a]
    knn = found["kNN accuracy (query embeddings), each left out in turn"]
    assert knn.b == pytest.approx(np.mean(knn_predict(y, labels) == labels))
    assert "linear probe accuracy" not in found  # measured on other images


def test_stored_metrics_under_different_definitions_are_not_compared(two):
    run = RunStore(two)["b"]
    checkpoint = run.steps[-1]
    stored = {**checkpoint.metrics, "linear": {"value": 0.1, "layer": "projector"}}
    stored["uniformity"] = {"value": -9.0, "t": 3}
    files = {file: checkpoint.arrays(file) for file in (schema.EMBEDDINGS_FILE, schema.QUEUE_FILE)}
    RunWriter(run.path).write_step(checkpoint.step, files, stored)
    a, b = sides(two)
    found = {m.name: m for m in data.metrics(a, b, data.match(a, b))}
    assert "linear probe accuracy" not in found
    assert found["uniformity"].b == pytest.approx(uniformity(b.checkpoint.query))


def test_a_side_that_has_collapsed_is_named_beside_its_metrics(two, monkeypatch):
    assert not opened(two, monkeypatch, a="a", b="b").warning
    run = RunStore(two)["b"]
    checkpoint = run.steps[-1]
    verdict = {"value": 0.001, "verdict": "complete", "reason": "Complete collapse: all in one place."}
    files = {file: checkpoint.arrays(file) for file in (schema.EMBEDDINGS_FILE, schema.QUEUE_FILE)}
    RunWriter(run.path).write_step(checkpoint.step, files, {**checkpoint.metrics, "collapse": verdict})
    (warning,) = opened(two, monkeypatch, a="a", b="b").warning
    assert warning.value.startswith("B: Complete collapse")
    assert "Low alignment and high tolerance come with that" in warning.value


def test_metrics_reading_counts_who_is_ahead():
    pair = view.MetricPair
    found = [pair("x", 1, 2, +1), pair("y", 1, 2, -1), pair("z", 3, 4, +1), pair("t", 0, 9, 0)]
    assert view.metrics_reading(found) == "B leads in 2 metrics, A in 1."
    assert view.metrics_reading([*found, pair("s", 5, 5, +1)]) == "B leads in 2 metrics, A in 1, 1 is equal."
    assert view.metrics_reading(found[:2]) == "A leads in 1 metric, B in 1."
    assert view.metrics_reading(found[1:2]) == "A leads in 1 metric, B in none."
    assert view.metrics_reading([pair("s", 5, 5, +1)]) == "The two are equal in all metrics (1)."
    assert "share no metric" in view.metrics_reading([])


def test_the_class_that_moved_most_is_called_a_class(two):
    a, b = sides(two)  # "**9** improved most" could be nine classes
    common = data.match(a, b)
    reading = view.class_reading(data.votes(a, b, common, 5, "query"), common)
    assert re.search(r" in B\. Class \*\*.+?\*\* (improved|lost) most \([+−]\d", reading)


def test_the_overlap_is_told_in_the_neighbours_that_the_chart_counts():
    sharing = np.array([0, 4, 2, 4])  # of 4 neighbours each; the mean Jaccard index, 7/12, would mean 2.9
    near = data.Neighbourhoods(
        *[np.zeros((4, 4), int)] * 2, *[np.zeros((4, 4))] * 2, sharing / (8 - sharing), 4
    )
    assert view.overlap_reading(near).startswith(
        "On average a sample keeps 2.5 of its 4 nearest neighbours (mean Jaccard index 0.58"
    )


def test_only_accuracies_that_differ_by_more_than_chance_are_called_so():
    pair = view.MetricPair
    near = [pair("kNN", 0.96, 0.97, +1, 300), pair("uniformity", -2, -4, -1)]
    assert view.metrics_reading(near) == (
        "On 300 samples, chance alone may explain every difference in accuracy. B leads in 2 metrics, A in none."
    )
    far = [pair("linear", 0.95, 0.90, +1, 300), *near]
    assert view.metrics_reading(far).startswith(  # accuracy before the count, which noise may win
        "**More than chance** on 300 samples (95%, binomial): linear, by 5.0 points for A."
    )
    # Two shares of one half over 200 images: the standard error of their difference is 5 points
    assert [pair("x", 0.5 - d / 2, 0.5 + d / 2, +1, 200).beyond_chance for d in (0.09, 0.11)] == [False, True]
    assert not pair("x", 1.0, 1.0, +1, 200).beyond_chance
    assert not pair("x", 0.1, 0.9, +1).beyond_chance


def test_accuracies_know_their_number_of_images(two):
    for name, count in (("a", 60), ("b", 50)):
        run = RunStore(two)[name]
        checkpoint = run.steps[-1]
        stored = {key: {**entry, "count": count} for key, entry in checkpoint.metrics.items()}
        files = {file: checkpoint.arrays(file) for file in (schema.EMBEDDINGS_FILE, schema.QUEUE_FILE)}
        RunWriter(run.path).write_step(checkpoint.step, files, stored)
    a, b = sides(two)
    found = {m.name: m.count for m in data.metrics(a, b, data.match(a, b))}
    assert (found["kNN accuracy (query embeddings)"], found["linear probe accuracy"]) == (50, 50)
    assert found["uniformity"] == 0


def test_sides_of_one_name_are_told_apart_as_where_they_are_picked(tmp_path):
    first = write_run(tmp_path, "a", steps=(0, 10))
    write_run(tmp_path, "b", steps=(0, 10))
    a, b = sides(tmp_path)
    assert data.called(a, b) == ["a, step 10", "b, step 10"]
    assert data.called(Side(a.run, a.run.steps[0]), a) == ["a, step 0", "a, step 10"]
    RunWriter(first).describe(name="b")
    a, b = sides(tmp_path)
    assert data.called(a, b) == ["a · b, step 10", "1 · b, step 10"]


def test_panes_hold_the_same_images_at_the_same_places_but_for_a_turn(two, monkeypatch):
    from moco_core.dashboard.projections import Shown
    from moco_core.projections import ProjectionSettings, stored_projection

    subset(two, "b", np.arange(50)[::-1])
    a, b = sides(two)
    common = data.match(a, b)
    settings = ProjectionSettings(method="pca")
    pictures = tuple(stored_projection(s.run, s.checkpoint, settings) for s in (a, b))
    shown = tuple(Shown(picture, name, False, None) for picture, name in zip(pictures, "ab", strict=True))
    left, right = view.panes(a, b, shown, settings, common, True, view.CLASS, 5)
    np.testing.assert_array_equal(left.points.samples, right.points.samples)
    np.testing.assert_array_equal(left.points.samples, np.arange(50))
    place = {row: i for i, row in enumerate(pictures[0].samples)}
    expected = pictures[0].coordinates[0][[place[row] for row in common.rows_a]]
    np.testing.assert_allclose(left.points.frames[0], expected, rtol=1e-6)
    place = {row: i for i, row in enumerate(pictures[1].samples)}
    original = pictures[1].coordinates[0][[place[row] for row in common.rows_b]].astype(float)
    gaps = [
        np.linalg.norm(x[:, None] - x[None], axis=2) for x in (original, right.points.frames[0].astype(float))
    ]
    np.testing.assert_allclose(*gaps, atol=1e-4)
