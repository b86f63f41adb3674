"""The import page, with files named by their paths: dropping one takes a browser."""

import tempfile

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from moco_core.interop.vectors import read_vectors
from moco_core.runs import RunStore
from tests.pages.opening import open_page, shown

N = 30
VALUES = np.random.default_rng(0).normal(size=(N, 5)).astype(np.float32)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def named(path, beside="", second="") -> AppTest:
    app = open_page("import")
    app.button_group(key="way").set_value("path").run()
    for name, file in (("vectors", path), ("labels", beside), ("second", second)):
        app.text_input(key=f"import_path_{name}").set_value(str(file))
    app.run()
    assert not app.exception
    return app


def box(app, what):
    (found,) = [one for one in app.selectbox if one.label == what]
    return found


def press(app):
    (button,) = [one for one in app.button if one.label == "Import"]
    button.click().run()
    assert not app.exception
    return app


def table(path, **more):
    frame = pd.DataFrame({f"v{i}": VALUES[:, i] for i in range(5)} | more)
    frame.to_csv(path, index=False)
    return path


def test_a_session_makes_one_folder_for_what_is_dropped(root, monkeypatch):
    made = []

    class Folder(tempfile.TemporaryDirectory):
        def __init__(self, **more):
            made.append(self)
            super().__init__(**more)

    monkeypatch.setattr(tempfile, "TemporaryDirectory", Folder)
    app = open_page("import").run().run()
    assert not app.exception
    assert len(made) == 1


def test_without_a_file_it_says_how_to_save_one(root, tmp_path, monkeypatch):
    app = open_page("import")
    assert not root.exists()
    monkeypatch.chdir(tmp_path)
    for snippet, file in zip(app.code, ("mine.npz", "mine.parquet"), strict=True):
        exec(snippet.value, {"x": VALUES, "y": list("abc") * 10, "names": [f"w{i}" for i in range(N)]})
        found = read_vectors(tmp_path / file).vectors
        np.testing.assert_array_equal(found.values, VALUES)
        assert found.class_names == ("a", "b", "c")
        assert found.names[3] == "w3"


def test_a_file_is_previewed_and_imported(root, tmp_path):
    path = table(tmp_path / "my_words.csv", label=list("abc") * 10, word=[f"w{i}" for i in range(N)])
    app = named(path)
    assert "**30 vectors of 5 dimensions** from 5 columns, v0, v1, v2, v3, v4 of my\\_words\\.csv" in shown(
        app
    )
    assert list(app.dataframe[0].value.columns) == ["label", "word", *(f"[{i}]" for i in range(5))]
    assert (box(app, "Labels").value, box(app, "Names").value, box(app, "Images").value) == (
        "label",
        "word",
        "–",
    )
    assert "Labels: 3 classes." in shown(app)
    assert not root.exists()
    press(app)
    assert "imported: 30 vectors" in app.success[0].value
    (run,) = RunStore(root)
    assert run.name == "my_words"
    assert run.eval_set.names[4] == "w4"
    assert app.query_params["run"] == run.id


def test_a_numeric_column_can_be_made_the_labels(root, tmp_path):
    app = named(table(tmp_path / "a.csv", weight=np.arange(N) % 2))
    assert "30 vectors of 6 dimensions" in shown(app)
    box(app, "Labels").set_value("weight")
    app.run()
    assert "30 vectors of 5 dimensions" in shown(app)
    press(app)
    (run,) = RunStore(root)
    assert run.eval_set.labels.tolist() == [0, 1] * 15
    assert run.config.dim == 5


def test_labels_lie_in_a_second_file(root, tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    (tmp_path / "labels.txt").write_text("\n".join("xy"[i % 2] for i in range(N)))
    press(named(tmp_path / "a.npy", tmp_path / "labels.txt"))
    (run,) = RunStore(root)
    assert run.eval_set.class_names == ("x", "y")
    assert run.info["source"]["columns_from"] == "labels.txt"


def test_labels_are_found_in_a_file_that_comes_after_the_vectors(root, tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    pd.DataFrame({"label": ["xy"[i % 2] for i in range(N)]}).to_csv(tmp_path / "labels.csv", index=False)
    app = named(tmp_path / "a.npy")
    assert box(app, "Labels").value == "–"
    app.text_input(key="import_path_labels").set_value(str(tmp_path / "labels.csv")).run()
    assert box(app, "Labels").value == "label"
    press(app)
    (run,) = RunStore(root)
    assert run.eval_set.class_names == ("x", "y")


def test_a_second_view_makes_pairs(root, tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    np.save(tmp_path / "b.npy", VALUES + 0.1)
    press(named(tmp_path / "a.npy", second=tmp_path / "b.npy"))
    (run,) = RunStore(root)
    assert run.steps[0].metrics["alignment"]["pairs"] == "a vector and its second view"
    app = press(named(tmp_path / "a.npy", second=tmp_path / "a.npy"))
    assert "holds the same vectors as a\\.npy" in app.error[0].value
    assert len(RunStore(root)) == 1
    np.save(tmp_path / "b.npy", VALUES[:5])
    app = press(named(tmp_path / "a.npy", second=tmp_path / "b.npy"))
    assert "needs the shape of a\\.npy, 30×5" in app.error[0].value


def test_a_file_that_is_written_anew_is_read_anew(root, tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    app = named(tmp_path / "a.npy")
    assert "30 vectors of 5 dimensions" in shown(app)
    np.save(tmp_path / "a.npy", VALUES[:20, :3])
    app.run()
    assert "20 vectors of 3 dimensions" in shown(app)


def test_the_array_can_be_named_where_there_are_several(root, tmp_path):
    np.savez(tmp_path / "a.npz", a=VALUES, b=VALUES[:, :3])
    app = named(tmp_path / "a.npz")
    assert "leaves open which array holds the vectors" in app.error[0].value
    (field,) = [one for one in app.text_input if one.label.startswith("Array or columns")]
    field.set_value("b").run()
    assert "30 vectors of 3 dimensions" in shown(app)


def test_bad_rows_are_refused_until_they_may_be_left_out(root, tmp_path):
    values = VALUES.copy()
    values[3] = np.nan
    np.save(tmp_path / "a.npy", values)
    app = press(named(tmp_path / "a.npy"))
    assert "1 is not finite" in app.error[0].value
    assert not root.exists()
    app.checkbox[0].check().run()
    press(app)
    (run,) = RunStore(root)
    assert len(run.eval_set) == N - 1


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.pkl", b"\x80\x04.", "is a pickle"),
        ("a.npy", b"no array", "is no npy file"),
        ("a.csv", b"", "is empty"),
        ("missing.npy", None, "there is no file"),
    ],
)
def test_a_file_that_cannot_be_read_gets_a_sentence(root, tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    app = named(tmp_path / name)
    assert app.error[0].value.startswith("This file can't be imported: ")
    assert sentence in app.error[0].value
    assert not [button for button in app.button if button.label == "Import"]


def test_a_root_that_cannot_be_written_gets_a_sentence(root, tmp_path):
    root.write_text("a file where the runs should be")
    np.save(tmp_path / "a.npy", VALUES)
    app = press(named(tmp_path / "a.npy"))
    assert f"{root.name}: Not a directory" in app.error[0].value.replace("\\", "")
