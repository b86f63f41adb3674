"""Pictures are stored by content: found again exactly when they show the same, made anew otherwise."""

import dataclasses
import os

import numpy as np
import pytest

from moco_core.analysis.align import align
from moco_core.analysis.projection import principal_components, project
from moco_core.projections import ProjectionSettings, drawn_rows, find_projection, store, stored_projection
from moco_core.projections.compute import KEY, QUERY, QUEUE, compute, frames
from moco_core.projections.store import content_id
from moco_core.runs import Run, RunError, RunStore
from tests.synthetic import write_run

PCA = ProjectionSettings(method="pca")


@pytest.fixture
def run(tmp_path):
    return Run(write_run(tmp_path))


def files(run):
    return sorted(path.name for path in (run.path / "cache").glob("*"))


def test_a_picture_is_that_of_its_embeddings(run):
    step = run.steps[-1]
    picture = stored_projection(run, step, PCA)
    expected = principal_components(step.query, 2)
    np.testing.assert_allclose(picture.coordinates[0], expected.coordinates, atol=1e-6)
    np.testing.assert_allclose(picture.share, expected.share, atol=1e-6)
    assert picture.samples.tolist() == list(range(60))
    assert picture.steps.tolist() == [20]
    assert 0.5 < picture.trustworthiness[0] <= 1
    assert 0.5 < picture.continuity[0] <= 1
    assert picture.k == 15


def test_umap_is_that_of_the_analysis(run):
    settings = ProjectionSettings(seed=3, neighbors=5)
    stages = []
    picture = stored_projection(
        run, run.steps[-1], settings, lambda stage, share: stages.append((stage, share))
    )
    np.testing.assert_array_equal(
        picture.coordinates[0], project(run.steps[-1].query, "umap", 2, seed=3, neighbors=5)
    )
    assert ("Optimising the layout", 1.0) in stages
    assert all(0 <= share <= 1 for _, share in stages)


def test_the_second_time_nothing_is_computed(run, monkeypatch):
    first = stored_projection(run, run.steps[-1], PCA)
    monkeypatch.setattr("moco_core.projections.store.compute", None)
    monkeypatch.setattr("moco_core.projections.store.measure", None)
    again = RunStore(run.path.parent)[run.id]  # as after a restart
    second = stored_projection(again, again.steps[-1], PCA)
    for field in dataclasses.fields(first):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name))


@pytest.mark.parametrize(
    "change",
    [
        {"method": "umap"},
        {"dim": 3},
        {"neighbors": 16},
        {"min_dist": 0.2},
        {"seed": 1},
        {"layer": "features"},
        {"keys": True},
        {"queue": True},
        {"aligned": "steps"},
    ],
)
def test_every_setting_names_another_picture(run, change):
    step = run.steps[-1]
    assert content_id(run, step, dataclasses.replace(PCA, **change)) != content_id(run, step, PCA)


def test_other_content_at_the_same_place_is_another_picture(tmp_path):
    first = Run(write_run(tmp_path / "a", seed=0))
    second = Run(write_run(tmp_path / "b", seed=1))
    assert first.id == second.id
    assert content_id(first, first.steps[-1], PCA) != content_id(second, second.steps[-1], PCA)


def test_queries_keys_and_queue_are_projected_together(run):
    step = run.steps[-1]
    picture = compute(run, step, dataclasses.replace(PCA, keys=True, queue=True))
    together = np.concatenate([step.query, step.key, step.queue.keys])
    np.testing.assert_allclose(
        picture.coordinates[0], principal_components(together, 2).coordinates, atol=1e-5
    )
    assert picture.kinds.tolist() == [QUERY] * 60 + [KEY] * 60 + [QUEUE] * 32
    assert picture.samples.tolist() == [*range(60), *range(60), *[-1] * 32]
    assert picture.slots.tolist() == [*[-1] * 120, *range(32)]


def test_an_empty_queue_adds_nothing(run):
    picture = compute(run, run.steps[0], dataclasses.replace(PCA, queue=True))
    assert picture.coordinates.shape == (1, 60, 2)


def test_a_method_without_a_queue_says_so(tmp_path):
    run = Run(write_run(tmp_path, queue=False))
    with pytest.raises(RunError, match="has no queue"):
        compute(run, run.steps[-1], dataclasses.replace(PCA, queue=True))


@pytest.mark.parametrize("content", [b"", b"junk", None])
def test_a_damaged_file_is_made_anew(run, content):
    step = run.steps[-1]
    first = stored_projection(run, step, PCA)
    (name,) = files(run)
    path = run.path / "cache" / name
    path.write_bytes(path.read_bytes()[:-8] if content is None else content)
    assert find_projection(run, step, PCA) is None
    second = stored_projection(run, step, PCA)
    np.testing.assert_array_equal(first.coordinates, second.coordinates)
    assert find_projection(run, step, PCA) is not None


def test_a_run_that_cannot_be_written_is_shown_all_the_same(run, tmp_path):
    (run.path / "cache").write_text("a file where the folder would be")
    spare = tmp_path / "spare"
    spare.mkdir()
    step = run.steps[-1]
    with pytest.raises(OSError, match="cache"):
        stored_projection(run, step, PCA)  # nowhere to keep it
    kept = stored_projection(run, step, PCA, spare=spare)
    np.testing.assert_array_equal(find_projection(run, step, PCA, spare).coordinates, kept.coordinates)


def test_what_a_kill_left_goes_a_day_later(run):
    left = run.path / "cache" / ".projection-0.safetensors.0123abcd"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    stored_projection(run, run.steps[-1], PCA)
    assert not left.exists()


def test_nothing_half_written_is_left(run):
    stored_projection(run, run.steps[-1], PCA)
    assert len(files(run)) == 1
    assert files(run)[0].startswith("projection-")


@pytest.mark.parametrize("samples", [2, 3, 4])
def test_few_samples(tmp_path, samples):
    run = Run(write_run(tmp_path, samples=samples, classes=2))
    picture = stored_projection(run, run.steps[-1], PCA)
    assert picture.measured
    assert np.isnan(picture.trustworthiness[0]) == (samples < 3)
    assert find_projection(run, run.steps[-1], PCA).measured


def test_embeddings_that_do_not_match_the_images_are_refused(tmp_path):
    run, other = Run(write_run(tmp_path / "a")), Run(write_run(tmp_path / "b", samples=30))
    (run.path / "eval_set.safetensors").write_bytes((other.path / "eval_set.safetensors").read_bytes())
    info = (
        (run.path / "run.json")
        .read_text()
        .replace(run.info["eval_set_sha256"], other.info["eval_set_sha256"])
    )
    (run.path / "run.json").write_text(info)
    mixed = Run(run.path)
    with pytest.raises(RunError, match="60 embeddings for 30 images"):
        compute(mixed, mixed.steps[-1], PCA)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "tsne"}, "method must be one of umap, pca; got 'tsne'"),
        ({"dim": 4}, "dim must be 2 or 3, got 4"),
        ({"neighbors": 1}, r"neighbors must lie in \[2, 1000\], got 1"),
        ({"min_dist": -0.1}, r"min_dist must lie in \[0, 1\]"),
        ({"min_dist": float("nan")}, r"min_dist must lie in \[0, 1\]"),
        ({"seed": -1}, "seed must lie in"),
        ({"layer": "pixels"}, "layer must be one of query, features"),
        ({"layer": "features", "keys": True}, "not in features"),
        ({"aligned": "steps", "queue": True}, "aligned pictures show"),
        ({"aligned": "yes"}, "aligned must be one of no, steps, sweep; got 'yes'"),
    ],
)
def test_settings_out_of_range_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        ProjectionSettings(**settings)


def test_beyond_the_most_a_fixed_sample_is_drawn():
    rows = drawn_rows(1000, 100)
    assert len(rows) == 100
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, drawn_rows(1000, 100))
    assert drawn_rows(100, 100).tolist() == list(range(100))


def test_aligned_steps_are_those_of_the_analysis(run):
    settings = dataclasses.replace(PCA, aligned="steps")
    picture = stored_projection(run, run.steps[0], settings)
    expected = align([step.query for step in run.steps], "pca")
    np.testing.assert_allclose(picture.coordinates, expected, atol=1e-5)
    assert picture.steps.tolist() == [0, 10, 20]
    assert len(set(picture.trustworthiness)) == 3
    assert content_id(run, run.steps[0], settings) == content_id(run, run.steps[2], settings)


def test_a_sweep_is_aligned_over_its_runs_at_one_step(tmp_path):
    for number, steps in enumerate([(0, 10, 20), (0, 10, 20), (0, 15)]):
        write_run(tmp_path, f"m{number}", sweep="s", steps=steps, seed=0)
    write_run(tmp_path, "other images", sweep="s", samples=30)
    write_run(tmp_path, "other sweep", sweep="t")
    store = RunStore(tmp_path)
    run = store["m1"]
    settings = dataclasses.replace(PCA, aligned="sweep")
    shown = [(frame.run.id, frame.checkpoint.step) for frame in frames(run, run.step(10), settings)]
    assert shown == [("m0", 10), ("m1", 10), ("m2", 15)]
    picture = stored_projection(run, run.step(10), settings)
    expected = align([store["m0"].step(10).query, run.step(10).query, store["m2"].step(15).query], "pca")
    np.testing.assert_allclose(picture.coordinates, expected, atol=1e-5)
    assert picture.steps.tolist() == [10, 10, 15]


def test_a_run_without_a_sweep_is_alone(run):
    settings = dataclasses.replace(PCA, aligned="sweep")
    assert len(frames(run, run.steps[-1], settings)) == 1


def test_a_sweep_that_goes_on_meanwhile_is_another_picture(tmp_path, monkeypatch):
    for name, steps in (("m0", (0, 10)), ("m1", (0, 10, 20))):
        write_run(tmp_path, name, sweep="s", steps=steps, seed=0)
    run = RunStore(tmp_path)["m1"]
    settings = dataclasses.replace(PCA, aligned="sweep")
    compute_first = store.compute

    def and_go_on(*arguments):
        picture = compute_first(*arguments)
        trained = write_run(tmp_path / "elsewhere", sweep="s", steps=(0, 10, 20), seed=1) / "step-00000020"
        trained.rename(tmp_path / "m0" / trained.name)
        write_run(tmp_path, "m2", sweep="s", seed=0)
        return picture

    monkeypatch.setattr(store, "compute", and_go_on)
    meanwhile = stored_projection(run, run.step(20), settings)
    assert meanwhile.steps.tolist() == [10, 20]
    assert meanwhile.measured
    assert find_projection(run, run.step(20), settings) is None
    monkeypatch.setattr(store, "compute", compute_first)
    later = stored_projection(run, run.step(20), settings)
    shown = (RunStore(tmp_path)[name].step(20).query for name in ("m0", "m1", "m2"))
    np.testing.assert_allclose(later.coordinates, align(list(shown), "pca"), atol=1e-5)
