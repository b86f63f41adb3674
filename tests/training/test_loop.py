import numpy as np
import pytest
from PIL import Image

from moco_core.config import TrainConfig
from moco_core.runs import RunStore, RunWriter, schema
from moco_core.training import loop
from moco_core.training.setup import prepare
from moco_core.training.snapshots import TrainingError
from tests.training.small import SMALL, assert_identical, everything, resume, train_small

METHODS = ["moco", "memory-bank", "in-batch"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch_norm", ["plain", "split"])
def test_the_same_seed_gives_the_same_bits(tmp_path, method, batch_norm):
    settings = {"method": method, "batch_norm": batch_norm}
    assert_identical(train_small(tmp_path, **settings), train_small(tmp_path, **settings))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Settings → a run that was trained in one go, the same one whenever the settings are."""
    runs = {}

    def trained(settings):
        key = repr(settings)
        if key not in runs:
            runs[key] = train_small(tmp_path_factory.mktemp("unbroken"), **settings)
        return runs[key]

    return trained


def test_another_seed_gives_other_weights(tmp_path):
    one, other = train_small(tmp_path), train_small(tmp_path, seed=1)
    weights = [run.steps[-1].arrays(schema.WEIGHTS_FILE) for run in (one, other)]
    assert any(not np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    "settings",
    [
        *({"method": method} for method in METHODS),
        {"precision": "bf16"},
        {"symmetric": True},
        {"symmetric": True, "batch_norm": "split", "precision": "bf16", "momentum_schedule": "cosine"},
        {"momentum_schedule": "cosine"},
        {"optimizer": "lars", "lr": 0.6, "batch_norm": "split"},
    ],
)
@pytest.mark.parametrize("stop_after", [1, 7])
def test_stopping_and_resuming_changes_nothing(tmp_path, unbroken, settings, stop_after):
    whole = unbroken(settings)
    stopped = train_small(tmp_path, **settings, stop_after=stop_after)
    assert stopped.status.state == "stopped"
    assert stopped.status.step == stop_after
    assert stopped.steps[-1].step == stop_after
    resumed = resume(stopped)
    assert resumed.status.state == "finished"
    assert_identical(whole, resumed)


def test_a_crash_after_the_resume_state_repeats_the_lost_steps(tmp_path):
    whole = train_small(tmp_path)
    stopped = train_small(tmp_path, stop_after=7)
    writer = RunWriter(stopped.path)
    writer.append_history([{key: 99.0 for key in schema.HISTORY_KEYS} | {"step": 8}])  # logged, then killed
    assert_identical(whole, resume(stopped))


def test_a_run_directory_holds_what_the_pages_read(tmp_path):
    run = train_small(tmp_path)
    assert run.problem is None
    assert run.status.state == "finished"
    assert [c.step for c in run.steps] == [0, 1, 12]
    assert run.history()["step"].tolist() == list(range(1, 13))
    newest = run.steps[-1]
    assert newest.query.shape == newest.key.shape == newest.second_view.shape == (40, 8)
    np.testing.assert_allclose(np.linalg.norm(newest.query, axis=1), 1, atol=1e-5)
    assert len(run.eval_set) == len(newest.features) == 40
    assert newest.queue.filled == newest.queue.size == 40
    assert set(newest.metrics) >= {
        "knn",
        "linear",
        "alignment",
        "uniformity",
        "tolerance",
        "effective_rank",
        "k_star",
        "collapse",
    }
    assert set(newest.drift) >= {
        "age",
        "cosine_key",
        "cosine_query",
        "length",
        "gradient_cosine",
        "k_star",
        "spread",
    }
    assert run.info["seconds"]["run"] > run.info["seconds"]["snapshots"] > run.info["seconds"]["drift"] > 0
    assert run.info["dataset"]["fingerprint"]
    weights = newest.arrays(schema.WEIGHTS_FILE)
    assert {name.partition(".")[0] for name in weights} == {"query", "key"}


def test_queue_fills_and_records_where_its_keys_come_from(tmp_path):
    run = train_small(tmp_path, queue_size=1000)
    assert run.history()["filled"].tolist() == [16 * step for step in range(12)]
    queue = run.steps[-1].queue
    assert queue.filled == 12 * 16
    assert queue.written_steps.tolist() == sorted(list(range(1, 13)) * 16)
    _, counts = np.unique(queue.sample_ids[:16], return_counts=True)
    assert counts.max() == 1


def test_history_shows_the_momentum_of_each_step(tmp_path):
    assert set(train_small(tmp_path, momentum=0.9).history()["momentum"]) == {0.9}
    rising = train_small(tmp_path, momentum=0.9, momentum_schedule="cosine").history()["momentum"]
    np.testing.assert_allclose(rising, 1 - 0.05 * (np.cos(np.pi * np.arange(12) / 12) + 1))
    assert set(train_small(tmp_path, method="memory-bank").history()["momentum"]) == {0.0}


@pytest.mark.parametrize("settings", [{"precision": "bf16"}, {"symmetric": True}])
def test_newest_keys_have_not_drifted(tmp_path, settings):
    newest = train_small(tmp_path, **settings).steps[-1]
    assert (1 - newest.drift["cosine_key"][newest.drift["age"] == 0]).max() < 1e-6
    np.testing.assert_array_equal(newest.queue.written_steps, [10] * 8 + [11] * 16 + [12] * 16)


def test_bf16_learns_nearly_the_same(tmp_path):
    full, half = (train_small(tmp_path, precision=precision) for precision in ("fp32", "bf16"))
    np.testing.assert_allclose(full.history()["loss"], half.history()["loss"], atol=0.1)
    assert not np.array_equal(full.history()["loss"], half.history()["loss"])
    assert {array.dtype for array in half.steps[-1].arrays(schema.QUEUE_FILE).values()} <= {
        np.dtype("float32"),
        np.dtype("int64"),
    }


def query_parameters(checkpoint):
    """The query encoder's parameters at a step, one long vector."""
    arrays = sorted(checkpoint.arrays(schema.WEIGHTS_FILE).items())
    buffers = ("running_mean", "running_var", "num_batches_tracked")
    own = [x.ravel() for name, x in arrays if name.startswith("query.") and not name.endswith(buffers)]
    return np.concatenate(own).astype(np.float64)


def test_a_key_encoder_that_copies_has_no_gap(tmp_path):
    assert train_small(tmp_path, momentum=0.0).history()["encoder_gap"].tolist() == [0.0] * 12


def test_the_gap_to_a_key_encoder_that_never_moves(tmp_path):
    run = train_small(tmp_path, momentum=1.0)
    start, middle, end = run.steps
    frozen = [n for n in start.arrays(schema.WEIGHTS_FILE) if n.startswith("key.") and "running" not in n]
    for name in (n for n in frozen if "tracked" not in n):
        first, last = (c.arrays(schema.WEIGHTS_FILE)[name] for c in (start, end))
        np.testing.assert_array_equal(first, last)
    before, after = query_parameters(start), query_parameters(middle)
    gap = np.linalg.norm(after - before) / np.linalg.norm(after)
    assert run.history()["encoder_gap"][middle.step] == pytest.approx(gap, rel=1e-5)  # as the next step began


def test_the_gradient_norm_is_that_of_the_step_it_made(tmp_path):
    run = train_small(tmp_path, method="in-batch", stop_after=1, weight_decay=0.0)
    before, after = (query_parameters(run.steps[i]) for i in (0, 1))
    history = run.history()
    assert history["grad_norm"][0] == pytest.approx(
        np.linalg.norm(after - before) / history["lr"][0], rel=1e-4
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 2},
        {"dim": 3},
        {"queue_size": 7},
        {"queue_size": 5, "batch_size": 16},
        {"keep_weights": "last"},
        {"drift_share": 0.0},
        {"log_every": 5},
        {"image_size": 8},
        {"warmup_steps": 5, "scale_lr": True},
        {"head": "linear", "augmentation": "moco-v1", "lr_schedule": "step"},
    ],
)
def test_unusual_settings_train(tmp_path, settings):
    run = train_small(tmp_path, **settings)
    assert run.status.state == "finished"
    assert np.isfinite(run.history()["loss"]).all()


def test_keeping_the_last_weights_alone(tmp_path):
    run = train_small(tmp_path, keep_weights="last")
    assert [(c.path / schema.WEIGHTS_FILE).exists() for c in run.steps] == [False, False, True]


def test_more_snapshots_do_not_disturb_training(tmp_path):
    few = everything(train_small(tmp_path, snapshots=2, drift_share=0.0))
    many = everything(train_small(tmp_path, snapshots=8))
    for name in few:
        np.testing.assert_array_equal(few[name], many[name], err_msg=name)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"temperature": 1e-44}, r"the loss is (nan|inf) at step \d+: lower lr or raise temperature"),
        ({"lr": 1000.0, "weight_decay": 10.0}, r"(the loss|embeddings) .* step \d+: lower lr"),
    ],
)
def test_a_network_that_breaks_down_ends_the_run_with_advice(tmp_path, settings, sentence):
    with pytest.raises(TrainingError, match=sentence):
        train_small(tmp_path, **settings)


def test_the_way_to_a_breakdown_is_kept(tmp_path):
    with pytest.raises(TrainingError, match=r"the loss is nan at step \d+: lower lr") as ended:
        train_small(tmp_path, temperature=1e-38, threads=1)
    (run,) = RunStore(tmp_path)
    assert f"step {len(run.history()['step']) + 1}:" in str(ended.value)


def test_progress_reports_every_step(tmp_path):
    config = TrainConfig(**SMALL)
    seen = []
    loop.train(
        RunWriter.create(tmp_path, config),
        prepare(config),
        on_step=lambda step, record: seen.append((step, record)),
    )
    assert [step for step, _ in seen] == list(range(1, 13))
    assert all(record["loss"] >= 0 for _, record in seen)


def test_unlabelled_images_train_without_the_metrics_that_need_labels(tmp_path, monkeypatch):
    from dataclasses import replace

    config = TrainConfig(**SMALL)
    setup = prepare(config)
    nameless = [replace(s, labels=s.labels * 0 - 1, class_names=()) for s in (setup.train, setup.held_out)]
    setup = replace(setup, train=nameless[0], held_out=nameless[1])
    run = RunWriter.create(tmp_path, config)
    assert loop.train(run, setup) == "finished"
    metrics = RunStore(tmp_path)[run.run_id].steps[-1].metrics
    assert "knn" not in metrics
    assert "alignment" in metrics


@pytest.mark.parametrize("method", ["moco", "memory-bank"])
def test_streaming_a_folder_equals_holding_it_in_memory(tmp_path, method):
    rng = np.random.default_rng(0)
    for label in "ab":
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(40):
            pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{number}.png")
    settings = {"dataset": f"folder:{tmp_path / 'images'}", "image_size": 12, "method": method}
    streamed = train_small(tmp_path / "runs", storage="stream", **settings)
    assert_identical(train_small(tmp_path / "runs", storage="memory", **settings), streamed)
    assert streamed.info["dataset"]["shape"] == [3, 12, 12]
