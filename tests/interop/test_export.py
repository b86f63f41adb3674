"""What is exported is read back by the programs it is for."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from PIL import Image

from moco_core.config import ConfigError
from moco_core.interop.export import export_step, parquet
from moco_core.interop.imported import Vectors, write_imported
from moco_core.interop.projector_files import LARGEST_SPRITE, sprite
from moco_core.interop.vectors import Choices, read_vectors
from moco_core.runs import Run, RunError, RunWriter, schema
from tests.synthetic import write_run


@pytest.fixture
def run(tmp_path):
    return Run(write_run(tmp_path / "runs", "shown", samples=30, dim=5, steps=(0, 20)))


def export(run, to, step=20, **words):
    return export_step(run, run.step(step), to, **words)


def test_parquet_holds_every_vector_with_where_it_comes_from(tmp_path, run):
    path = export(run, "parquet", out=tmp_path / "new" / "shown.parquet")
    table = pyarrow.parquet.read_table(path)
    assert table.column_names == ["sample_id", "label", "class", "query", "features", "key", "second_view"]
    step = run.step(20)
    for name, rows in step.arrays(schema.EMBEDDINGS_FILE).items():
        column = table[name]
        assert str(column.type) == f"fixed_size_list<{column.type.value_field.name}: float>[{rows.shape[1]}]"
        np.testing.assert_array_equal(np.stack(column.to_numpy()), rows)
    assert table["sample_id"].to_pylist() == run.eval_set.sample_ids.tolist()
    assert table["label"].to_pylist() == run.eval_set.labels.tolist()
    assert table["class"].to_pylist() == [run.eval_set.name_of(label) for label in run.eval_set.labels]
    assert table.schema.metadata == {
        b"moco_lens.run_id": b"shown",
        b"moco_lens.run_name": b"shown",
        b"moco_lens.step": b"20",
        b"moco_lens.checksum": step.checksum.encode(),
    }
    frame = pd.read_parquet(path)
    np.testing.assert_array_equal(np.stack(frame["query"]), step.query)
    assert os.listdir(path.parent) == ["shown.parquet"]


def test_one_layer_alone(tmp_path, run):
    path = export(run, "parquet", step=0, layer="features", out=tmp_path / "f.parquet")
    table = pyarrow.parquet.read_table(path)
    assert table.column_names == ["sample_id", "label", "class", "features"]
    np.testing.assert_array_equal(np.stack(table["features"].to_numpy()), run.step(0).features)


def test_names_come_along_and_unknown_classes_are_empty(tmp_path):
    names = ("one\ttwo", "dr\u00fcben", "", "x")
    vectors = Vectors(np.eye(4, 3) + 1, labels=np.array([0, -1, 1, 0]), class_names=("a b", "c"), names=names)
    run = Run(write_imported(tmp_path, vectors, name="words", source={"kind": "import"}))
    table = pyarrow.parquet.read_table(io.BytesIO(parquet(run, run.steps[0])))
    assert table["name"].to_pylist() == list(names)
    assert table["class"].to_pylist() == ["a b", None, "c", "a b"]
    assert table["label"].to_pylist() == [0, -1, 1, 0]

    folder = export_step(run, run.steps[0], "projector", out=tmp_path / "p")
    assert sorted(os.listdir(folder)) == [
        "metadata.tsv",
        "projector_config.pbtxt",
        "vectors.tsv",
    ]  # no images
    lines = (folder / "metadata.tsv").read_text().split("\n")
    assert lines == [
        "name\tclass\tlabel\tsample_id",
        "one two\ta b\t0\t0",
        "drüben\tunlabelled\t-1\t1",
        "\tc\t1\t2",
        "x\ta b\t0\t3",
        "",
    ]


def projector_config(folder):
    """What TensorBoard's own parser makes of a folder's configuration."""
    text_format = pytest.importorskip("google.protobuf.text_format")
    projector = pytest.importorskip("tensorboard.plugins.projector")
    (embedding,) = text_format.Parse(
        (folder / "projector_config.pbtxt").read_text(), projector.ProjectorConfig()
    ).embeddings
    return embedding


def test_tensorboard_reads_the_projector_files(tmp_path, run):
    folder = export(run, "projector", out=tmp_path / "log")
    config = projector_config(folder)
    assert config.tensor_name == "shown-step-00000020-query"
    vectors = np.loadtxt(folder / config.tensor_path, delimiter="\t", dtype=np.float32)
    np.testing.assert_array_equal(vectors, run.step(20).query)
    lines = (folder / config.metadata_path).read_text().splitlines()
    assert len(lines) == 31
    assert lines[:3] == ["class\tlabel\tsample_id", "class 0\t0\t1000", "class 1\t1\t1001"]
    assert list(config.sprite.single_image_dim) == [8, 8]
    picture = np.asarray(Image.open(folder / config.sprite.image_path))
    assert picture.shape == (48, 48)  # 6 × 6 places for 30 images
    for i in (0, 7, 29):
        top, left = 8 * (i // 6), 8 * (i % 6)
        np.testing.assert_array_equal(
            picture[top : top + 8, left : left + 8], run.eval_set.thumbnails[i, ..., 0]
        )
    assert not picture[40:].any()


def test_tensorboards_plugin_serves_the_folder(tmp_path, run):
    plugin = pytest.importorskip("tensorboard.plugins.projector.projector_plugin")
    folder = export(run, "projector", layer="features", out=tmp_path / "log")
    found = plugin._read_tensor_tsv_file(str(folder / "vectors.tsv"))
    np.testing.assert_array_equal(found, run.step(20).features)
    context = plugin.base_plugin.TBContext(logdir=str(folder), data_provider=None)
    served = plugin.ProjectorPlugin(context)
    served._update_configs()
    (embedding,) = served._configs["."].embeddings
    assert list(embedding.tensor_shape) == [30, 10]


@pytest.mark.parametrize("channels", [1, 3])
def test_thumbnails_are_made_smaller_until_the_sheet_fits(channels):
    thumbnails = np.full((150, 1024, 512, channels), 7, np.uint8)
    sheet, size = sprite(thumbnails)
    assert size == (315, 630)  # 13 across; 8192 // 13 is 630
    assert sheet.shape[:2] == (13 * 630, 13 * 315)
    assert max(sheet.shape) <= LARGEST_SPRITE
    assert (sheet[0, 0] == 7).all()
    assert sprite(np.zeros((1025**2, 1, 1, channels), np.uint8)) is None


def test_nothing_is_overwritten_unasked(tmp_path, run):
    for to in ("parquet", "projector"):
        out = export(run, to, out=tmp_path / to)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(ConfigError, match=f"{to} is there already: --force replaces it"):
            export(run, to, step=0, out=out)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        assert export(run, to, step=0, out=out, force=True) == out
    table = pyarrow.parquet.read_table(tmp_path / "parquet")
    np.testing.assert_array_equal(np.stack(table["query"].to_numpy()), run.step(0).query)
    vectors = np.loadtxt(tmp_path / "projector" / "vectors.tsv", delimiter="\t", dtype=np.float32)
    np.testing.assert_array_equal(vectors, run.step(0).query)
    assert sorted(os.listdir(tmp_path)) == ["parquet", "projector", "runs"]


def test_force_takes_no_folder_with_anything_else_in_it(tmp_path, run):
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"home holds what no export wrote \(thesis\.tex\)"):
        export(run, "projector", out=folder, force=True)
    with pytest.raises(ConfigError, match="home is a folder, and Parquet is one file"):
        export(run, "parquet", out=folder, force=True)
    with pytest.raises(ConfigError, match="is a file, and the projector needs a folder"):
        export(run, "projector", out=folder / "thesis.tex", force=True)
    assert (folder / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("to", ["parquet", "projector"])
def test_what_is_no_file_is_never_replaced(tmp_path, run, to):
    pipe, nowhere = tmp_path / "pipe", tmp_path / "nowhere"
    os.mkfifo(pipe)
    nowhere.symlink_to("nothing")
    for out in (pipe, nowhere):
        with pytest.raises(
            ConfigError, match=f"{out.name} is neither a file nor a folder: choose another --out"
        ):
            export(run, to, out=out, force=True)
    assert pipe.is_fifo()
    assert nowhere.is_symlink()


@pytest.mark.parametrize("to", ["parquet", "projector"])
def test_what_a_killed_export_left_goes_a_day_later(tmp_path, run, to):
    folder = tmp_path / "out"
    for name in (".[a].01234567", ".[a].89abcdef", ".b.01234567"):
        (folder / name).mkdir(parents=True)
        (folder / name / "vectors.tsv").write_text("1")
        if not name.endswith("ef"):
            os.utime(folder / name, (0, 0))
    export(run, to, out=folder / "[a]")
    assert sorted(os.listdir(folder)) == [".[a].89abcdef", ".b.01234567", "[a]"]


def test_a_folder_that_stepped_aside_for_a_killed_export_goes_too(tmp_path, run):
    out = export(run, "projector", out=tmp_path / "out" / "a")
    if os.fork() == 0:
        os.replace = lambda *_: os._exit(9)  # after the old folder has stepped aside
        export(run, "projector", out=out, force=True)
    os.wait()
    left = os.listdir(out.parent)
    assert len(left) == 2
    for name in left:
        os.utime(out.parent / name, (0, 0))
    export(run, "projector", out=out)
    assert os.listdir(out.parent) == ["a"]


@pytest.mark.parametrize("to", ["parquet", "projector"])
def test_a_link_stays_and_leads_to_what_was_written(tmp_path, run, to):
    there = export(run, to, step=0, out=tmp_path / "there")
    link = tmp_path / "link"
    link.symlink_to(there)
    assert export(run, to, step=20, out=link, force=True) == link
    assert link.is_symlink()
    assert there.is_dir() == (to == "projector")
    file = there / "vectors.tsv" if to == "projector" else there
    assert file.stat().st_mtime_ns > run.path.stat().st_mtime_ns
    assert sorted(os.listdir(tmp_path)) == ["link", "runs", "there"]


@pytest.mark.parametrize("to", ["parquet", "projector"])
def test_a_failure_leaves_what_was_there(tmp_path, run, to, monkeypatch):
    out = export(run, to, out=tmp_path / "out")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("moco_core.interop.export.os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        export(run, to, step=0, out=out, force=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert sorted(os.listdir(tmp_path)) == ["out", "runs"]


def test_what_a_run_lacks_is_said(tmp_path, run):
    writer = RunWriter(run.path)
    query = run.step(20).query
    writer.write_step(30, {schema.EMBEDDINGS_FILE: {"query": query}}, {})
    writer.write_step(40, {schema.EMBEDDINGS_FILE: {"query": query[:-1]}}, {})
    again = Run(run.path)
    with pytest.raises(RunError, match="step 30 of shown has no features; it has query"):
        export(again, "parquet", 30, layer="features", out=tmp_path / "x")
    with pytest.raises(RunError, match=r"query of step 40 in shown has shape \(29, 5\) for 30 images"):
        export(again, "projector", 40, out=tmp_path / "x")
    with pytest.raises(
        ConfigError, match="layer must be one of query, features, key, second_view; got 'hidden'"
    ):
        export(again, "parquet", layer="hidden", out=tmp_path / "x")
    with pytest.raises(ConfigError, match="to must be one of parquet, projector; got 'csv'"):
        export(again, "csv", out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def moco(folder, *words):
    command = [sys.executable, "-m", "moco_core", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, env=environment)


def test_the_command_writes_the_newest_step_where_one_is(tmp_path, run):
    words = ("export", "shown", "--runs", tmp_path / "runs")
    done = moco(tmp_path, *words)
    assert (done.returncode, done.stdout) == (0, "shown-step-00000020.parquet\n"), done.stderr
    assert pyarrow.parquet.read_metadata(tmp_path / "shown-step-00000020.parquet").num_rows == 30
    again = moco(tmp_path, *words)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith("error: shown-step-00000020.parquet is there already")
    other = moco(tmp_path, *words, "--step", 0, "--to", "projector", "--layer", "features")
    assert (other.returncode, other.stdout) == (0, "shown-step-00000000-features-projector\n")
    absent = moco(tmp_path, *words, "--step", 7)
    assert absent.returncode == 1
    assert "no readable step 7; there are: 0, 20" in absent.stderr


@pytest.fixture
def named(tmp_path):
    """A run with names, images and samples of unknown class, its ids not in order."""
    rng = np.random.default_rng(0)
    vectors = Vectors(
        rng.normal(size=(24, 6)),
        labels=np.arange(24) % 4 - 1,
        class_names=("a b", "naïve", "c"),
        sample_ids=np.arange(24)[::-1] * 3 + 100,
        names=tuple(f"picture {i}.png" for i in range(24)),
        thumbnails=rng.integers(0, 256, (24, 9, 7, 3), dtype=np.uint8),
        features=rng.normal(size=(24, 12)),
    )
    return Run(write_imported(tmp_path / "runs", vectors, name="named", source={"kind": "import"}))


@pytest.mark.parametrize("layer", ["query", "features"])
@pytest.mark.parametrize(("to", "file"), [("parquet", ""), ("projector", "vectors.tsv")])
def test_what_is_exported_can_be_imported(tmp_path, named, to, file, layer):
    step = named.steps[0]
    out = export_step(named, step, to, layer=layer, out=tmp_path / "out.parquet")
    vectors = read_vectors(out / file if file else out).vectors
    np.testing.assert_array_equal(vectors.values, step.arrays(schema.EMBEDDINGS_FILE)[layer])
    assert vectors.labels.tolist() == named.eval_set.labels.tolist()
    assert vectors.class_names == named.eval_set.class_names
    assert vectors.sample_ids.tolist() == named.eval_set.sample_ids.tolist()
    assert vectors.names == named.eval_set.names


def test_a_table_of_all_layers_imports_its_query(tmp_path, run):
    out = export(run, "parquet", out=tmp_path / "all.parquet")
    np.testing.assert_array_equal(read_vectors(out).vectors.values, run.step(20).query)
    features = read_vectors(out, Choices(columns=("features",))).vectors
    np.testing.assert_array_equal(features.values, run.step(20).features)
