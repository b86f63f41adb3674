"""Points, colours and tables of the projection page say what the run says."""

import dataclasses

import numpy as np
import pytest

from moco_core.dashboard import loaders, projection_view
from moco_core.dashboard.figures.projection import projection_figure
from moco_core.dashboard.points import Colour
from moco_core.projections import ProjectionSettings
from moco_core.projections.compute import compute
from moco_core.runs import Run, RunStore
from tests.synthetic import write_run

ALL = ProjectionSettings(method="pca", keys=True, queue=True)


@pytest.fixture
def run(tmp_path):
    return Run(write_run(tmp_path, class_names=("<b>a</b>", "b", "c", "d")))


@pytest.fixture
def step(run):
    return run.steps[-1]


@pytest.fixture
def picture(run, step):
    return compute(run, step, ALL)


def test_the_queue_fades_with_age(run, step, picture):
    fade = projection_view.points_of(run, step, ALL, picture).fade
    ages = step.queue.ages(step.step)
    assert (fade[:120] == 1).all()
    assert fade[120] == pytest.approx(projection_view.FAINTEST)  # the oldest
    assert fade[-1] == 1  # the newest
    assert (np.diff(fade[120:]) >= 0).all()
    assert len(np.unique(fade[120:])) == len(np.unique(ages))


def test_classes_are_those_of_images_and_of_queue_slots(run, step, picture):
    colour = projection_view.colour_of("class", run, step, picture, 5)
    labels = run.eval_set.labels
    np.testing.assert_array_equal(colour.values, np.concatenate([labels, labels, step.queue.labels]))
    assert colour.names == ("<b>a</b>", "b", "c", "d")
    ages = colour.details["age (steps)"]
    assert np.isnan(ages[:120]).all()
    np.testing.assert_array_equal(ages[120:], step.queue.ages(20))


def test_right_and_wrong_are_the_votes_against_the_labels(run, step, picture):
    colour = projection_view.colour_of("vote", run, step, picture, 5)
    wrong = loaders.votes(run, step, 5) != run.eval_set.labels
    np.testing.assert_array_equal(colour.values[:60], wrong)
    assert (colour.values[120:] == -1).all()


def test_cosine_to_own_key(run, step, picture):
    colour = projection_view.colour_of("key", run, step, picture, 5)
    expected = [float(q @ k) for q, k in zip(step.query, step.key, strict=True)]
    np.testing.assert_allclose(colour.values[:60], expected, rtol=1e-5)
    np.testing.assert_allclose(colour.values[60:120], expected, rtol=1e-5)
    assert np.isnan(colour.values[120:]).all()


def test_local_density_is_the_mean_cosine_to_the_nearest(run, step, picture):
    colour = projection_view.colour_of("density", run, step, picture, 5)
    cosines = step.query @ step.query.T
    np.fill_diagonal(cosines, -2)
    np.testing.assert_allclose(colour.values[:60], np.sort(cosines, axis=1)[:, -5:].mean(1), atol=1e-5)


def test_what_a_run_has_nothing_for_is_not_offered(tmp_path):
    run = Run(write_run(tmp_path, labelled=False))
    assert projection_view.colourings(run, run.steps[-1]) == ["key", "density"]


def test_the_table_holds_what_is_drawn(run, step, picture):
    colour = projection_view.colour_of("class", run, step, picture, 5)
    table = projection_view.table_of(picture, 0, run.eval_set, colour)
    assert len(table) == 152
    np.testing.assert_array_equal(table[["x", "y"]].to_numpy(), picture.coordinates[0])
    assert table["kind"].value_counts().to_dict() == {"query": 60, "key": 60, "queue key": 32}
    assert table["sample_id"][:2].tolist() == [1000, 1001]
    assert table["sample_id"][120:].isna().all()
    assert table["queue_slot"][120:].tolist() == list(range(32))
    assert table["queue_slot"][:120].isna().all()
    assert table["class"][0] == "<b>a</b>"
    assert table["class"][120] == colour.names[step.queue.labels[0]]


def test_the_table_holds_the_value_that_colours(run, step, picture):
    colour = projection_view.colour_of("density", run, step, picture, 5)
    table = projection_view.table_of(picture, 0, run.eval_set, colour)
    np.testing.assert_array_equal(table["local density"], colour.values)


def test_the_figure_download_takes_no_name_for_markup(run, step, picture):
    colour = projection_view.colour_of("class", run, step, picture, 5)
    texts = projection_view.hover_texts(projection_view.table_of(picture, 0, run.eval_set, colour))
    figure = projection_figure(picture.coordinates[0], colour, texts, ("a", "b"), "<i>t</i>")
    assert figure.data[0].name == "&lt;b&gt;a&lt;/b&gt;"
    assert "<b>" not in figure.data[0].text[0]
    assert figure.layout.title.text == "&lt;i&gt;t&lt;/i&gt;"
    assert sum(len(trace.x) for trace in figure.data) == 152
    assert figure.layout.xaxis.title.text == "a"


@pytest.mark.parametrize("dim", [2, 3])
def test_the_figure_download_of_numbers(dim):
    colour = Colour.by_value("density", np.arange(5.0), limits=(0.0, 4.0))
    points = np.random.default_rng(0).normal(size=(5, dim))
    figure = projection_figure(points, colour, list("abcde"), tuple("xyz"[:dim]), "t")
    assert figure.data[0].type == ("scatter3d" if dim == 3 else "scattergl")
    np.testing.assert_array_equal(figure.data[0].marker.color, np.arange(5.0))
    assert (figure.data[0].marker.cmin, figure.data[0].marker.cmax) == (0, 4)


def test_axes_say_what_they_are(picture):
    titles = projection_view.axis_titles(picture, ALL)
    assert titles[0] == f"PC 1 ({picture.share[0]:.0%} of the variance)"
    bare = dataclasses.replace(picture, share=np.zeros(0))
    assert projection_view.axis_titles(bare, ProjectionSettings())[0] == "UMAP 1 (no unit)"


def test_rings_are_thinned_and_keep_the_clicked_one():
    rings = projection_view.ringed(np.arange(1000), 7)
    assert len(rings) <= projection_view.MOST_RINGS + 1
    assert rings[-1] == 7
    assert projection_view.ringed(np.array([3]), None) == [3]


def test_links_lead_to_true_neighbours(run, step):
    nearest = loaders.neighbours(run, step, projection_view.LINKED)[0][4]
    assert projection_view.links(run, step, 4, "query") == [(4, int(row)) for row in nearest]
    assert projection_view.links(run, step, None, "query") == []


def test_samples_are_announced(run, step, picture):
    assert projection_view.sampling_lines(picture, run.eval_set, step) == []
    fewer = dataclasses.replace(picture, kinds=picture.kinds[10:-10])
    lines = projection_view.sampling_lines(fewer, run.eval_set, step)
    assert "50 of 60 samples" in lines[0]
    assert "22 of the queue's 32 keys" in lines[1]


def test_faithfulness_in_words(picture):
    assert "is being measured" in projection_view.faithfulness_line(picture, 0)
    known = dataclasses.replace(picture, trustworthiness=np.array([0.91]), continuity=np.array([0.82]), k=15)
    assert "Trustworthiness 0.910" in projection_view.faithfulness_line(known, 0)
    few = dataclasses.replace(picture, k=1)
    assert "fewer than three" in projection_view.faithfulness_line(few, 0)


def test_aligned_pictures_have_names_and_addresses(tmp_path):
    for name in ("m<0>", "m1"):
        write_run(tmp_path, name, sweep="s")
    run = RunStore(tmp_path)["m1"]
    steps = ProjectionSettings(method="pca", aligned="steps")
    picture = compute(run, run.step(10), steps)
    assert projection_view.points_of(run, run.step(10), steps, picture).frame_names == (
        "step 0",
        "step 10",
        "step 20",
    )
    assert projection_view.frame_of(run, run.step(10), steps, picture) == 1
    assert projection_view.address_of(run, run.step(10), steps, 2) == {"run": "m1", "step": "20"}
    sweep = ProjectionSettings(method="pca", aligned="sweep")
    picture = compute(run, run.step(10), sweep)
    assert projection_view.points_of(run, run.step(10), sweep, picture).frame_names == (
        "m<0>, step 10",
        "m1, step 10",
    )
    assert projection_view.frame_of(run, run.step(10), sweep, picture) == 1
    assert projection_view.address_of(run, run.step(10), sweep, 0) == {"run": "m-0", "step": "10"}
