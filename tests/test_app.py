"""The frame around every page: navigation, run picker, training panel; and each page on awkward folders."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from moco_core.dashboard.training_panel import OPENED
from moco_core.jobs import processes, this_host
from moco_core.jobs.desk import Desk
from moco_core.runs import RunStore, RunWriter
from moco_core.runs.process import start_of
from tests.charts import charts
from tests.framed import REPOSITORY, button, framed, open_app, texts
from tests.jobs.conftest import root, status, wait_for, wait_for_state
from tests.synthetic import write_run

__all__ = ["framed", "root"]

PAGES = ("runs", "projection", "geometry", "similarity", "queue", "momentum", "compare", "sphere")
MARKUP = "<b>bold</b> *star* $x$ [a](b)"


@pytest.fixture(autouse=True)
def runs_root(root: Path, framed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCO_RUNS", str(root))


def test_every_page_of_the_contract_is_there() -> None:
    source = (REPOSITORY / "app.py").read_text()
    assert len(source.splitlines()) < 80
    for page in PAGES:
        assert (REPOSITORY / "pages" / f"{page}.py").exists()
        assert f'("{page}", ' in source


@pytest.mark.parametrize("page", PAGES)
def test_pages_on_an_empty_folder_say_what_to_do(page: str) -> None:
    opened = open_app(page)
    assert "Train" in texts(opened) or page == "sphere"
    assert "choose" not in texts(opened)  # where there is nothing to choose from


@pytest.mark.parametrize("page", PAGES)
def test_a_folder_whose_path_is_no_utf8(page: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = root / os.fsdecode(b"runs-\xff")
    for name in ("a", "b"):
        write_run(named, name, sweep="both")
    monkeypatch.setenv("MOCO_RUNS", str(named))
    open_app(page, run="a", a="a", b="b")  # fails on an exception


def test_a_folder_that_cant_be_listed_is_not_called_empty(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.mkdir(exist_ok=True)
    for name, lead, sentence in (
        ("file", Path.touch, "file: Not a directory"),
        ("loop", lambda path: path.symlink_to(path), "loop: Too many levels of symbolic links"),
    ):
        lead(root / name)
        monkeypatch.setenv("MOCO_RUNS", str(root / name))
        (said,) = open_app().sidebar.error
        assert sentence in said.value.replace("\\", "")
        assert RunStore(root / name).problem == f"{root}/{sentence}"
    assert RunStore(root).problem is None
    assert RunStore(root / "none").problem is None


def test_a_folder_that_nobody_may_look_into(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "glob", refuse)  # as this system does; root may look everywhere
    monkeypatch.setattr(os, "scandir", refuse)
    assert f"can't be read: {root}: Permission denied" in texts(open_app())


@pytest.mark.parametrize("page", PAGES)
def test_pages_on_a_damaged_run_say_so_and_show_the_others(page: str, root: Path) -> None:
    damaged = write_run(root, "damaged")
    (damaged / "run.json").write_text('{"schema": 1, "config": 5}')
    write_run(root, "sound")
    open_app(page)
    if page not in ("runs", "momentum", "sphere"):
        assert "can't" in texts(open_app(page, run=damaged.name))


@pytest.mark.parametrize("page", PAGES)
def test_pages_on_damaged_files(page: str, root: Path) -> None:
    path = write_run(root, "half eaten")
    for name in ("embeddings.safetensors", "queue.safetensors", "drift.safetensors"):
        file = path / "step-00000020" / name
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    (path / "step-00000010" / "manifest.json").unlink()
    open_app(page, run=path.name)
    (path / "eval_set.safetensors").write_bytes(b"nothing")
    open_app(page, run=path.name)


@pytest.mark.parametrize("page", PAGES)
def test_names_with_markup_are_shown_as_they_are(page: str, root: Path) -> None:
    path = write_run(root, MARKUP, class_names=("<i>a</i>", "*b*", "$c$", "[d](e)"))
    opened = open_app(page, run=path.name)
    for element in (*opened.markdown, *opened.caption, *opened.info):
        assert "<b>bold" not in element.value
        assert "*star*" not in element.value.replace("\\*", "")


@pytest.mark.parametrize("page", [*PAGES, "import"])
@pytest.mark.parametrize("value", ["", "1e309", "nan", "-1", "<script>", "9" * 40])
def test_any_address_opens_its_page(page: str, value: str, root: Path) -> None:
    write_run(root, "one")
    write_run(root, "two")
    keys = (
        "run runs step a b a_step b_step method dim colour layer neighbors min_dist seed k find aligned with negatives "
        "height tau runs_as pairs bar unit log class filter compare_colour way real true vote speed two m K eta"
    )
    opened = open_app(page, **dict.fromkeys(keys.split(), value))
    assert "must be one of" not in texts(opened)
    assert opened.title[0].value


def test_the_sidebar_picks_the_run_and_the_url_keeps_it(root: Path) -> None:
    first, second = write_run(root, "first"), write_run(root, MARKUP)
    opened = open_app(run=first.name)
    picker = opened.sidebar.selectbox[0]
    assert picker.value == first.name
    assert set(picker.options) == {"first", MARKUP}
    picker.select(second.name).run()
    assert opened.query_params["run"] == second.name
    opened.switch_page("pages/momentum.py").run()
    assert opened.sidebar.selectbox[0].value == second.name


def test_a_link_to_a_run_that_is_gone_says_so(root: Path) -> None:
    write_run(root, "here")
    opened = open_app(run="gone")
    assert opened.toast[0].value == "There is no run gone here."
    assert opened.query_params["run"] == "here"


def test_a_link_to_runs_that_are_gone_shows_others(root: Path) -> None:
    for m in (0.0, 0.9):
        write_run(root, f"m {m}", momentum=m, sweep="s")
    opened = open_app("momentum", runs=["gone", "far"])
    assert "None of these runs can be shown here: gone, far." in texts(opened)
    assert len(opened.multiselect(key="_runs").value) == 2
    opened.multiselect(key="_runs").set_value([]).run()
    assert "No run is chosen: choose one or more above." in texts(opened)
    assert not opened.multiselect(key="_runs").value


def test_start_trains_with_the_values_of_the_form(root: Path) -> None:
    opened = open_app()
    assert "about **" in texts(opened)  # estimated time
    opened.sidebar.number_input(key="train.steps").set_value(7)
    opened.sidebar.number_input(key="train.momentum").set_value(0.5)
    opened.sidebar.selectbox(key="train.encoder").select("resnet18")
    opened.sidebar.text_input(key="train.name").set_value("quick").run()
    button(opened, "Start").click().run()
    assert not opened.exception
    (run,) = RunStore(root)
    assert (run.name, run.config.steps, run.config.momentum, run.config.encoder) == (
        "quick",
        7,
        0.5,
        "resnet18",
    )
    assert opened.query_params["run"] == run.id
    wait_for_state(root, run.id, "finished")
    opened.run()
    assert opened.toast[0].value == "quick finished"


def test_the_training_panel_is_filled_when_opened_and_keeps_its_values(root: Path) -> None:
    write_run(root, "here")
    opened = open_app()
    assert not opened.sidebar.number_input
    opened.session_state[OPENED] = True
    opened.run()
    opened.sidebar.number_input(key="train.steps").set_value(7).run()
    opened.session_state[OPENED] = False
    opened.run()
    assert not opened.sidebar.number_input
    opened.session_state[OPENED] = True
    opened.run()
    assert opened.sidebar.number_input(key="train.steps").value == 7


def test_momentum_sweep_queues_four_runs_under_one_tag(root: Path) -> None:
    opened = open_app()
    opened.sidebar.text_input(key="train.name").set_value("long").run()
    button(opened, "Momentum sweep").click().run()
    runs = sorted(RunStore(root), key=lambda run: run.config.momentum)
    assert [run.config.momentum for run in runs] == [0, 0.9, 0.99, 0.999]
    assert {run.sweep for run in runs} == {"momentum sweep"}
    wait_for(lambda: status(root, runs[0].id).step > 0)
    opened.run()
    assert sum("waiting" in caption.value for caption in opened.sidebar.caption) == 3
    for run in runs[::-1]:  # the waiting ones first
        opened.sidebar.button(key=f"stop-{run.id}").click().run()
    for run in runs:
        wait_for_state(root, run.id, "stopped")
    assert RunStore(root)[runs[0].id].status.step > 0


def test_training_found_again_by_another_session(root: Path) -> None:
    opened = open_app()
    opened.sidebar.text_input(key="train.name").set_value("long").run()
    button(opened, "Start").click().run()
    wait_for(lambda: status(root, "long").step > 0)
    again = open_app("momentum")
    assert "long" in texts(again)
    again.sidebar.button(key="stop-long").click().run()
    wait_for_state(root, "long", "stopped")
    again.run()
    assert not [b for b in again.sidebar.button if b.key == "stop-long"]


def test_progress_of_a_run_started_elsewhere(root: Path) -> None:
    path = write_run(root, MARKUP, state="running")
    RunWriter(path).set_status(
        host=this_host(), pid=os.getpid(), pid_started=start_of(os.getpid()), total_steps=100
    )
    opened = open_app()
    (readout,) = [c.value for c in opened.sidebar.caption if "pairs/s" in c.value]
    assert readout.startswith("step 20 of 100 · 1 s left · 1,000 pairs/s · loss ")
    assert "positive cosine 0.95 · mean negative 0.03" in readout
    assert len(charts(opened.sidebar)) == 1


def test_a_run_that_hangs_says_how_long_instead_of_when_it_will_be_done(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_signs", {})  # this process has trained in other tests
    path = write_run(root, "hangs", state="running") / "status.json"
    own = {"host": this_host(), "pid": os.getpid(), "pid_started": start_of(os.getpid()), "total_steps": 100}
    long_ago = {"stepped": "2020-01-01T00:00:00+00:00"}
    path.write_text(json.dumps(json.loads(path.read_text()) | own | long_ago))
    (readout,) = [c.value for c in open_app().sidebar.caption if "pairs/s" in c.value]
    assert re.match(r"step 20 of 100 · last step \d+ d ago · 1,000 pairs/s", readout)
    path.with_name("history.jsonl").unlink()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"step": 0}))
    assert re.search(r"100 steps to go; starting up, no step for \d+ d\.", texts(open_app()))


def test_a_run_lost_while_the_app_was_off_is_found_failed(root: Path) -> None:
    path = write_run(root, "lost", state="running")
    RunWriter(path).set_status(host=this_host(), pid=2**22 - 1, pid_started=1.0)
    open_app()
    assert status(root, path.name).state == "failed"


def test_the_form_takes_ranges_and_help_from_the_config() -> None:
    opened = open_app()
    momentum = opened.sidebar.number_input(key="train.momentum")
    assert momentum.value == 0.99
    assert "key encoder" in momentum.help
    assert opened.sidebar.number_input(key="train.steps").value == 400
    assert opened.sidebar.selectbox(key="train.dataset").options[0] == "digits"


@pytest.mark.parametrize(
    ("field", "typed", "sentence"),
    [
        ("momentum", 1.5, "momentum must be at least 0 and at most 1, got 1.5"),
        ("momentum", None, "momentum needs a number, at least 0 and at most 1"),
        ("queue_size", -3, "queue_size must be at least 1 and at most 16777216, got -3"),
        ("queue_size", 1e20, "queue_size must be at least 1 and at most 16777216, got 1"),
        ("queue_size", 2.5, "queue_size must be of type int, got 2.5"),
        ("seed", 2**31, "seed must be at least 0 and at most 2147483647, got 2147483648"),
    ],
)
def test_a_number_out_of_range_is_refused_in_a_sentence(
    field: str, typed: float | None, sentence: str
) -> None:
    opened = open_app()
    number = opened.sidebar.number_input(key=f"train.{field}")
    before = number.value
    assert (number.proto.has_min, number.proto.has_max) == (
        False,
        False,
    )  # else the browser would not send it
    number.set_value(typed).run()
    assert sentence in opened.sidebar.error[0].value.replace("\\", "")
    assert button(opened, "Start").disabled
    opened.sidebar.number_input(key=f"train.{field}").set_value(before).run()
    assert not opened.sidebar.error
    assert not button(opened, "Start").disabled


def test_settings_that_cannot_be_are_explained_in_a_sentence(root: Path) -> None:
    opened = open_app()
    opened.sidebar.number_input(key="train.temperature").set_value(0.0).run()
    assert "temperature must be above 0" in opened.sidebar.error[0].value.replace("\\", "")
    assert button(opened, "Start").disabled
    opened.sidebar.number_input(key="train.temperature").set_value(0.2)
    opened.sidebar.selectbox(key="train.dataset").select("a folder of mine").run()
    assert "dataset folder: needs a path" in opened.sidebar.error[0].value.replace("\\", "")
    opened.sidebar.text_input(key="train.folder").set_value(str(root / "pictures")).run()
    assert not opened.sidebar.error
    assert "pictures on this machine: training here would fail" in opened.sidebar.warning[0].value
    assert not button(opened, "Start").disabled
    (root / "pictures").mkdir()
    opened.run()
    assert not opened.sidebar.warning
    assert not list(RunStore(root))


def test_a_start_and_the_reason_of_a_failure_are_said(root: Path) -> None:
    opened = open_app()
    opened.sidebar.text_input(key="train.name").set_value("broken").run()
    button(opened, "Start").click().run()
    assert opened.toast[0].value == "Started broken; progress is at the top of the sidebar."
    wait_for_state(root, "broken", "failed")
    opened.run()
    (failure,) = opened.toast
    assert failure.value == "broken failed: the disk is made of cheese"
    assert failure.proto.duration == 0  # until it is closed
    assert [box.value for box in opened.warning] == ["broken: the disk is made of cheese."]


def test_caveats_before_the_start() -> None:
    opened = open_app()
    opened.sidebar.number_input(key="train.queue_size").set_value(4096).run()
    assert "longer than the 1,438 training images" in opened.sidebar.warning[0].value
    opened.sidebar.number_input(key="train.batch_size").set_value(2000).run()
    assert "can't be drawn from 1,438 training images" in opened.sidebar.warning[0].value


def test_a_folder_that_cannot_be_written_is_explained(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(root)
    root.write_text("a file where the folder should be")
    opened = open_app()
    button(opened, "Start").click().run()
    assert "can't be started" in opened.sidebar.error[-1].value
    assert not opened.exception
    root.unlink()
    root.mkdir()


def test_a_folder_that_can_only_be_read_is_shown(root: Path) -> None:
    path = write_run(root, "lost", state="running")
    RunWriter(path).set_status(host=this_host(), pid=2**22 - 1, pid_started=1.0)
    (root / ".jobs").write_text("no folder can be made here")
    opened = open_app()
    assert "Runs can't be looked after" in texts(opened)
    assert list(opened.dataframe[0].value["name"]) == ["lost"]


@pytest.mark.parametrize("page", PAGES)
def test_pages_on_the_shipped_runs(page: str, root: Path) -> None:
    shutil.copytree(REPOSITORY / "checkpoints", root, dirs_exist_ok=True)
    runs = list(RunStore(root))
    assert sorted(run.config.momentum for run in runs if run.sweep) == [0, 0.9, 0.99, 0.999]
    opened = open_app(page, run=runs[0].id)
    assert not opened.error
    assert not opened.warning


def test_no_momentum_sweep_without_momentum() -> None:
    opened = open_app()
    opened.sidebar.selectbox(key="train.method").select("in-batch").run()
    assert button(opened, "Momentum sweep").disabled
    assert opened.sidebar.number_input(key="train.momentum").disabled
    assert not Desk(Path(os.environ["MOCO_RUNS"])).tickets()
