"""The similarity page on runs of every kind: right sentences, no tracebacks, the pairs behind a bar."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from moco_core.analysis import similarity
from moco_core.dashboard import similarity_data as data
from moco_core.dashboard import similarity_view as view
from moco_core.runs import RunStore, RunWriter, schema
from tests.pages.opening import headings, open_page, sentences
from tests.synthetic import write_run

HEADINGS = ["Positive and negative cosines", "Other runs at this step"]


def opened(root: Path, monkeypatch: pytest.MonkeyPatch, **query: str) -> AppTest:
    monkeypatch.setenv("MOCO_RUNS", str(root))
    return open_page("similarity", **query)


def quantiles(app: AppTest):
    return app.dataframe[0].value.set_index("pairs")


def test_a_sweep_is_shown_whole(tmp_path, monkeypatch):
    for momentum in (0.0, 0.9, 0.99):
        write_run(tmp_path, f"m={momentum}", momentum=momentum, sweep="momenta")
    app = opened(tmp_path, monkeypatch)
    assert headings(app) == HEADINGS
    assert not app.error
    assert len(app.multiselect[0].value) == 3
    assert list(quantiles(app).index) == [data.POSITIVES, data.NEGATIVES, data.HARD, data.FALSE]
    assert len(app.dataframe[1].value) == 3
    assert "60 samples against 32 negatives: 1,920 pairs" in sentences(app.caption)
    app.segmented_control(key="runs_as").set_value("overlay").run()
    assert not app.exception


def test_the_temperature_starts_at_the_runs_own_and_moves_the_weight(tmp_path, monkeypatch):
    write_run(tmp_path, temperature=0.07)
    app = opened(tmp_path, monkeypatch)
    assert app.slider(key="tau").value == 0.07
    assert "At τ = 0.07" in sentences(app.markdown)
    app.slider(key="tau").set_value(0.5).run()
    assert "At τ = 0.5" in sentences(app.markdown)
    assert not app.exception


def test_the_links_temperature_leads(tmp_path, monkeypatch):
    write_run(tmp_path, temperature=0.07)
    assert opened(tmp_path, monkeypatch, tau="0.3").slider(key="tau").value == 0.3


def test_the_table_holds_the_quantiles_of_all_pairs(tmp_path, monkeypatch):
    write_run(tmp_path)
    checkpoint = RunStore(tmp_path)["synthetic"].steps[-1]
    table = quantiles(opened(tmp_path, monkeypatch))
    negative = (checkpoint.query @ checkpoint.queue.keys.T).ravel()
    positive = (checkpoint.query * checkpoint.second_view).sum(1)
    assert table.loc[data.NEGATIVES, "count"] == negative.size
    for share in ("5%", "50%", "95%"):
        q = float(share[:-1]) / 100
        for kind, exact in ((data.NEGATIVES, negative), (data.POSITIVES, positive)):
            expected = np.quantile(exact, q, method="inverted_cdf")
            assert table.loc[kind, share] == pytest.approx(expected, abs=0.0011)


@pytest.mark.parametrize("source", ["the queue", "other evaluation samples"])
@pytest.mark.parametrize("kind", [data.NEGATIVES, data.HARD, data.FALSE])
def test_a_bar_opens_the_pairs_behind_it_hardest_first(tmp_path, monkeypatch, source, kind):
    write_run(tmp_path)
    run = RunStore(tmp_path)["synthetic"]
    images, checkpoint = run.eval_set, run.steps[-1]
    cosines = checkpoint.query @ checkpoint.key.T
    np.fill_diagonal(cosines, -2)
    eligible = {
        data.NEGATIVES: cosines > -2,
        data.HARD: cosines >= np.partition(cosines, -10, axis=1)[:, -10, None],
        data.FALSE: (images.labels[:, None] == images.labels) & (cosines > -2),
    }[kind]
    low = data.bar_start(int((np.median(cosines[eligible]) + 1) * data.BARS / 2))
    inside = eligible & (cosines >= low) & (cosines < low + 2 / data.BARS)
    assert inside.any()
    app = opened(tmp_path, monkeypatch, negatives=source)
    app.selectbox(key="pairs").set_value(kind)
    app.slider(key="bar").set_value(low).run()
    assert not app.exception
    shown = "".join(element.proto.body for element in app.get("html"))
    hardest = max(zip(*np.nonzero(inside), strict=True), key=lambda pair: cosines[pair])
    for row in hardest:
        assert f"#{images.sample_ids[row]}<" in shown
    assert f"cosine {cosines[hardest]:.3f}" in shown
    assert shown.count("→") == min(inside.sum(), view.PAIRS)
    slots = [f for f in app.dataframe if "age (steps)" in f.value.columns]
    if source == "the queue":
        assert "of which runs keep no pixels" in sentences(app.caption)
        for frame in slots:
            assert (np.diff(frame.value["cosine"]) <= 0).all()
            assert frame.value["cosine"].between(low - 1e-6, low + 2 / data.BARS + 1e-6).all()
    else:
        assert not slots


def test_a_bar_of_positives_opens_images_least_alike_first(tmp_path, monkeypatch):
    write_run(tmp_path)
    run = RunStore(tmp_path)["synthetic"]
    checkpoint = run.steps[-1]
    cosines = (checkpoint.query * checkpoint.second_view).sum(1)
    low = data.bar_start(int((np.median(cosines) + 1) * data.BARS / 2))
    inside = np.flatnonzero((cosines >= low) & (cosines < low + 2 / data.BARS))
    app = opened(tmp_path, monkeypatch)
    app.selectbox(key="pairs").set_value(data.POSITIVES)
    app.slider(key="bar").set_value(low).run()
    shown = app.get("html")[0].proto.body
    ids = run.eval_set.sample_ids[inside[np.argsort(cosines[inside])]]
    places = [shown.index(f"#{number}<") for number in ids]
    assert places == sorted(places)
    assert f"{len(inside)} samples" in sentences(app.caption)


def test_an_empty_bar_says_so(tmp_path, monkeypatch):
    write_run(tmp_path)
    app = opened(tmp_path, monkeypatch, pairs=data.POSITIVES, bar="-1.0")
    assert "No positive pair has this cosine." in sentences(app.info)
    app.selectbox(key="pairs").set_value(data.FALSE).run()
    assert "No two evaluation samples of this kind" in sentences(app.info)
    assert "No slot of the queue" in sentences(app.caption)


def test_no_runs(tmp_path, monkeypatch):
    assert "no runs yet" in sentences(opened(tmp_path, monkeypatch).info)


def test_a_damaged_step_says_why(tmp_path, monkeypatch):
    path = write_run(tmp_path)
    file = path / schema.step_name(20) / schema.EMBEDDINGS_FILE
    data_bytes = bytearray(file.read_bytes())
    data_bytes[-1] ^= 1
    file.write_bytes(data_bytes)
    app = opened(tmp_path, monkeypatch)
    assert sentences(app.error).count("is damaged") == 1
    assert not headings(app)


def test_a_damaged_queue_says_why(tmp_path, monkeypatch):
    path = write_run(tmp_path)
    file = path / schema.step_name(20) / schema.QUEUE_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    app = opened(tmp_path, monkeypatch)
    assert "queue" in sentences(app.error)
    assert "is damaged" in sentences(app.error)


def test_a_damaged_neighbour_is_left_out_by_name(tmp_path, monkeypatch):
    write_run(tmp_path, "good", sweep="s")
    path = write_run(tmp_path, "*bad*", sweep="s")
    file = path / schema.step_name(20) / schema.EMBEDDINGS_FILE
    file.write_bytes(bytes(file.stat().st_size))
    app = opened(tmp_path, monkeypatch, run="good")
    assert r"\*bad\*" in sentences(app.error)
    assert headings(app) == HEADINGS
    assert len(app.dataframe[1].value) == 1


@pytest.mark.parametrize("queue", [True, False], ids=["empty queue", "no queue"])
def test_without_a_queue_images_are_each_others_negatives(tmp_path, monkeypatch, queue):
    write_run(tmp_path, queue=queue, steps=(0,))
    app = opened(tmp_path, monkeypatch)
    assert app.segmented_control(key="negatives").options == ["other evaluation samples"]
    assert "serve as negatives of each other" in sentences(app.caption)
    assert quantiles(app).loc[data.NEGATIVES, "count"] == 60 * 59


def test_without_labels_there_are_no_false_negatives(tmp_path, monkeypatch):
    write_run(tmp_path, labelled=False)
    assert data.FALSE not in quantiles(opened(tmp_path, monkeypatch)).index


def test_imported_vectors_alone(tmp_path, monkeypatch):
    path = write_run(tmp_path, queue=False, steps=(0,))
    query = RunStore(tmp_path)[path.name].steps[-1].query
    RunWriter(path).write_step(0, {schema.EMBEDDINGS_FILE: {"query": query}}, {})
    app = opened(tmp_path, monkeypatch)
    assert "no positive pairs" in sentences(app.markdown)
    assert data.POSITIVES not in quantiles(app).index
    assert not app.error


@pytest.mark.parametrize(
    "shape",
    [
        {"samples": 2, "classes": 2, "queue_size": 4},
        {"dim": 2},
        {"dim": 3},
        {"classes": 1},
        {"samples": 2000, "classes": 1000, "steps": (0, 1), "queue_size": 8},
    ],
    ids=["two samples", "D = 2", "D = 3", "one class", "thousand classes"],
)
def test_unusual_shapes(tmp_path, monkeypatch, shape):
    write_run(tmp_path, **shape)
    app = opened(tmp_path, monkeypatch)
    assert headings(app) == HEADINGS
    assert not app.error
    app.segmented_control(key="negatives").set_value(data.IMAGES).run()
    assert not app.error
    assert not app.exception


def test_names_are_shown_as_text(tmp_path, monkeypatch):
    write_run(tmp_path, "<b>run</b>", classes=2, class_names=("<b>x</b>", "y"))
    app = opened(tmp_path, monkeypatch, pairs=data.NEGATIVES, bar="0.0", negatives=view.SOURCES[data.IMAGES])
    shown = "".join(element.proto.body for element in app.get("html"))
    assert "<b>" not in shown
    assert "&lt;b&gt;x&lt;/b&gt;" in shown or not shown


# the numbers behind the page


def test_very_many_pairs_are_sampled_and_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "MOST_PAIRS", 320)
    write_run(tmp_path, "large")
    run = RunStore(tmp_path)["large"]
    found = data.cosines(run, run.steps[-1], data.QUEUE)
    assert found.queries == 10
    assert found.negative.counts.sum() == 320
    assert "fixed random sample of 10 of 60 samples" in view.sampling(found)
    weight = data.weights(run, run.steps[-1], data.QUEUE, 0.2)
    assert weight.positive.sum() + weight.negative.sum() == pytest.approx(1)
    assert data.cosines(run, run.steps[-1], data.IMAGES).negative.counts.sum() == 17 * 16


def test_overlap_of_a_run_is_that_of_its_bars(tmp_path):
    write_run(tmp_path)
    run = RunStore(tmp_path)["synthetic"]
    found = data.cosines(run, run.steps[-1], data.QUEUE)
    positive, hard = (
        np.histogram(x, bins=data.BARS, range=(-1, 1))[0] for x in (found.positive, found.negative.hardest)
    )
    expected = np.minimum(positive / positive.sum(), hard / hard.sum()).sum()
    assert found.overlap == pytest.approx(expected)


def test_bars_and_their_starts_name_each_other():
    assert [data.bar_at(data.bar_start(bar)) for bar in range(data.BARS)] == list(range(data.BARS))
    assert similarity.BINS % data.BARS == 0


def test_the_nearest_step_is_the_newest_up_to_it(tmp_path):
    write_run(tmp_path, steps=(0, 10, 20))
    run = RunStore(tmp_path)["synthetic"]
    assert [data.nearest_step(run, step).step for step in (0, 9, 10, 15, 99)] == [0, 0, 10, 10, 20]
