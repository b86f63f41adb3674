import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from moco_core.analysis import geometry
from moco_core.config import METHODS, ConfigError, TrainConfig
from moco_core.interop import imported
from moco_core.interop.imported import Vectors, VectorsError, write_imported
from moco_core.jobs import JobError, local
from moco_core.runs import RunStore
from moco_core.runs.verify import damage
from tests.synthetic import unit

SOURCE = {"kind": "import", "file": "words.npy", "format": "npy"}


def vectors(count=40, dim=6, **more):
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 4
    values = rng.normal(size=(4, dim))[labels] * 2 + rng.normal(size=(count, dim))
    return Vectors(**{"values": values, "labels": labels, "class_names": ("a", "b", "c", "d")} | more)


def written(root, found, name="mine"):
    path = write_imported(root, found, name=name, source=SOURCE)
    return RunStore(root)[path.name]


def test_an_imported_run_reads_like_any_other(tmp_path):
    found = vectors(names=tuple(f"word {i}\nof mine" for i in range(40)), sample_ids=np.arange(40) * 3)
    run = written(tmp_path, found)
    assert run.problem is None
    assert (run.id, run.name, run.status.state) == ("mine", "mine", "finished")
    assert run.info["id"] == "mine"
    assert run.info["source"] == SOURCE
    assert run.config.imported
    assert run.config.dim == 6
    (step,) = run.steps
    assert step.step == 0
    assert set(step.arrays("embeddings.safetensors")) == {"query", "features"}
    np.testing.assert_allclose(step.query, unit(found.values), atol=1e-6)
    np.testing.assert_array_equal(step.features, found.values)
    assert not step.has_queue
    assert step.drift == {}
    assert len(run.history()["loss"]) == 0
    images = run.eval_set
    assert images.names is not None
    assert images.names[7] == "word 7 of mine"
    assert not images.pictured
    assert images.sample_ids.tolist() == list(range(0, 120, 3))
    assert images.labels.tolist() == found.labels.tolist()
    assert images.class_names == ("a", "b", "c", "d")
    assert list(damage(run)) == []


def test_metrics_are_those_of_the_vectors(tmp_path):
    found = vectors(second_view=vectors().values + 0.1)
    metrics = written(tmp_path, found).steps[0].metrics
    z = unit(found.values)
    assert metrics["uniformity"]["value"] == pytest.approx(geometry.uniformity(z), abs=1e-6)
    assert metrics["alignment"]["value"] == pytest.approx(
        geometry.alignment(z, unit(found.second_view)), rel=1e-5
    )
    assert metrics["tolerance"]["value"] == pytest.approx(geometry.tolerance(z, found.labels), abs=1e-6)
    assert metrics["effective_rank"]["value"] == pytest.approx(geometry.effective_rank(z), rel=1e-6)
    raw = geometry.effective_rank(found.values)
    assert metrics["effective_rank_features"]["value"] == pytest.approx(raw, rel=1e-6)
    s = z @ z.T
    np.fill_diagonal(s, -np.inf)
    votes = np.zeros((40, 4))
    for row in range(40):
        for other in np.argsort(-s[row])[:20]:
            votes[row, found.labels[other]] += np.exp(s[row, other] / 0.1)
    right = float((votes.argmax(1) == found.labels).mean())
    assert metrics["knn"] == {
        "value": right,
        "k": 20,
        "temperature": 0.1,
        "layer": "projector",
        "bank": 39,
        "count": 40,
        "leave_one_out": True,
    }
    assert metrics["collapse"]["verdict"] == "none"


def test_metrics_of_many_rows_say_how_many_they_are_of(tmp_path, monkeypatch):
    monkeypatch.setattr(imported, "MEASURED", 10)
    metrics = written(tmp_path, vectors()).steps[0].metrics
    assert metrics["uniformity"]["count"] == metrics["knn"]["count"] == 10
    assert metrics["effective_rank"]["count"] == metrics["tolerance"]["count"] == 40


def test_what_needs_labels_is_left_out_without_them(tmp_path):
    metrics = written(tmp_path, vectors(labels=None, class_names=())).steps[0].metrics
    assert set(metrics) == {"uniformity", "effective_rank", "effective_rank_features", "collapse"}


def test_images_features_and_a_second_view_are_kept(tmp_path):
    rng = np.random.default_rng(1)
    more = {
        "thumbnails": rng.integers(0, 255, (40, 5, 7, 3)).astype(np.uint8),
        "second_view": rng.normal(size=(40, 6)),
        "features": np.zeros((40, 9)),
    }
    run = written(tmp_path, vectors(**more))
    np.testing.assert_array_equal(run.eval_set.thumbnails, more["thumbnails"])
    assert run.eval_set.pictured
    assert run.eval_set.names is None
    np.testing.assert_allclose(run.steps[0].second_view, unit(more["second_view"]), atol=1e-6)
    assert run.steps[0].features.shape == (40, 9)


def test_runs_of_one_name_stand_side_by_side(tmp_path):
    first, second = (written(tmp_path, vectors()) for _ in range(2))
    assert (first.id, second.id, second.info["id"]) == ("mine", "mine-2", "mine-2")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "mine-2"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"values": np.ones(8)}, r"numbers in rows, N×D; got float64 of shape \(8,\)"),
        ({"values": np.array([["a", "b"]] * 3)}, "the vectors must be numbers"),
        ({"values": np.ones((1, 4))}, "at least 2 rows and 2 dimensions; got 1×4"),
        ({"values": np.ones((9, 1))}, "at least 2 rows and 2 dimensions; got 9×1"),
        ({"values": np.full((40, 2), 1e39)}, "40 of the 40 rows of the vectors are not finite, .* row 0"),
        ({"labels": np.zeros(39, int)}, r"labels must be 40 whole numbers, one a vector; got int64 \(39,\)"),
        ({"labels": np.zeros(40)}, "labels must be 40 whole numbers"),
        ({"sample_ids": np.arange(40) // 2 + 5}, "sample ids must differ; 20 .*, the first is 5"),
        ({"names": ("a",)}, "a name for each of 40 vectors; got 1"),
        ({"thumbnails": np.zeros((40, 2, 2))}, "images must be bytes N×H×W×C"),
        ({"second_view": np.ones((40, 5))}, "must have the shape of the vectors, 40×6; got 40×5"),
        ({"features": np.ones((4, 5))}, "features for each of 40 vectors; got 4"),
    ],
)
def test_vectors_that_cannot_be_used_are_refused_in_a_sentence(changed, sentence):
    with pytest.raises(VectorsError, match=sentence):
        vectors(**changed)


def test_bad_rows_are_counted_and_the_first_is_named():
    values = vectors().values.copy()
    values[[3, 5]] = 0
    with pytest.raises(VectorsError, match=r"2 of the 40 rows of the vectors are zero, the first is row 3"):
        vectors(values=values)
    values[7, 2] = np.nan
    with pytest.raises(VectorsError, match=r"1 of the 40 rows of the vectors are not finite, .* row 7"):
        vectors(values=values)


def test_too_many_dimensions_leave_nothing_behind(tmp_path):
    with pytest.raises(VectorsError, match="dim must be at least 2 and at most 65536, got 70000"):
        write_imported(tmp_path / "runs", Vectors(np.eye(2, 70000)), name="wide", source=SOURCE)
    assert not (tmp_path / "runs").exists()


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("moco_core.runs.writer.write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        written(tmp_path, vectors())
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from moco_core.runs import RunWriter
from tests.interop.test_imported import vectors, written
RunWriter.move_to = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
written(Path(sys.argv[1]), vectors())
"""


def test_a_kill_leaves_no_run_to_be_seen(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 1
    assert list(RunStore(tmp_path)) == []
    assert written(tmp_path, vectors()).id == "mine"
    assert len(os.listdir(tmp_path)) == 2  # what another import may still be writing stays
    (hidden,) = tmp_path.glob(".importing-*")
    os.utime(hidden, (0, 0))
    written(tmp_path, vectors())
    assert sorted(os.listdir(tmp_path)) == ["mine", "mine-2"]


def test_imported_is_a_setting_of_no_training(tmp_path):
    config = TrainConfig(dataset="imported", method="imported", encoder="imported")
    assert TrainConfig.from_dict(config.to_dict()) == config
    assert "imported" not in METHODS
    with pytest.raises(ConfigError, match="all three or none"):
        replace(TrainConfig(), method="imported")
    with pytest.raises(ConfigError, match="can't be trained; method must be one of moco, memory-bank"):
        local.submit(config, tmp_path)
    assert list(tmp_path.iterdir()) == []
    run = written(tmp_path, vectors())
    with pytest.raises(JobError, match="finished"):
        local.resume(tmp_path, run.id)
