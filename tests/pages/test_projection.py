"""The projection page on every kind of run: a picture or a sentence, never a traceback or a blank."""

import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from moco_core.projections import ProjectionSettings, stored_projection
from moco_core.runs import Run, RunStore, RunWriter, schema
from tests.synthetic import write_run


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))
    return tmp_path


def open_page(method="PCA", **query) -> AppTest:
    """PCA unless asked otherwise: what the page shows is the same, and nothing is compiled."""
    app = AppTest.from_file("../../app.py", default_timeout=60)
    for name, value in {"method": method, **query}.items():
        app.query_params[name] = value
    app.run()
    app.switch_page("pages/projection.py")
    for name, value in {"method": method, **query}.items():
        app.query_params[name] = value
    return app.run()


def shown(app: AppTest) -> str:
    assert not app.exception, app.exception
    parts = [*app.markdown, *app.caption, *app.info, *app.error, *app.warning, *app.subheader]
    return "\n".join(str(part.value) for part in parts)


def test_a_run_is_drawn(root):
    write_run(root)
    app = open_page()
    text = shown(app)
    assert "Colour is the class." in text
    assert "PCA is a shadow" in text
    assert "lasso some" in text
    assert not app.error
    assert [button.label for button in app.get("download_button")] == ["CSV", "Parquet", "HTML", "Vectors"]


def test_a_stored_picture_comes_with_its_faithfulness(root):
    run = Run(write_run(root))
    picture = stored_projection(run, run.steps[-1], ProjectionSettings(method="pca"))
    text = shown(open_page())
    assert f"Trustworthiness {picture.trustworthiness[0]:.3f}" in text
    assert f"continuity {picture.continuity[0]:.3f}" in text


@pytest.mark.parametrize(
    ("colour", "sentence"),
    [
        ("class", "Colour is the class."),
        ("kNN right or wrong", "vote for"),
        ("cosine to own key", "its own key"),
        ("local density", "nearest neighbours"),
    ],
)
def test_every_colouring(root, colour, sentence):
    write_run(root)
    app = open_page(colour=colour)
    assert sentence in shown(app)
    assert app.selectbox(key="colour").value is not None


def test_keys_and_queue_in_three_dimensions(root):
    run = Run(write_run(root))
    settings = ProjectionSettings(method="pca", dim=3, keys=True, queue=True)
    stored_projection(run, run.steps[-1], settings)
    app = open_page(dim="3-D", **{"with": ["Keys", "Queue"]})
    assert "Trustworthiness" in shown(app)


def test_searching_fills_a_gallery(root):
    write_run(root, class_names=("<b>bold</b>", "cat", "dog", "cow"))
    app = open_page(find="bold")
    assert any("15" in heading.value and "Found" in heading.value for heading in app.subheader)
    app = open_page(find="#1003")
    assert any(heading.value.endswith(": 1") for heading in app.subheader)
    assert "No class and no sample is called" in shown(open_page(find="zebra"))


def test_names_are_never_markup(root):
    write_run(root, "<b>run</b> *x*", class_names=("<b>bold</b>", "[a](b)", "$x$", "#d"))
    app = open_page(find="bold")
    assert "<b>" not in shown(app)
    assert "\\<b\\>bold" in shown(app)


def test_an_empty_root_says_how_to_start(root):
    app = open_page()
    assert "no runs yet" in shown(app).lower()
    assert not app.error


def test_without_labels_there_is_no_class_to_colour(root):
    write_run(root, labelled=False)
    app = open_page()
    assert "cosine between a sample's query embedding and its own key" in shown(app)
    assert app.selectbox(key="colour").options == ["cosine to own key", "local density"]


@pytest.mark.parametrize("samples", [2, 3])
def test_few_samples(root, samples):
    run = Run(write_run(root, samples=samples, classes=2))
    stored_projection(run, run.steps[-1], ProjectionSettings(method="pca"))
    for colour in ("class", "kNN right or wrong", "local density"):
        app = open_page(colour=colour)
        assert not app.error
        line = "fewer than three points" if samples == 2 else "Trustworthiness"
        assert line in shown(app)


def test_a_method_without_a_queue(root):
    write_run(root, queue=False)
    app = open_page()
    assert not app.error
    assert not [pill for pill in app.pills if "queue" in pill.options]


def test_a_damaged_step_is_a_sentence(root):
    run = Run(write_run(root))
    path = run.steps[-1].path / "embeddings.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    app = open_page()
    assert not app.exception
    assert "damaged" in app.error[0].value
    app = open_page(step="10")
    assert not app.error
    assert "Colour is the class." in shown(app)


def test_a_run_without_images_is_a_sentence(root):
    run = Run(write_run(root))
    (run.path / "eval_set.safetensors").unlink()
    app = open_page()
    assert not app.exception
    assert "eval\\_set" in app.error[0].value


def test_an_unreadable_run_is_a_sentence(root):
    (root / "foreign").mkdir()
    (root / "foreign" / "run.json").write_text("{}")
    app = open_page()
    assert not app.exception
    assert app.error


def test_a_collapsed_space_is_announced(root):
    run = Run(write_run(root))
    path = run.steps[-1].path / "metrics.json"
    assert '"verdict": "none"' in path.read_text()
    assert "The picture magnifies" not in shown(open_page())
    step = run.steps[-1]
    RunWriter(run.path).write_step(
        20,
        {schema.EMBEDDINGS_FILE: step.arrays(schema.EMBEDDINGS_FILE)},
        {
            "collapse": {
                "value": 0.001,
                "verdict": "complete",
                "reason": "Complete collapse: all in one place.",
            }
        },
    )
    assert "The picture magnifies" in shown(open_page())


def test_a_running_run_without_snapshots_waits(root):
    run = Run(write_run(root, state="running"))
    for step in run.steps:
        (step.path / "manifest.json").unlink()
    assert not open_page().exception


def test_nonsense_in_the_address_is_ignored(root):
    write_run(root)
    app = open_page(method="t-SNE", dim="7-D", colour="mood", step="nine", k="-4", min_dist="x")
    assert not app.exception
    assert not app.error


SHIPPED = Path(__file__).parents[2] / "checkpoints"


@pytest.mark.skipif(not any(SHIPPED.glob("*/run.json")), reason="no runs are shipped")
def test_the_shipped_runs_are_drawn(root):
    shutil.copytree(SHIPPED, root, ignore=shutil.ignore_patterns("cache"), dirs_exist_ok=True)
    for run in RunStore(root):
        stored_projection(run, run.steps[-1], ProjectionSettings(method="pca"))
        app = open_page(run=run.id, colour="kNN right or wrong")
        assert not app.error
        text = shown(app)
        assert "Trustworthiness" in text
        assert ("The picture magnifies" in text) == (run.steps[-1].metrics["collapse"]["verdict"] != "none")
        assert app.selectbox(key="aligned").options == ["nothing", "other steps", "its sweep"]
