import json
import os
import re
import shutil
import sys

import numpy as np
import pytest

from moco_core.jobs.removal import delete
from moco_core.runs import Run, RunError, RunStore, RunWriter, schema
from moco_core.runs.files import replace_json, sha256
from moco_core.runs.verify import damage
from moco_core.tables import runs_table
from tests.synthetic import write_run


@pytest.fixture
def path(tmp_path):
    return write_run(tmp_path, samples=30, dim=5, queue_size=20, steps=(0, 2, 10))


def reopen(path):
    return RunStore(path.parent)[path.name]


def test_reads_what_was_written(path):
    run = reopen(path)
    assert [c.step for c in run.steps] == [0, 2, 10]
    newest = run.step(10)
    assert newest.query.shape == newest.key.shape == newest.second_view.shape == (30, 5)
    np.testing.assert_allclose(np.linalg.norm(newest.query, axis=1), 1, atol=1e-6)
    assert newest.queue.filled == newest.queue.size == 20
    assert newest.queue.ages(10).tolist() == sorted(newest.queue.ages(10).tolist(), reverse=True)
    assert run.step(2).queue.filled == 16
    assert run.step(0).queue.filled == 0
    assert run.step(0).drift == {}
    assert newest.drift["age"].tolist() == sorted(newest.drift["age"].tolist())
    assert len(run.eval_set) == 30
    assert run.eval_set.name_of(1) == "class 1"
    assert run.eval_set.name_of(-1) == "unlabelled"
    assert {len(column) for column in run.history().values()} == {10}
    assert list(damage(run)) == []


def test_an_absent_or_empty_root_has_no_runs(tmp_path):
    assert list(RunStore(tmp_path / "absent")) == []
    assert list(RunStore(tmp_path)) == []


def test_newest_run_first(tmp_path):
    for name in ("b", "a", "c"):
        RunWriter(write_run(tmp_path, name)).describe(created=f"2026-01-0{ord(name) % 9 + 1}T00:00:00+00:00")
    created = [run.created for run in RunStore(tmp_path)]
    assert created == sorted(created, reverse=True)


def test_ids_that_are_no_folder_of_the_root_are_refused(path):
    store = RunStore(path.parent)
    for bad in ("..", "../x", "", "/etc", path.name + "/"):
        assert bad not in store
        with pytest.raises(KeyError, match="there is no run"):
            store[bad]


@pytest.mark.parametrize("name", ["embeddings", "queue", "drift", "weights"])
def test_verify_finds_a_flipped_byte(tmp_path, name):
    path = write_run(tmp_path)
    step = path / "step-00000020"
    if name == "weights":
        writer = RunWriter(path)
        writer.write_step(20, {schema.WEIGHTS_FILE: {"query.w": np.ones(9, np.float32)}}, {})
    file = step / f"{name}.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    found = list(damage(reopen(path)))
    assert found == [f"{path.name}/step-00000020/{name}.safetensors: checksum differs from the manifest"]


def test_a_flipped_byte_is_told_on_reading_too(path):
    file = path / "step-00000010" / schema.EMBEDDINGS_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 255
    file.write_bytes(content)
    run = reopen(path)
    assert run.step(10).queue.filled == 20
    with pytest.raises(RunError, match=r"embeddings.safetensors of step 10 .* damaged"):
        _ = run.step(10).query


def test_a_flipped_byte_of_the_eval_set_is_found(path):
    file = path / schema.EVAL_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match="checksum differs"):
        _ = reopen(path).eval_set
    assert len(list(damage(reopen(path)))) == 1


def test_a_truncated_file_hides_its_step_alone(path):
    file = path / "step-00000002" / schema.QUEUE_FILE
    file.write_bytes(file.read_bytes()[:-10])
    run = reopen(path)
    assert [c.step for c in run.steps] == [0, 10]
    assert "bytes where" in run.damaged_steps["step-00000002"]
    with pytest.raises(RunError, match=r"no readable step 2; there are: 0, 10"):
        run.step(2)


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("run.json", b"{", "run.json is not valid JSON"),
        ("run.json", b"[1]", "must hold a JSON object"),
        ("run.json", b"\xff\xfe\x00", "not valid JSON"),
        ("run.json", b"[" * 100_000, "not valid JSON"),
        ("run.json", b'{"schema": 99, "config": {}}', "schema 99"),
        ("run.json", b'{"schema": 1}', "no config"),
        ("run.json", b'{"schema": 1, "config": {"momentum": 7}}', "momentum must be"),
        ("run.json", b'{"schema": 1, "config": {"colour": 7}}', "unknown setting"),
        ("status.json", b'{"state": "dancing"}', "state 'dancing'"),
        ("status.json", b'{"state": "running", "step": "x"}', "whole numbers"),
        ("status.json", b"{}", "state"),
        ("status.json", b'{"state": "running", "pid": -5}', "pid as a whole number from 1, got -5"),
        ("status.json", b'{"state": "running", "pid": 99999999999}', "pid as a whole number from 1"),
        ("status.json", b'{"state": "running", "pid": true}', "pid as a whole number from 1"),
        (
            "status.json",
            b'{"state": "running", "pid": 5, "pid_started": NaN}',
            "not valid JSON: NaN is no finite number",
        ),
        ("status.json", b'{"state": "running", "pid": 5, "pid_started": "x"}', "pid_started in seconds"),
        ("run.json", b'{"schema": 1, "config": {"lr": -Infinity}}', "not valid JSON: -Infinity is no"),
        ("run.json", b'{"schema": 1, "config": {"lr": 1e999}}', "not valid JSON: 1e999 is no"),
        (
            "run.json",
            b'{"schema": 1, "name": "\\ud800", "config": {}}',
            "not valid JSON: .*surrogates not allowed",
        ),
        ("status.json", b'{"state": "running", "step": 1' + b"0" * 400 + b"}", "more than 64 bits"),
        ("run.json", b'{"schema": 1, "config": {"seed": 99999999999999999999}}', "more than 64 bits"),
        ("status.json", None, r"(^|synthetic: )status\.json can't be read: No such file"),
    ],
)
def test_a_damaged_run_is_listed_with_its_reason(tmp_path, path, file, content, reason):
    other = write_run(tmp_path, "other")
    (path / file).unlink()
    if content is not None:
        (path / file).write_bytes(content)
    runs = {run.id: run for run in RunStore(tmp_path)}
    assert runs[other.name].problem is None
    assert re.search(reason, runs[path.name].problem)
    assert any(re.search(reason, sentence) for sentence in damage(runs[path.name]))


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"null",
        b'{"step": 10}',
        b'{"step": 11, "files": {}}',
        b'{"step": 10, "files": {"../../x": {"bytes": 1, "sha256": "a"}}}',
        b'{"step": 10, "files": {"..": {"bytes": 1, "sha256": "a"}}}',
        b'{"step": 10, "files": {"a\\u0000b": {"bytes": 1, "sha256": "a"}}}',
        b'{"step": 10, "files": {"' + b"a" * 3000 + b'": {"bytes": 1, "sha256": "a"}}}',
        b'{"step": 10, "files": {"queue.safetensors": 3}}',
    ],
)
def test_damaged_manifests(path, manifest):
    (path / "step-00000010" / schema.MANIFEST_FILE).write_bytes(manifest)
    run = reopen(path)
    assert [c.step for c in run.steps] == [0, 2]
    assert "step-00000010" in run.damaged_steps


def test_foreign_folders_and_files_do_not_disturb(path):
    root = path.parent
    (root / "notes.txt").write_text("hello")
    (root / "empty").mkdir()
    (root / ".hidden").mkdir()
    shutil.copy(path / "run.json", root / ".hidden" / "run.json")
    (path / "step-x").mkdir()
    (path / "step-00000005.tmp").mkdir()
    assert [run.id for run in RunStore(root)] == [path.name]
    assert len(reopen(path).steps) == 3


@pytest.mark.parametrize("name", ["run.json", "status.json", "history.jsonl", "eval_set.safetensors"])
@pytest.mark.parametrize("there", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_never_ends_is_not_read(path, name, there):
    (path / name).unlink()
    there(path / name)
    run = reopen(path)
    if name == "history.jsonl":
        assert len(run.history()["step"]) == 0
    else:
        assert any(f"{name} can't be read: it is no file" in sentence for sentence in damage(run))


def test_history_skips_lines_that_cannot_be_read(path):
    file = path / schema.HISTORY_FILE
    lines = file.read_text().splitlines()
    lines[3] = lines[3][:20]
    lines[5] = "null"
    lines[6] = json.dumps({"step": 7})
    file.write_text("\n".join(lines))
    assert reopen(path).history()["step"].tolist() == [1, 2, 3, 5, 8, 9, 10]


def test_history_skips_numbers_that_nothing_can_hold(path):
    file = path / schema.HISTORY_FILE
    lines = file.read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), "loss": 10**400})
    lines[4] = "[" * 100_000
    file.write_text("\n".join(lines))
    assert reopen(path).history()["step"].tolist() == [1, 2, 4, 6, 7, 8, 9, 10]


def test_a_metric_that_nothing_can_hold_hides_its_step(path):
    writer = RunWriter(path)
    writer.write_step(10, {}, {"knn": {"value": 10**400}})
    run = reopen(path)
    assert [c.step for c in run.steps] == [0, 2]
    assert "more than 64 bits" in run.damaged_steps["step-00000010"]


@pytest.mark.parametrize("value", ["lots", [1], {"a": 1}, True, None])
def test_a_metric_that_is_no_number_is_unknown(path, value, capsys):
    RunWriter(path).write_step(10, {}, {"knn": {"value": value, "k": 5}, "linear": {"value": 0.5}})
    run = reopen(path)
    assert dict(run.step(10).metrics) == {"knn": {"value": None, "k": 5}, "linear": {"value": 0.5}}
    runs_table([run])
    assert "0.500" in capsys.readouterr().out


def test_names_that_are_no_utf8_are_shown_as_far_as_they_go(tmp_path):
    name = b"caf\xe9".decode(errors="surrogateescape")
    path = write_run(tmp_path, name, class_names=(name, "b", "c", "d"))
    run = reopen(path)
    assert run.problem is None
    assert run.name == run.eval_set.class_names[0] == "caf?"


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_folder_whose_name_is_no_utf8_is_listed_with_its_reason_and_can_be_deleted(tmp_path):
    write_run(tmp_path, "other")
    folder = write_run(tmp_path).rename(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff"))
    store = RunStore(tmp_path)
    run = {found.id: found for found in store}[r"run-\xff"]
    assert (
        run.problem == store[folder.name].problem == "the name of its folder is not UTF-8: rename the folder"
    )
    with pytest.raises(RunError, match="rename the folder"):
        RunWriter(folder)
    delete(tmp_path, run.id)
    assert [found.id for found in store] == ["other"]


@pytest.mark.parametrize(
    ("name", "array", "sentence"),
    [
        ("keys", np.ones(20, np.float32), "'keys' as float32, 20; it must be fractional numbers in 2 dimensions"),
        ("keys", np.ones((20, 5), bool), "'keys' as bool, 20×5"),
        ("label", np.ones((20, 2), np.int64), "'label' as int64, 20×2; it must be whole numbers in 1 dimension"),
        ("written_step", np.full(20, np.nan), "'written_step' as float64"),
        ("label", np.ones(19, np.int64), "arrays of different lengths"),
        ("size", np.zeros(0, np.int64), r"holds 20 keys of a queue of size \[\]"),
        ("size", np.array([19]), r"holds 20 keys of a queue of size \[19\]"),
    ],
)  # fmt: skip
def test_arrays_of_another_kind_are_refused(path, name, array, sentence):
    arrays = reopen(path).step(10).arrays(schema.QUEUE_FILE)
    RunWriter(path).write_step(10, {schema.QUEUE_FILE: {**arrays, name: array}}, {})
    with pytest.raises(RunError, match=sentence):
        _ = reopen(path).step(10).queue


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "I7"])
def test_numbers_that_numpy_lacks_are_refused(path, kind):
    head = json.dumps({"query": {"dtype": kind, "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
    data = len(head).to_bytes(8, "little") + head + bytes(8)
    folder = path / "step-00000010"
    (folder / schema.EMBEDDINGS_FILE).write_bytes(data)
    entry = {"bytes": len(data), "sha256": sha256(data)}
    replace_json(folder / schema.MANIFEST_FILE, {"step": 10, "files": {schema.EMBEDDINGS_FILE: entry}})
    (path / schema.EVAL_FILE).write_bytes(data)
    RunWriter(path).describe(eval_set_sha256=sha256(data))
    run = reopen(path)
    with pytest.raises(RunError, match=r"embeddings\.safetensors of step 10 in synthetic can't be read"):
        _ = run.step(10).query
    with pytest.raises(RunError, match=r"eval_set\.safetensors of synthetic can't be read"):
        _ = run.eval_set


def test_a_method_without_queue_says_so(tmp_path):
    run = reopen(write_run(tmp_path, queue=False))
    assert not run.steps[-1].has_queue
    assert run.steps[-1].drift == {}
    with pytest.raises(RunError, match="has no queue: its method takes negatives from the batch"):
        _ = run.steps[-1].queue


def test_missing_arrays_are_named(tmp_path):
    writer = RunWriter(write_run(tmp_path))
    writer.write_step(20, {schema.EMBEDDINGS_FILE: {"query": np.ones((3, 2), np.float32)}}, {})
    with pytest.raises(RunError, match="lacks 'features'; it holds query"):
        _ = reopen(writer.path).step(20).features


def test_samples_may_have_names(path):
    writer, images = RunWriter(path), reopen(path).eval_set
    assert images.names is None
    names = ["plain", "two\nlines", "", "ünï ☃", *map(str, range(26))]
    arrays = {name: getattr(images, name) for name in ("thumbnails", "labels", "sample_ids")}
    writer.write_eval_set(arrays | {"names": schema.packed_names(names)}, images.class_names)
    found = reopen(path).eval_set
    assert found.names == ("plain", "two lines", "", "ünï ☃", *map(str, range(26)))
    assert [found.title(row) for row in (0, 2)] == ["plain (class 0)", f"class 2 #{found.sample_ids[2]}"]
    writer.write_eval_set(arrays | {"names": schema.packed_names(names[:-1])}, images.class_names)
    with pytest.raises(RunError, match="names 29 samples where there are 30"):
        _ = reopen(path).eval_set


@pytest.mark.parametrize("file", [schema.MANIFEST_FILE, schema.STATE_FILE])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_training_goes_on_from_the_newest_state_that_is_sound(path, file, damage):
    def spoil(step):
        damaged = path / schema.RESUME_DIR / schema.step_name(step) / file
        content = damaged.read_bytes()
        damaged.unlink()
        if damage != "gone":
            damaged.write_bytes(content[:-3] + b"\1\1\1" * (damage == "changed"))

    writer = RunWriter(path)
    writer.write_resume(3, {"x": np.zeros(2, np.float32)})
    older = path / schema.RESUME_DIR / schema.step_name(3)
    shutil.copytree(older, path / "kept")
    writer.write_resume(8, {"x": np.zeros(2, np.float32)})
    shutil.move(path / "kept", older)  # as after a kill before it was removed
    assert Run(path).resume_state().step == 8
    spoil(8)
    assert Run(path).resume_state().step == 3
    spoil(3)
    with pytest.raises(RunError, match=f"damaged: .*; without {path}/resume the run begins again"):
        Run(path).resume_state()
