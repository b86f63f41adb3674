"""The geometry page on runs of every kind: right sentences, no tracebacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from moco_core.analysis.neighbors import knn_predict
from moco_core.dashboard import geometry_data, geometry_view
from moco_core.runs import RunStore, schema
from tests.charts import charts
from tests.pages.opening import headings, open_page, sentences
from tests.synthetic import write_run


def opened(root: Path, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    monkeypatch.setenv("MOCO_RUNS", str(root))
    return open_page("geometry", **query)


EVERYTHING = [
    "Alignment and uniformity over training",
    "Has it collapsed?",
    "Spectrum",
    "Class by class",
    "Hubs",
    "Which classes are confused?",
]


def test_a_sweep_is_shown_whole(tmp_path, monkeypatch):
    for momentum in (0.0, 0.9, 0.99):
        write_run(tmp_path, f"m={momentum}", momentum=momentum, sweep="momenta", classes=5, samples=100)
    app = opened(tmp_path, monkeypatch)
    assert headings(app) == EVERYTHING
    assert not app.error
    assert sorted(app.multiselect[0].value) == ["m0.0", "m0.9", "m0.99"]
    assert "Query embeddings. No collapse" in sentences(app.success)
    assert len(charts(app)) == 5


def test_the_step_of_the_url_is_shown(tmp_path, monkeypatch):
    write_run(tmp_path, steps=(0, 10, 20))
    app = opened(tmp_path, monkeypatch, step="10")
    assert app.select_slider[0].value == "10"


def test_settings_change_what_is_shown(tmp_path, monkeypatch):
    write_run(tmp_path, samples=80)
    app = opened(tmp_path, monkeypatch)
    assert "The mean is always 20" in sentences(app.caption)
    app.slider(key="k").set_value(5).run()
    assert "The mean is always 5" in sentences(app.caption)
    app.segmented_control(key="layer").set_value("features").run()
    assert "in the backbone features" in sentences(app.caption)
    assert not app.exception


def test_a_cell_opens_the_images_whose_neighbours_voted_so(tmp_path, monkeypatch):
    write_run(tmp_path, samples=90, classes=3, dim=4, steps=(0,))
    run = RunStore(tmp_path)["synthetic"]
    images, query = run.eval_set, run.steps[-1].query
    votes = knn_predict(query, images.labels, k=20)
    expected = np.flatnonzero((images.labels == 1) & (votes == 2))
    assert len(expected)  # the synthetic first step is noisy enough to have mistakes
    app = opened(tmp_path, monkeypatch)
    app.selectbox(key="true").set_value("class 1").run()
    app.selectbox(key="vote").set_value("class 2").run()
    assert not app.exception
    gallery = app.get("html")[-1].proto.body
    for row in expected[: geometry_view.CELL]:
        assert f"class 1 #{images.sample_ids[row]}" in gallery
    assert f"{len(expected)} samples" in sentences(app.caption) or len(expected) > geometry_view.CELL


def test_an_empty_cell_says_so(tmp_path, monkeypatch):
    write_run(tmp_path, samples=60, classes=3, dim=32, steps=(0, 20))
    app = opened(tmp_path, monkeypatch)
    app.selectbox(key="true").set_value("class 0").run()
    app.selectbox(key="vote").set_value("class 1").run()
    assert "No sample of that class has that vote." in sentences(app.info)


def test_a_cell_of_another_run_is_forgotten(tmp_path, monkeypatch):
    write_run(tmp_path, "a", classes=3)
    write_run(tmp_path, "b", classes=3, class_names=("x", "y", "z"))
    app = opened(tmp_path, monkeypatch, run="a")
    app.selectbox(key="true").set_value("class 1").run()
    app.query_params["run"] = "b"
    app.run()
    assert not app.exception
    assert app.selectbox(key="true").value is None


def test_no_runs(tmp_path, monkeypatch):
    app = opened(tmp_path, monkeypatch)
    assert "no runs yet" in sentences(app.info)
    assert not headings(app)


def test_a_damaged_step_says_why_and_its_neighbours_are_shown(tmp_path, monkeypatch):
    path = write_run(tmp_path, steps=(0, 10, 20))
    file = path / schema.step_name(20) / schema.EMBEDDINGS_FILE
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    app = opened(tmp_path, monkeypatch)
    assert "is damaged" in sentences(app.error)
    assert len(app.error) == 1
    assert headings(app) == EVERYTHING[:1]
    app.select_slider[0].set_value("10").run()
    assert headings(app) == EVERYTHING
    assert not app.error


def test_a_damaged_eval_set_says_why(tmp_path, monkeypatch):
    path = write_run(tmp_path)
    (path / schema.EVAL_FILE).write_bytes(b"nonsense")
    app = opened(tmp_path, monkeypatch)
    assert "its checksum differs" in sentences(app.error)


def test_without_labels_only_what_needs_them_is_missing(tmp_path, monkeypatch):
    write_run(tmp_path, labelled=False)
    app = opened(tmp_path, monkeypatch)
    assert headings(app) == EVERYTHING
    assert sentences(app.info).count("have no labels") == 2
    assert not app.error


def test_two_samples(tmp_path, monkeypatch):
    write_run(tmp_path, samples=2, classes=2, queue_size=4)
    app = opened(tmp_path, monkeypatch)
    assert headings(app) == EVERYTHING
    assert "the vote of the 1 nearest other" in sentences(app.caption)  # of the 20 that the slider asks for
    assert not app.error


def test_one_class(tmp_path, monkeypatch):
    write_run(tmp_path, classes=1)
    app = opened(tmp_path, monkeypatch)
    assert "100.0% of the votes are right" in sentences(app.caption)


def test_a_thousand_classes(tmp_path, monkeypatch):
    write_run(tmp_path, samples=3000, classes=1000, steps=(0, 1), queue_size=8)
    app = opened(tmp_path, monkeypatch)
    assert "Of 1,000 classes" in sentences(app.caption)
    assert f"the {geometry_data.MATRIX} that take part in most mistakes" in sentences(app.caption)
    assert len(app.selectbox(key="true").options) == geometry_data.MATRIX


def test_two_dimensions_are_shown_on_the_circle(tmp_path, monkeypatch):
    write_run(tmp_path, dim=2)
    assert "On the circle, undistorted" in headings(opened(tmp_path, monkeypatch))


def test_three_dimensions_are_shown_on_the_sphere(tmp_path, monkeypatch):
    write_run(tmp_path, dim=3)
    assert "On the sphere, undistorted" in headings(opened(tmp_path, monkeypatch))


def test_names_are_shown_as_text(tmp_path, monkeypatch):
    names = ("<b>bold</b>", "*star*", "[link](http://example.org)")
    write_run(tmp_path, "<i>run</i>", classes=3, class_names=names)
    app = opened(tmp_path, monkeypatch)
    everything = sentences([*app.markdown, *app.caption, *app.info])
    assert "<b>bold" not in everything
    assert "<b>" not in app.get("html")[0].proto.body.replace("<br>", "")
    assert app.selectbox(key="true").options == list(names)


def test_class_names_that_repeat_can_be_told_apart(tmp_path, monkeypatch):
    write_run(tmp_path, classes=3, class_names=("same", "same", "other"))
    app = opened(tmp_path, monkeypatch)
    assert app.selectbox(key="true").options == ["same (0)", "same (1)", "other"]


def test_labels_without_names_are_numbered(tmp_path, monkeypatch):
    write_run(tmp_path, classes=3, class_names=("only",))
    app = opened(tmp_path, monkeypatch)
    assert app.selectbox(key="true").options == ["only", "class 1", "class 2"]


def test_a_collapsed_run_is_called_so(tmp_path, monkeypatch):
    write_run(tmp_path, steps=(0,), dim=4)
    collapse(tmp_path / "synthetic")
    app = opened(tmp_path, monkeypatch)
    assert "Query embeddings. Complete collapse" in sentences(app.error)


def collapse(path: Path) -> None:
    """Rewrite the newest step with all embeddings nearly in one place."""
    from moco_core.runs import RunWriter

    checkpoint = RunStore(path.parent)[path.name].steps[-1]
    arrays = dict(checkpoint.arrays(schema.EMBEDDINGS_FILE))
    noise = np.random.default_rng(0).normal(size=arrays["query"].shape) * 1e-3
    point = np.ones_like(arrays["query"]) + noise
    arrays["query"] = (point / np.linalg.norm(point, axis=1, keepdims=True)).astype(np.float32)
    RunWriter(path).write_step(checkpoint.step, {schema.EMBEDDINGS_FILE: arrays}, dict(checkpoint.metrics))


def test_an_imported_run_without_views_or_features(tmp_path, monkeypatch):
    path = write_run(tmp_path, queue=False, steps=(0,))
    from moco_core.runs import RunWriter

    query = RunStore(tmp_path)[path.name].steps[-1].query
    RunWriter(path).write_step(0, {schema.EMBEDDINGS_FILE: {"query": query}}, {})
    app = opened(tmp_path, monkeypatch)
    assert headings(app) == EVERYTHING
    assert not app.error
    assert "there is no second view here" in sentences(app.info)


# the numbers behind the page


def test_stored_metrics_are_used_only_under_the_same_definition(tmp_path):
    from moco_core.runs import RunWriter

    path = write_run(tmp_path, steps=(0,))
    run = RunStore(tmp_path)[path.name]
    assert geometry_data.path(run, "run").alignment == (1.0,)  # as stored
    metrics = {"alignment": {"value": 123.0, "alpha": 1}, "uniformity": {"value": -1.0, "t": 2}}
    checkpoint = run.steps[0]
    RunWriter(path).write_step(
        0, {schema.EMBEDDINGS_FILE: checkpoint.arrays(schema.EMBEDDINGS_FILE)}, metrics
    )
    run = RunStore(tmp_path)[path.name]
    query, view = run.steps[0].query, run.steps[0].second_view
    found = geometry_data.path(run, "run")
    assert found.alignment[0] == pytest.approx(np.mean(np.sum((query - view) ** 2, axis=1)), rel=1e-5)


def test_most_confused_keeps_the_classes_with_most_mistakes():
    truth = np.concatenate([np.arange(1000), [700] * 9, [701] * 8])
    votes = np.concatenate([np.arange(1000), [3] * 9, [4] * 8])
    shown = geometry_data.most_confused(truth, votes, 4)
    assert shown.tolist() == [3, 4, 700, 701]
    assert geometry_data.most_confused(np.array([5, 5]), np.array([5, 2])).tolist() == [2, 5]


def test_confusion_totals_count_votes_for_classes_that_are_not_shown(tmp_path, monkeypatch):
    path = write_run(tmp_path, samples=400, classes=100, dim=4, steps=(0,))
    run = RunStore(tmp_path)[path.name]
    matrix = geometry_data.confusion(run, run.steps[0], 5, "query")
    assert len(matrix.labels) == geometry_data.MATRIX
    assert (matrix.counts.sum(1) <= matrix.totals).all()
    assert (matrix.totals == 4).all()
    assert matrix.counts.sum() < matrix.totals.sum()
