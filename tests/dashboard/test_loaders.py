"""Loaders hand out what the run holds, read-only, and never what it held before."""

import numpy as np
import pytest

from moco_core.analysis.neighbors import nearest
from moco_core.dashboard import loaders
from moco_core.runs import Run, RunError, RunWriter, history, schema
from tests.synthetic import unit, write_run


@pytest.fixture
def run(tmp_path):
    return Run(write_run(tmp_path))


def rewrite(run, step, **arrays):
    """The same step with other embeddings."""
    RunWriter(run.path).write_step(step, {schema.EMBEDDINGS_FILE: arrays}, {})
    return Run(run.path)


def test_arrays_are_those_of_the_run_and_read_only(run):
    step = run.steps[-1]
    found = loaders.embeddings(run, step)
    for name in ("query", "key", "second_view", "features"):
        array = getattr(found, name)
        np.testing.assert_array_equal(array, getattr(step, name))
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    np.testing.assert_array_equal(loaders.queue(step).keys, step.queue.keys)
    np.testing.assert_array_equal(loaders.eval_set(run).labels, run.eval_set.labels)
    np.testing.assert_array_equal(loaders.drift(step)["age"], step.drift["age"])


def test_they_are_read_once(run, monkeypatch):
    first = loaders.embeddings(run, run.steps[-1])
    again = Run(run.path)
    assert loaders.embeddings(again, again.steps[-1]).query is first.query


def test_a_step_written_anew_is_read_anew(run):
    before = loaders.embeddings(run, run.steps[-1]).query
    near = loaders.neighbours(run, run.steps[-1], 3)[0]
    other = unit(np.random.default_rng(9).normal(size=before.shape))
    changed = rewrite(run, 20, query=other)
    np.testing.assert_array_equal(loaders.embeddings(changed, changed.steps[-1]).query, other)
    assert not np.array_equal(loaders.neighbours(changed, changed.steps[-1], 3)[0], near)


def test_what_an_imported_run_lacks_is_none(run):
    changed = rewrite(run, 20, query=unit(np.eye(60, 4) + 0.1))
    found = loaders.embeddings(changed, changed.steps[-1])
    assert found.key is found.features is found.second_view is None
    with pytest.raises(RunError, match="no backbone features"):
        found.layer("features")
    with pytest.raises(ValueError, match="layer must be one of query, key, features; got 'pixels'"):
        found.layer("pixels")


def test_embeddings_of_other_images_are_refused(run):
    changed = rewrite(run, 20, query=unit(np.eye(7, 4) + 0.1))
    with pytest.raises(RunError, match="7 embeddings for 60 images"):
        loaders.embeddings(changed, changed.steps[-1])


def test_a_damaged_step_raises_each_time(run):
    path = run.steps[-1].path / schema.EMBEDDINGS_FILE
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    for _ in range(2):
        with pytest.raises(RunError, match="damaged"):
            loaders.embeddings(run, run.steps[-1])


def test_neighbours_are_exact(run):
    step = run.steps[-1]
    indices, cosines = nearest(step.query, 4)
    for found, expected in zip(loaders.neighbours(run, step, 4), (indices, cosines), strict=True):
        np.testing.assert_array_equal(found, expected)
    rows = np.array([59, 0, 7])
    found, near = loaders.neighbours_of(run, step, rows, 4)
    np.testing.assert_array_equal(found, indices[rows])
    np.testing.assert_allclose(near, cosines[rows], atol=1e-6)


def test_more_neighbours_than_samples_are_all_of_them(tmp_path):
    run = Run(write_run(tmp_path, samples=3))
    assert loaders.neighbours(run, run.steps[-1], 20)[0].shape == (3, 2)
    assert loaders.neighbours_of(run, run.steps[-1], np.array([1]), 20)[0].tolist()[0] in ([0, 2], [2, 0])


def test_equal_samples_are_each_others_neighbours_but_never_their_own(run):
    same = unit(np.ones((60, 4)))
    changed = rewrite(run, 20, query=same)
    rows = np.arange(60)
    found, cosines = loaders.neighbours_of(changed, changed.steps[-1], rows, 5)
    assert found.shape == (60, 5)
    assert not (found == rows[:, None]).any()
    np.testing.assert_allclose(cosines, 1, atol=1e-6)


def test_votes_need_labels(tmp_path):
    run = Run(write_run(tmp_path, labelled=False))
    with pytest.raises(ValueError, match="at least one known class"):
        loaders.votes(run, run.steps[-1])


def test_votes_of_separated_classes_are_right(run):
    labels = run.eval_set.labels
    changed = rewrite(run, 20, query=unit(np.eye(4)[labels] + 0.01))
    np.testing.assert_array_equal(loaders.votes(changed, changed.steps[-1], 5), labels)


def test_a_method_without_a_queue_has_none(tmp_path):
    run = Run(write_run(tmp_path, queue=False))
    assert loaders.queue(run.steps[-1]) is None


def test_history_is_read_again_when_it_grows(run):
    assert loaders.history(run)["step"][-1] == 20
    line = {key: 21.0 for key in schema.HISTORY_KEYS}
    RunWriter(run.path).append_history([line])
    assert loaders.history(run)["step"][-1] == 21


def test_the_histories_of_many_runs_are_read_once(tmp_path, monkeypatch):
    runs = [Run(write_run(tmp_path, f"run {number}", steps=(0, 3))) for number in range(100)]
    lines = []
    row = history._row
    monkeypatch.setattr(history, "_row", lambda line: (lines.append(line), row(line))[1])
    for _ in range(3):
        for run in runs:
            assert loaders.history(run)["step"].tolist() == [1, 2, 3]
    assert len(lines) == 300
