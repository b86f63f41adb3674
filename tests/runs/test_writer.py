import json
import multiprocessing
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.config import TrainConfig
from moco_core.runs import Run, RunError, RunStore, RunWriter, schema
from moco_core.runs.verify import damage
from moco_core.runs.writer import slug
from tests.synthetic import write_run


def claim(root, queue):
    queue.put(RunWriter.create(root, TrainConfig(name="same")).run_id)


def a_step(value: float = 1.0) -> dict:
    return {schema.EMBEDDINGS_FILE: {"query": np.full((3, 2), value, np.float32)}}


def test_a_new_run_is_queued_and_readable(tmp_path):
    writer = RunWriter.create(tmp_path, TrainConfig(momentum=0.5), sweep="tag")
    run = RunStore(tmp_path)[writer.run_id]
    assert run.problem is None
    assert run.id == "digits-m0.5-k1024"
    assert (run.status.state, run.status.total_steps, run.sweep) == ("queued", 400, "tag")
    assert run.config == TrainConfig(momentum=0.5)
    assert run.steps == []
    assert all(len(column) == 0 for column in run.history().values())


def test_equal_names_get_ids_of_their_own(tmp_path):
    ids = [RunWriter.create(tmp_path, TrainConfig(name="a name")).run_id for _ in range(3)]
    assert ids == ["a-name", "a-name-2", "a-name-3"]


def test_processes_that_claim_at_once_get_different_ids(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=claim, args=(tmp_path, queue)) for _ in range(6)]
    for worker in workers:
        worker.start()
    ids = {queue.get(timeout=30) for _ in workers}
    for worker in workers:
        worker.join()
    assert len(ids) == 6


@given(st.text(max_size=80))
def test_slugs_are_safe_folder_names(title):
    name = slug(title)
    assert name
    assert len(name) <= 60
    assert not name.startswith((".", "-"))
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")


def test_a_step_without_manifest_does_not_exist(tmp_path, monkeypatch):
    writer = RunWriter.create(tmp_path, TrainConfig())
    writer.write_step(0, a_step(), {})

    def dies(*_):
        raise OSError("power cut")

    monkeypatch.setattr(os, "rename", dies)
    with pytest.raises(OSError, match="power cut"):
        writer.write_step(5, a_step(), {})
    run = RunStore(tmp_path)[writer.run_id]
    assert [step.step for step in run.steps] == [0]
    assert run.damaged_steps == {}
    assert sorted(p.name for p in writer.path.glob("*step*")) == ["step-00000000"]


def test_rewriting_a_step_replaces_it(tmp_path):
    writer = RunWriter.create(tmp_path, TrainConfig())
    for value in (1.0, 2.0):
        writer.write_step(3, a_step(value), {})
    (step,) = RunStore(tmp_path)[writer.run_id].steps
    assert step.query[0, 0] == 2


def test_metrics_must_be_finite(tmp_path):
    writer = RunWriter.create(tmp_path, TrainConfig())
    with pytest.raises(ValueError, match="not JSON compliant"):
        writer.write_step(0, {}, {"knn": {"value": float("nan")}})
    assert RunStore(tmp_path)[writer.run_id].steps == []


def test_history_is_cut_back_to_the_resumed_step(tmp_path):
    path = write_run(tmp_path, steps=(0, 10))
    with (path / schema.HISTORY_FILE).open("a") as file:
        file.write('{"step": 11, "loss"')  # a kill in the middle of a line
    RunWriter(path).truncate_history(7)
    assert RunStore(tmp_path)[path.name].history()["step"].tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_dropping_old_weights_keeps_every_step_valid(tmp_path):
    writer = RunWriter.create(tmp_path, TrainConfig())
    for step in (0, 5, 9):
        writer.write_step(step, a_step() | {schema.WEIGHTS_FILE: {"query.w": np.ones(4, np.float32)}}, {})
    before = {c.step: c.checksum for c in RunStore(tmp_path)[writer.run_id].steps}
    writer.drop_weights(before=9)
    run = RunStore(tmp_path)[writer.run_id]
    assert {c.step: c.checksum for c in run.steps} == before
    assert [(c.path / schema.WEIGHTS_FILE).exists() for c in run.steps] == [False, False, True]
    assert run.damaged_steps == {}


@pytest.mark.parametrize(
    "damage", [b"", b'{"step": 0', b'{"step": 0, "files": 7}', b'{"step": 0, "files": {"a": 1}}']
)
def test_dropping_old_weights_leaves_damaged_steps_alone(tmp_path, damage):
    writer = RunWriter.create(tmp_path, TrainConfig())
    for step in (0, 5, 9):
        writer.write_step(step, a_step() | {schema.WEIGHTS_FILE: {"query.w": np.ones(4, np.float32)}}, {})
    manifest = writer.path / "step-00000000" / schema.MANIFEST_FILE
    manifest.write_bytes(damage)
    writer.drop_weights(before=9)
    weights = [(folder / schema.WEIGHTS_FILE).exists() for folder in sorted(writer.path.glob("step-*"))]
    assert weights == [True, False, True]
    assert manifest.read_bytes() == damage
    assert list(RunStore(tmp_path)[writer.run_id].damaged_steps) == ["step-00000000"]


def test_a_cleanup_that_fails_ends_nothing_and_is_tried_again(tmp_path, monkeypatch):
    writer = RunWriter.create(tmp_path, TrainConfig())
    for step in (0, 5):
        writer.write_step(step, a_step() | {schema.WEIGHTS_FILE: {"query.w": np.ones(4, np.float32)}}, {})
        writer.write_resume(step, {"x": np.zeros(2)})

    def busy(*_, **__):
        raise OSError(16, "Device or resource busy")

    with monkeypatch.context() as storage:
        storage.setattr(os, "unlink", busy)  # what rmtree and Path.unlink call
        storage.setattr(os, "rmdir", busy)
        writer.drop_weights(before=5)
        writer.write_resume(9, {"x": np.zeros(2)})
    assert len(list((writer.path / "resume").iterdir())) == 2
    assert RunStore(tmp_path)[writer.run_id].resume_state().step == 9
    writer.drop_weights(before=5)
    writer.write_resume(10, {"x": np.zeros(2)})
    assert [path.name for path in (writer.path / "resume").iterdir()] == ["step-00000010"]
    assert [(c.path / schema.WEIGHTS_FILE).exists() for c in Run(writer.path).steps] == [False, True]


def test_only_the_newest_resume_state_is_kept(tmp_path):
    writer = RunWriter.create(tmp_path, TrainConfig())
    for step in (3, 8):
        writer.write_resume(step, {"x": np.full(2, step)})
    state = RunStore(tmp_path)[writer.run_id].resume_state()
    assert state.step == 8
    assert state.arrays("state.safetensors")["x"].tolist() == [8, 8]
    assert len(list((writer.path / "resume").iterdir())) == 1


def test_one_process_trains_a_run_at_a_time(tmp_path):
    path = write_run(tmp_path)
    with RunWriter(path).training():
        assert json.loads((path / schema.STATUS_FILE).read_text())["pid"] == os.getpid()
        with pytest.raises(RunError, match="being trained by another process"), RunWriter(path).training():
            pass


def test_seconds_add_up_over_resumes(tmp_path):
    writer = RunWriter(write_run(tmp_path))
    writer.add_seconds(run=2.5, drift=0.25)
    writer.add_seconds(run=1.5, drift=0.25)
    assert writer.seconds == {"run": 4.0, "drift": 0.5}


@pytest.mark.parametrize("seconds", [[1], {"run": "a"}, None])
def test_seconds_that_are_none_count_nothing(tmp_path, seconds):
    writer = RunWriter(write_run(tmp_path))
    info = json.loads((writer.path / schema.RUN_FILE).read_text()) | {"seconds": seconds}
    (writer.path / schema.RUN_FILE).write_text(json.dumps(info))
    writer = RunWriter(writer.path)
    writer.add_seconds(run=2.5)
    assert RunWriter(writer.path).seconds == {"run": 2.5}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]"])
def test_facts_damaged_while_a_run_trains_are_written_anew(tmp_path, damage):
    writer = RunWriter(write_run(tmp_path))
    before = RunStore(tmp_path)[writer.run_id].info
    (writer.path / schema.RUN_FILE).write_bytes(damage)
    writer.describe(device="cpu")
    assert RunStore(tmp_path)[writer.run_id].info == {**before, "device": "cpu"}


def test_opening_what_is_not_there(tmp_path):
    with pytest.raises(RunError, match="there is no run 'nothing'"):
        RunWriter(tmp_path / "nothing")


def test_a_rename_by_another_process_survives_later_facts(tmp_path):
    trainer = RunWriter(write_run(tmp_path))
    RunWriter(trainer.path).describe(name="renamed")
    trainer.describe(device="cpu")
    run = RunStore(tmp_path)[trainer.run_id]
    assert (run.name, run.info["device"]) == ("renamed", "cpu")


def test_what_a_kill_left_of_a_file_goes_a_day_later(tmp_path):
    """Until then another process may be about to put it in place."""
    writer = RunWriter(write_run(tmp_path))
    old, fresh, other = (
        writer.path / name for name in (".run.json.0123abcd", ".status.json.89abcdef", ".lock")
    )
    for file in (old, fresh, other):
        file.write_text("half")
    for file in (old, other):
        os.utime(file, (0, 0))
    writer.clear_unfinished()
    assert [file.exists() for file in (old, fresh, other)] == [False, True, True]


def test_a_run_killed_while_its_images_were_written_is_not_damaged(tmp_path):
    writer = RunWriter.create(tmp_path, TrainConfig())
    (writer.path / schema.EVAL_FILE).write_bytes(b"written, and not yet told in run.json")
    assert list(damage(RunStore(tmp_path)[writer.run_id])) == []
