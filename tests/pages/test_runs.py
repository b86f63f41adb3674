"""The runs page: the table, its filter, and what can be done with selected runs."""

import json
import math
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import plotly.graph_objects as go
import pytest

from moco_core.config import TrainConfig
from moco_core.dashboard.figures.loss_curves import LossCurve, loss_curves
from moco_core.dashboard.losses import authors_losses, comparable, logged_losses, loss_rows
from moco_core.dashboard.runs_table import (
    matching,
    newest_metric,
    order,
    runs_table,
    selected_ids,
    sparkline,
)
from moco_core.dashboard.selection import labels
from moco_core.jobs import this_host
from moco_core.paper import RECIPES
from moco_core.runs import RunStore, RunWriter, schema
from moco_core.tables import results
from tests.charts import charts
from tests.framed import REPOSITORY, button, framed, open_app, texts
from tests.jobs.conftest import root, status, wait_for_state
from tests.synthetic import write_run

__all__ = ["framed", "root"]

MARKUP = "<b>bold</b> *star* $x$"


@pytest.fixture(autouse=True)
def runs_root(root: Path, framed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCO_RUNS", str(root))


def test_no_runs_yet() -> None:
    shown = texts(open_app())
    assert "There are no runs here yet" in shown
    assert "python -m moco_core train" in shown


def test_the_table_says_what_each_run_reached(root: Path) -> None:
    write_run(root, MARKUP, momentum=0.9, sweep="a sweep")
    write_run(root, "no queue", queue=False, state="stopped")
    shown = open_app().dataframe[0]
    listed = list(shown.proto.column_order)
    assert listed == order(shown.value)
    assert listed[-2:] == ["created", "curve"]  # hidden columns make room for them
    assert {"alignment", "uniformity", "method"} < set(listed)
    assert "method" not in order(shown.value.head(1))  # nothing to tell apart
    titles = {name: column.get("label") for name, column in json.loads(shown.proto.columns).items()}
    assert {titles[name] for name in shown.value.columns if name not in order(shown.value)} == {
        "Sweep",
        "Note",
        "Host",
    }  # the toolbar's menu offers what is hidden, by its title
    table = shown.value
    assert list(table.index) == ["no-queue", "b-bold-b-star-x"]
    row = table.loc["b-bold-b-star-x"]
    assert (row["name"], row["state"], row["sweep"], row["method"]) == (
        MARKUP,
        "✓ finished",
        "a sweep",
        "moco",
    )
    assert (row["momentum"], row["negatives"], row["temperature"], row["step"]) == (0.9, 32, 0.2, 20)
    last_tenth = [math.log(33) * (0.5 + 0.5 / step) for step in (19, 20)]
    assert row["loss"] == pytest.approx(sum(last_tenth) / 2)
    measured = (row["knn"], row["linear"], row["alignment"], row["uniformity"])
    assert measured == pytest.approx((0.9, 0.9, 0.5, -3))
    assert list(row["curve"])[-1] == pytest.approx(last_tenth[-1], abs=1e-4)
    assert table.loc["no-queue", "state"] == "◐ stopped"
    assert table.loc["no-queue", "negatives"] == 7  # B − 1
    assert np.isnan(table.loc["no-queue", "momentum"])


def test_damaged_and_foreign_runs_are_listed_with_their_reason(root: Path) -> None:
    (write_run(root, "damaged") / "run.json").write_text("{")
    (write_run(root, "newer schema") / "run.json").write_text('{"schema": 99, "config": {}}')
    far = write_run(root, "far", state="running")
    RunWriter(far).set_status(host="gpu-box", pid=1, pid_started=1.0)
    silent = write_run(root, "silent", state="running")
    RunWriter(silent).set_status(host="gpu-box")
    text = (silent / "status.json").read_text()
    heartbeat = RunStore(root)["silent"].status.heartbeat
    (silent / "status.json").write_text(text.replace(heartbeat, "2020-01-01T00:00:00+00:00"))
    torn = write_run(root, "torn")
    (torn / "step-00000010" / "queue.safetensors").unlink()
    (write_run(root, "unlogged") / "history.jsonl").write_text("")
    (write_run(root, "imageless") / "eval_set.safetensors").write_bytes(b"")

    opened = open_app()
    order = list(opened.dataframe[0].proto.column_order)
    assert order[order.index("created") :][:3] == ["created", "note", "curve"]  # a note never hides the age
    table = opened.dataframe[0].value
    assert table.loc[["unlogged", "imageless"], "state"].tolist() == ["⚠ finished"] * 2
    said = {}
    for chosen in (["damaged", "newer-schema", "torn"], ["unlogged", "imageless"]):
        (box,) = open_app(runs=chosen).warning
        said |= dict(line.split(": ", 1) for line in box.value.replace("\\", "").splitlines())
    assert table.loc["damaged", "state"] == "✕ unreadable"
    assert "not valid JSON" in said["⚠ damaged"]
    assert "schema 99" in said["⚠ newer-schema"]
    assert said["torn"].startswith("step-00000010 is damaged: queue.safetensors")
    assert said["unlogged"].startswith("history.jsonl is damaged: it holds no step")
    assert said["imageless"].startswith("eval_set.safetensors is damaged: it can't be read")
    assert (table.loc["far", "state"], table.loc["far", "host"]) == ("● running 100%", "gpu-box")
    assert table.loc["silent", "state"] == "? lost contact"
    assert "last sign of life" in table.loc["silent", "note"]
    assert table.loc["torn", "state"] == "⚠ finished"
    assert table.loc["torn", "knn"] == pytest.approx(0.9)


def test_damage_does_not_widen_the_table(root: Path) -> None:
    for name in "abcdef":
        (write_run(root, name) / "run.json").write_text("{")
    write_run(root, "sound")
    opened = open_app()
    assert "note" not in opened.dataframe[0].proto.column_order
    lines = opened.warning[0].value.splitlines()
    assert len(lines) == 5
    assert lines[-1].startswith("2 more with ✕ or ⚠ in the table")
    assert not open_app(runs=["sound"]).warning
    assert open_app(runs=["a"]).warning[0].value.startswith("⚠ a: ")


def test_no_number_is_shown_as_minus_zero() -> None:
    shipped = RunStore(REPOSITORY / "checkpoints")
    collapsed = newest_metric(shipped["digits-m0-k1024"], "uniformity")
    assert collapsed is not None
    assert f"{collapsed:.3f}" == "-0.000"
    shown = runs_table(list(shipped), {}, labels(list(shipped)))["uniformity"]
    assert f"{shown['digits-m0-k1024']:.3f}" == "0.000"
    assert "-0.000" not in results(shipped["digits-m0-k1024"])  # on the command line
    assert shown["digits-m0.9-k1024"] == newest_metric(shipped["digits-m0.9-k1024"], "uniformity") < -0.5


def test_a_folder_is_shown_by_its_last_part(root: Path) -> None:
    write_run(root, "pets", dataset="folder:/some/where/pets")
    runs = list(RunStore(root))
    assert list(runs_table(runs, {}, labels(runs))["dataset"]) == ["pets"]


def test_the_filter_keeps_runs_with_every_word(root: Path) -> None:
    write_run(root, "alpha", momentum=0.5)
    write_run(root, "beta", state="failed", encoder="resnet18")
    (write_run(root, "gamma") / "status.json").write_text("[]")
    opened = open_app(filter="resnet FAILED")
    assert list(opened.dataframe[0].value.index) == ["beta"]
    opened.text_input(key="filter").set_value("unreadable").run()
    assert list(opened.dataframe[0].value.index) == ["gamma"]
    opened.text_input(key="filter").set_value("delta").run()
    assert "No run matches this filter." in texts(opened)
    assert [run.id for run in matching(list(RunStore(root)), "")] == ["gamma", "beta", "alpha"]


def test_selected_runs_are_kept_in_the_url(root: Path) -> None:
    for name in ("a", "b", "c"):
        write_run(root, name)
    opened = open_app(runs=["a", "c"])
    assert opened.query_params["runs"] == ["c", "a"]  # in the order of the table
    labels = {b.label for b in opened.button}
    assert "Delete 2 runs for good" in labels
    assert "Rename" not in labels


def test_two_readable_runs_are_offered_for_comparison(root: Path) -> None:
    for name in ("a", "b", "c", "damaged"):
        write_run(root, name)
    (root / "damaged" / "run.json").write_text("{")

    def links(*ids: str) -> dict[str, dict[str, list[str]]]:
        found = open_app(runs=list(ids)).main.get("page_link")
        return {link.proto.label: parse_qs(link.proto.query_string) for link in found}

    assert links("a", "c") == {"Compare": {"a": ["c"], "b": ["a"]}}  # in the order of the table
    assert set(links("a")) == {"Open"}
    assert links("a", "b", "c") == links("a", "damaged") == {}
    opened = open_app("compare", a="c", b="a")
    assert [s.value for s in opened.main.selectbox if s.label in "AB"] == ["c", "a"]


def test_selection_tells_rows_by_position() -> None:
    assert selected_ids([2, 0], ["a", "b", "c"]) == ["a", "c"]
    assert selected_ids([5], ["a"]) == []


def test_rename(root: Path) -> None:
    write_run(root, "old name")
    opened = open_app(runs="old-name")
    (field,) = [t for t in opened.text_input if t.label == "New name"]
    assert field.value == "old name"
    field.set_value(MARKUP)
    button(opened, "Rename").click().run()
    assert not opened.exception
    assert RunStore(root)["old-name"].name == MARKUP
    assert opened.dataframe[0].value.loc["old-name", "name"] == MARKUP
    assert opened.sidebar.selectbox[0].options == [MARKUP]


def test_delete_asks_and_then_deletes_what_was_selected(root: Path) -> None:
    for name in ("keep", MARKUP):
        write_run(root, name)
    opened = open_app(run="b-bold-b-star-x", runs="b-bold-b-star-x")
    assert f"Delete **{MARKUP}** with all snapshots?" in texts(opened)
    button(opened, "Delete for good").click().run()
    assert [run.id for run in RunStore(root)] == ["keep"]
    assert not opened.exception
    assert not opened.toast  # nobody need be told what they have just done
    assert "runs" not in opened.query_params
    assert list(opened.dataframe[0].value.index) == ["keep"]
    assert opened.query_params.get("run") == "keep"


def test_the_share_of_a_run_that_trains_has_room(root: Path) -> None:
    path = write_run(root, "busy", state="running")
    RunWriter(path).set_status(host="gpu-box")
    assert json.loads(open_app().dataframe[0].proto.columns)["state"]["width"] >= 100
    RunWriter(path).set_status(state="finished")
    assert "width" not in json.loads(open_app().dataframe[0].proto.columns)["state"]


def test_a_run_that_trains_is_not_deleted(root: Path) -> None:
    path = write_run(root, "busy", state="running")
    RunWriter(path).set_status(host="gpu-box")
    opened = open_app(runs="busy")
    button(opened, "Delete for good").click().run()
    assert path.exists()
    assert "busy is running; stop it before deleting it" in texts(opened)


def test_stop_of_a_run_elsewhere_is_refused_in_a_sentence(root: Path) -> None:
    RunWriter(write_run(root, "far", state="running")).set_status(host="gpu-box")
    opened = open_app(runs="far")
    (stop,) = [b for b in opened.main.button if b.label == "Stop"]
    stop.click().run()
    assert "far is trained on gpu-box; stop it there" in texts(opened)
    assert status(root, "far").state == "running"


def test_a_stopped_run_goes_on(root: Path) -> None:
    path = write_run(root, "quick", state="stopped", steps=(0, 5))
    RunWriter(path).set_status(step=2)
    opened = open_app(runs="quick")
    button(opened, "Go on").click().run()
    assert wait_for_state(root, "quick", "finished").step == 5


def test_the_reason_of_a_failure_stands_below_the_table(root: Path) -> None:
    RunWriter(write_run(root, "poor", state="failed")).set_status(error="the loss is nan at step 3")
    assert "poor: the loss is nan at step 3." in texts(open_app(runs="poor"))


def test_loss_curves_of_selected_runs_and_of_the_newest_sweep(root: Path) -> None:
    for momentum in (0.9, 0.99):
        write_run(root, f"m={momentum}", momentum=momentum, sweep="one")
    assert len(charts(open_app())) == 1
    runs = list(RunStore(root))
    curves = logged_losses(runs)
    assert [curve.name for curve in curves] == ["m=0.9", "m=0.99"]  # as on every page, not as stored
    assert curves[0].chance == pytest.approx(math.log(33))
    rows = loss_rows(curves)
    assert list(rows.columns) == ["run", "step", "loss", "chance", "floor"]
    assert len(rows) == sum(len(curve.step) for curve in curves)
    figure = loss_curves(curves)
    assert [trace.name for trace in figure.data] == ["m=0.9", "m=0.99"]
    levels = [annotation.text for annotation in figure.layout.annotations]
    assert levels == ["chance 3.50", f"floor {curves[0].floor:.2f}"]  # equal K and τ: one line each


def test_the_authors_losses_stand_beside_a_run_on_their_task(root: Path) -> None:
    theirs = {
        **RECIPES["moco-cifar10"],
        "batch_size": 50,
        "queue_size": 4096,
    }  # 500 images: 10 steps an epoch
    writer = RunWriter.create(root, TrainConfig(**{**theirs, "steps": 100}, name="demo"))
    writer.describe(dataset={"name": "cifar10", "train": 500})
    logged = {key: 1.0 for key in schema.HISTORY_KEYS} | {"filled": 4096.0}
    writer.append_history([{**logged, "step": step, "loss": 5.0} for step in (10, 50, 100)])
    write_run(root, "another task")
    RunWriter.create(root, TrainConfig(**{**theirs, "temperature": 0.2}, name="another τ")).describe(
        dataset={"train": 500}
    )
    curves = logged_losses(list(RunStore(root)))
    figure = loss_curves(curves)
    (authors,) = [trace for trace in figure.data if trace.name == "authors (He et al.)"]
    assert (list(authors.x), list(authors.y)) == ([10, 50, 100], [6.96, 6.86, 5.99])
    assert {trace.name for trace in figure.data} == {"demo", "another task", "authors (He et al.)"}
    assert authors_losses(RunStore(root)["another"]) == ()
    damaged = json.loads((root / "demo" / "run.json").read_text()) | {"dataset": {"train": "many"}}
    (root / "demo" / "run.json").write_text(json.dumps(damaged))
    assert authors_losses(RunStore(root)["demo"]) == ()


def test_curves_at_different_k_each_get_their_lines(root: Path) -> None:
    write_run(root, "<i>small</i>", queue_size=8)
    write_run(root, "large", queue_size=16)
    texts_drawn = [a.text for a in loss_curves(logged_losses(list(RunStore(root)))).layout.annotations]
    assert "chance of &lt;i&gt;small&lt;/i&gt; 2.20" in texts_drawn
    assert "chance of large 2.83" in texts_drawn


def test_levels_too_close_for_two_labels_share_one(root: Path) -> None:
    def drawn(*floors: float) -> go.Figure:
        names = "abc"[: len(floors)]
        return loss_curves(
            [LossCurve(n, np.ones(1), np.ones(1), 7.0, f) for n, f in zip(names, floors, strict=True)]
        )

    figure = drawn(2.24, 2.15, 4.0)
    texts_drawn = [a.text for a in figure.layout.annotations]
    assert texts_drawn == ["chance 7.00", "floor of b and others 2.15 to 2.24", "floor of c 4.00"]
    assert [line.y0 for line in figure.layout.shapes] == [7.0, 2.15, 2.24, 4.0]
    assert [a.text for a in drawn(2.24, 2.15).layout.annotations][1] == "floor 2.15 to 2.24"


def test_runs_of_one_name_are_called_in_the_table_as_in_the_picker(root: Path) -> None:
    for seed in (0, 1):
        write_run(root, "twin", seed=seed)
    app = open_app()
    picker = next(box for box in app.sidebar.selectbox if box.label == "Run")
    assert sorted(app.dataframe[0].value["name"]) == sorted(picker.options) == ["1 · twin", "2 · twin"]


def test_losses_count_from_the_step_at_which_the_queue_was_full() -> None:
    config = TrainConfig(queue_size=4)
    logged = {"step": np.arange(1.0, 6), "loss": np.arange(5.0), "filled": np.array([0, 2, 4, 4, 4.0])}
    assert comparable(logged, config)["step"].tolist() == [3, 4, 5]
    never = {**logged, "filled": np.array([0, 1, 2, 3, 3.0])}
    assert comparable(never, config)["step"].tolist() == [1, 2, 3, 4, 5]


def test_a_run_without_any_log_has_no_curve(root: Path) -> None:
    path = write_run(root, "fresh", steps=(0,))
    (path / "history.jsonl").write_text("")
    assert logged_losses(list(RunStore(root))) == []
    assert "Nothing logged yet" in texts(open_app())


def test_sparkline_keeps_the_mean() -> None:
    values = np.random.default_rng(0).normal(size=600)
    line = sparkline(values)
    assert len(line) == 60
    assert np.mean(line) == pytest.approx(values.mean(), abs=1e-4)
    assert sparkline(np.array([1.0, np.nan, np.inf, 2.0])) == [1.0, 2.0]


def test_newest_metric_looks_back_and_ignores_nonsense(root: Path) -> None:
    path = write_run(root, "metrics")
    run = RunStore(root)[path.name]
    assert newest_metric(run, "knn") == pytest.approx(0.9)
    assert newest_metric(run, "unheard of") is None


def test_a_table_of_no_columns_but_damaged_runs(root: Path) -> None:
    (write_run(root, "damaged") / "run.json").write_text("5")
    runs = list(RunStore(root))
    table = runs_table(runs, {}, labels(runs))
    assert np.isnan(table.loc["damaged", "loss"])
    assert table.loc["damaged", "curve"] == []
    assert this_host() not in table["host"].tolist()


@pytest.mark.parametrize("said", [["<b>Left out</b>: 3 files"], "text", None, [7]])
def test_a_selected_run_says_what_was_said_when_it_began(root: Path, said: object) -> None:
    path = write_run(root, "warned")
    RunWriter(path).describe(warnings=said)
    shown = texts(open_app(runs=path.name))
    assert ("<b>Left out</b>: 3 files" in shown) == (said == ["<b>Left out</b>: 3 files"])
