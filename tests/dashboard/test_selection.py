"""The selection lives in the URL, survives changes of page and what is no longer there."""

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from moco_core.dashboard import selection
from moco_core.dashboard.selection import newest_runs, newest_sweep, sweep_of
from moco_core.runs import RunStore, RunWriter
from tests.synthetic import write_run


def page() -> None:
    import streamlit as st

    from moco_core.dashboard import selection

    selection.run_picker()
    run = selection.current_run()
    checkpoint = selection.step_slider(run) if run else None
    several = selection.run_multipicker()
    seen = {"run": run.id if run else None, "step": checkpoint.step if checkpoint else None}
    st.json({**seen, "runs": [other.id for other in several]})


@pytest.fixture
def visit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))

    def visited(**query: str | list[str]) -> AppTest:
        opened = AppTest.from_function(page, default_timeout=30)
        opened.query_params.update(query)
        opened.run()
        assert not opened.exception
        return opened

    return visited


def seen(opened: AppTest) -> dict[str, object]:
    import json

    found: dict[str, object] = json.loads(opened.json[0].value)
    return found


def test_without_a_choice_the_newest_run_and_step_are_shown(tmp_path: Path, visit) -> None:
    write_run(tmp_path, "old")
    write_run(tmp_path, "new")
    opened = visit()
    assert seen(opened) == {"run": "new", "step": 20, "runs": ["new"]}
    assert opened.query_params == {"run": "new", "runs": "new"}  # the newest step is followed, not pinned


def test_a_run_without_snapshots_is_not_the_default(tmp_path: Path, visit) -> None:
    write_run(tmp_path, "shown")
    path = write_run(tmp_path, "just begun", state="running")
    for step in path.glob("step-*"):
        (step / "manifest.json").unlink()
    assert seen(visit())["run"] == "shown"
    begun = visit(run="just-begun")
    assert seen(begun)["step"] is None
    assert "has no snapshot to show yet. The first one appears" in begun.info[0].value
    assert len(begun.warning) == 3  # each damaged snapshot, with its reason


def test_a_link_opens_the_same_view(tmp_path: Path, visit) -> None:
    for name in ("a", "b"):
        write_run(tmp_path, name)
    opened = visit(run="a", step="10", runs=["a", "b"])
    assert seen(opened) == {"run": "a", "step": 10, "runs": ["b", "a"]}
    assert opened.query_params == {"run": "a", "step": "10", "runs": ["a", "b"]}


def test_choices_are_written_to_the_url(tmp_path: Path, visit) -> None:
    for name in ("a", "b"):
        write_run(tmp_path, name)
    opened = visit()
    opened.selectbox[0].select("a").run()
    opened.select_slider[0].set_value("0").run()
    opened.multiselect[0].set_value(["b", "a"]).run()
    assert opened.query_params == {"run": "a", "step": "0", "runs": ["b", "a"]}
    opened.select_slider[0].set_value("20").run()
    assert "step" not in opened.query_params


def test_a_step_stays_where_the_other_run_has_it(tmp_path: Path, visit) -> None:
    write_run(tmp_path, "a")
    write_run(tmp_path, "b", steps=(0, 10, 40))
    opened = visit(run="a", step="10")
    opened.selectbox[0].select("b").run()
    assert seen(opened)["step"] == 10
    opened.select_slider[0].set_value("0").run()
    write_run(tmp_path, "c", steps=(5, 6))
    opened.selectbox[0].select("a").run()
    assert seen(opened)["step"] == 0
    opened.run()
    opened.selectbox[0].select("c").run()
    assert seen(opened)["step"] == 6
    assert "step" not in opened.query_params


def test_the_session_remembers_when_the_url_is_cleared(tmp_path: Path, visit) -> None:
    for name in ("a", "b"):
        write_run(tmp_path, name)
    opened = visit(run="a", step="10", runs=["a"])
    opened.query_params.clear()  # what a change of page does
    opened.run()
    assert seen(opened) == {"run": "a", "step": 10, "runs": ["a"]}
    opened.multiselect[0].set_value([]).run()
    opened.run()
    assert seen(opened)["runs"] == []


def test_back_to_where_no_step_was_chosen_shows_the_newest(tmp_path: Path, visit) -> None:
    write_run(tmp_path, "one")
    opened = visit(run="one")
    opened.select_slider[0].set_value("10").run()
    assert seen(opened)["step"] == 10
    del opened.query_params["step"]  # as a browser's Back does; it leaves the run
    opened.run()
    assert seen(opened)["step"] == 20
    assert "step" not in opened.query_params


def test_what_the_url_asks_for_but_is_not_there(tmp_path: Path, visit) -> None:
    write_run(tmp_path, "a")
    opened = visit(run="../../etc", step="999", runs=["gone", "a"])
    assert seen(opened) == {"run": "a", "step": 20, "runs": ["a"]}
    assert "There is no run" in opened.toast[0].value


def test_a_damaged_run_can_be_picked_and_says_why(tmp_path: Path, visit) -> None:
    write_run(tmp_path, "sound")
    (write_run(tmp_path, "damaged") / "status.json").write_text("{}")
    opened = visit(run="damaged")
    assert seen(opened)["run"] is None
    assert "can't be shown" in opened.error[0].value
    assert opened.selectbox[0].options == ["⚠ damaged", "sound"]


def test_names_that_repeat_are_told_apart_at_their_beginning(tmp_path: Path, visit) -> None:
    for _ in range(2):
        write_run(tmp_path, "twin")
    RunWriter(write_run(tmp_path, "another")).describe(name="twin")
    write_run(tmp_path, "single")
    assert visit().selectbox[0].options == ["single", "another · twin", "2 · twin", "1 · twin"]


def test_a_sweep_is_shown_together(tmp_path: Path, visit) -> None:
    for momentum in (0.9, 0.99):
        write_run(tmp_path, f"m={momentum}", momentum=momentum, sweep="one")
    write_run(tmp_path, "other", sweep="two", state="queued", steps=(0,))
    (tmp_path / "other" / "step-00000000" / "manifest.json").unlink()
    assert seen(visit())["runs"] == ["m0.99", "m0.9"]


def test_of_a_long_sweep_some_are_shown_the_run_itself_among_them(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))
    for number in range(selection.MOST_AT_ONCE + 6):
        write_run(tmp_path, f"{number}", sweep="long", steps=(0,), samples=4)
    write_run(tmp_path, "other", steps=(0,))
    runs = list(RunStore(tmp_path))
    for run in (runs[1], runs[2], runs[-1]):
        shown = sweep_of(run)
        assert run.id in shown
        assert len(set(shown)) == selection.MOST_AT_ONCE
        assert shown == [one.id for one in runs if one.id in shown]
        assert "other" not in shown
    assert sweep_of(RunStore(tmp_path)["other"]) == ["other"]


def test_a_sweep_stands_before_a_later_run_alone(tmp_path: Path, visit) -> None:
    write_run(tmp_path, "early")
    for momentum in (0.9, 0.99):
        write_run(tmp_path, f"m={momentum}", momentum=momentum, sweep="one")
    write_run(tmp_path, "half", sweep="lone")
    write_run(tmp_path, "late")
    write_run(tmp_path, "busy", state="running")
    runs = list(RunStore(tmp_path))
    assert seen(visit()) == {"run": "busy", "step": 20, "runs": ["m0.99", "m0.9"]}
    assert [run.id for run in newest_runs(runs)] == ["busy", "m0.99", "m0.9"]
    RunWriter(tmp_path / "busy").set_status(state="finished")
    assert [run.id for run in newest_runs(list(RunStore(tmp_path)))] == ["busy", "m0.99", "m0.9"]
    (tmp_path / "m0.9" / "run.json").write_text("{")
    assert [run.id for run in newest_sweep(list(RunStore(tmp_path)))] == ["busy"]
    assert newest_runs([]) == newest_sweep([]) == []


def test_no_runs(visit) -> None:
    opened = visit()
    assert seen(opened) == {"run": None, "step": None, "runs": []}
    assert "There are no runs yet" in opened.info[0].value


def test_one_snapshot_needs_no_slider(tmp_path: Path, visit) -> None:
    write_run(tmp_path, "short", steps=(0,))
    opened = visit()
    assert seen(opened)["step"] == 0
    assert not opened.select_slider


def starting_page() -> None:
    import streamlit as st

    from moco_core.dashboard import selection

    if st.button("Start"):
        selection.choose_run("new")
        st.rerun()
    selection.run_picker()
    run = selection.current_run()
    st.json({"run": run.id if run else None})


def test_a_browser_that_still_sends_the_old_address_does_not_undo_a_start(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))
    for name in ("old", "new"):
        write_run(tmp_path, name)
    opened = AppTest.from_function(starting_page, default_timeout=30)
    opened.query_params["run"] = "old"
    opened.run().button[0].click().run()
    assert seen(opened)["run"] == "new"
    opened.query_params["run"] = "old"
    assert seen(opened.run())["run"] == "new"
    assert opened.query_params["run"] in ("new", ["new"])
    monkeypatch.setattr("moco_core.dashboard.selection.SETTLING_SECONDS", 0.0)
    opened.query_params["run"] = "old"  # later it is someone's wish
    assert seen(opened.run())["run"] == "old"
