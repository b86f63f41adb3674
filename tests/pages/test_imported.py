"""A run of imported vectors on every page: what it can show is shown, what it can't is said in a sentence."""

import json
import re

import numpy as np
import pytest

from moco_core.dashboard import compare_data, loaders
from moco_core.interop.imported import Vectors, write_imported
from moco_core.runs import RunStore
from tests.pages.opening import headings, open_page, shown
from tests.synthetic import unit, write_run

N = 48
WORDS = tuple(f"word {i}" for i in range(N))


def write(root, name="words", *, seed=0, **more):
    rng = np.random.default_rng(seed)
    labels = np.arange(N) % 4
    values = rng.normal(size=(4, 6))[labels] * 2 + rng.normal(size=(N, 6))
    found = {"labels": labels, "class_names": ("a", "b", "c", "d"), "names": WORDS} | more
    source = {"kind": "import", "file": f"{name}.csv", "format": "text"}
    return write_imported(root, Vectors(values, **found), name=name, source=source)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))
    return tmp_path


PAGES = ("runs", "projection", "geometry", "similarity", "queue", "momentum", "compare", "sphere")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("bare", [False, True])
def test_every_page_opens(root, page, beside, bare):
    if beside:
        write_run(root, "trained")
    write(root, **({"labels": None, "class_names": (), "names": None} if bare else {}))
    app = open_page(page, run="words", method="pca")
    assert not app.error, shown(app)


def test_the_table_names_the_file_and_invents_no_number(root):
    write(root)
    app = open_page("runs", runs="words")
    row = app.dataframe[0].value.iloc[0]
    assert row["dataset"] == "words.csv"
    assert row["method"] == "imported"
    assert row[["momentum", "negatives", "temperature", "step", "loss", "alignment"]].isna().all()
    assert row["knn"] == RunStore(root)["words"].steps[0].metrics["knn"]["value"]
    assert "Imported vectors have no loss curve" in shown(app)


def test_the_queue_and_momentum_pages_say_what_is_missing(root):
    write(root)
    assert "These vectors were imported: they come without a queue" in shown(open_page("queue", run="words"))
    assert "no runs yet that were trained" in shown(open_page("momentum"))
    write_run(root, "trained")
    app = open_page("momentum")
    assert app.multiselect[0].options == ["trained"]


def test_similarity_without_and_with_a_second_view(root):
    write(root)
    text = shown(open_page("similarity", run="words"))
    assert "no second view" in text
    write(root, "pairs", second_view=np.random.default_rng(0).normal(size=(N, 6)))
    app = open_page("similarity", run="pairs")
    assert "Positives and hardest negatives are" in shown(app)
    assert "not known here" in app.slider(key="tau").help


@pytest.mark.parametrize("page", ["geometry", "similarity", "compare"])
def test_what_is_no_image_is_not_called_one(root, page):
    write(root)
    write(root, "again", seed=1)
    write(root, "pairs", second_view=np.random.default_rng(0).normal(size=(N, 6)))
    for run in ("words", "pairs"):
        app = open_page(page, run=run, method="pca", pairs="positives", bar="0.9")
        said = [shown(app), *(table.value.to_string() for table in app.dataframe)]
        said += [option for control in app.segmented_control for option in control.options]
        assert "image" not in " ".join(said)


def test_vectors_that_were_never_trained_have_no_steps(root):
    write(root)
    text = shown(open_page("similarity", run="words"))
    assert "Other runs" in text
    assert "step" not in text.lower()


def test_what_needs_a_second_view_is_neither_offered_nor_announced(root):
    write(root)
    write(root, "pairs", second_view=np.random.default_rng(0).normal(size=(N, 6)))
    for run, there in (("words", False), ("pairs", True)):
        similarity, geometry = open_page("similarity", run=run), open_page("geometry", run=run)
        assert ("tau" in {slider.key for slider in similarity.slider}) == there
        assert ("Below: the share of the softmax" in shown(similarity)) == there
        assert ("The further the positives stand" in shown(similarity)) == there
        assert ("alignment (left" in shown(geometry)) == there


def test_geometry_calls_the_layers_what_they_are(root):
    write(root)
    app = open_page("geometry", run="words")
    said = " ".join(e.value for e in [*app.success, *app.warning, *app.error])
    assert "Vectors at unit length. No collapse" in said
    assert "backbone" not in said
    html = "".join(part.value for part in app.get("html"))
    assert len(re.findall(r"<figure [^>]*><span [^>]*>word \d+ \([abcd]\)</span>", html)) == 16


def test_search_finds_names_and_galleries_show_them(root):
    write(root)
    app = open_page("projection", run="words", method="pca", find="word 7, #3")
    assert "Found: word 7, \\#3: 2" in [heading.value for heading in app.subheader]
    html = "".join(part.value for part in app.get("html"))
    assert "word 7 (d)" in html
    assert "word 3 (d)" in html
    assert "<img" not in html


def test_two_imports_are_matched_by_name_or_by_id_alone(root):
    order = np.random.default_rng(3).permutation(N)
    labels = np.arange(N) % 4
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, 6))
    source = {"kind": "import", "file": "x.npy"}
    for name, rows in (("one", np.arange(N)), ("two", order[:-8])):
        vectors = Vectors(
            values[rows], labels=labels[rows], class_names=tuple("abcd"), names=tuple(WORDS[i] for i in rows)
        )
        write_imported(root, vectors, name=name, source=source)
    app = open_page("compare", a="one", b="two", method="pca")
    assert "the 40 samples that both hold (of 48 in A and 40 in B), matched by name" in shown(app)
    assert {tile.label: tile.value for tile in app.metric}["Shared neighbours, mean Jaccard"] == "1.000"
    write(root, "three", names=None)
    write(root, "four", names=None, seed=1)
    same = "48 samples with the same ids: whether equal ids mean the same samples, only who made the files"
    assert same in shown(open_page("compare", a="three", b="four", method="pca"))
    write(root, "five", names=None, labels=None, class_names=())
    assert "matched by sample id alone" in shown(open_page("compare", a="three", b="five", method="pca"))
    write_run(root, "trained")
    text = shown(open_page("compare", a="three", b="trained", method="pca"))
    assert "no sample id in common" in text


def test_an_embedding_of_three_dimensions_lies_on_the_sphere(root):
    values = unit(np.random.default_rng(0).normal(size=(N, 3)))
    write_imported(
        root, Vectors(values, names=WORDS), name="globe", source={"kind": "import", "file": "g.npy"}
    )
    app = open_page("sphere", real="globe")
    assert "48 imported vectors" in shown(app)


def test_the_command_line_lists_it_as_imported(root, command):
    write(root)
    listed = command("runs")
    assert listed.returncode == 0
    assert "imported" in listed.stdout
    assert "from words.csv" in listed.stdout
    assert "0/0" not in listed.stdout
    (entry,) = json.loads(command("runs", "--json").stdout)
    assert entry["source"]["file"] == "words.csv"
    assert entry["config"] == {
        "dataset": "imported",
        "method": "imported",
        "encoder": "imported",
        "dim": 6,
        "name": "words",
    }
    verified = command("verify", "words")
    assert (verified.returncode, verified.stdout) == (0, "1 run checked, 0 damaged files\n")
    resumed = command("train", "--resume", "words")
    assert resumed.returncode == 2
    assert "is finished" in resumed.stderr
    everything = [word for name in ("dataset", "method", "encoder") for word in (f"--{name}", "imported")]
    for words, sentence in (
        (["--method", "imported"], "imported all three or none"),
        (everything, "can't be trained; method must be one of moco, memory-bank, in-batch"),
    ):
        refused = command("train", *words)
        assert refused.returncode == 2
        assert sentence in refused.stderr
        assert "Traceback" not in refused.stderr
    assert command("project", "words").returncode == 0
    assert [one.id for one in RunStore(root)] == ["words"]


def test_pages_say_what_is_too_much_to_search(root, monkeypatch):
    monkeypatch.setattr(loaders, "MOST_SEARCHED", 40)
    monkeypatch.setattr(compare_data, "MOST_COMPARED", 40)
    write(root, "many")
    write(root, "others", seed=1)
    app = open_page("geometry", run="many")
    assert shown(app).count("of up to 40 samples, and this run has 48") == 2
    assert "Spectrum" in headings(app)
    app = open_page("projection", run="many", method="pca")
    assert app.selectbox(key="colour").options == ["class"]
    text = shown(open_page("compare", a="many", b="others", method="pca"))
    assert "the same 48 samples. A fixed random sample of 40 of them is compared." in text
