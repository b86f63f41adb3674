"""The momentum page on sweeps, single runs, damage and nothing at all."""

import pytest

from moco_core.dashboard.sweep_views import PAPER_COLUMN
from moco_core.runs import RunWriter
from tests.charts import charts
from tests.pages.opening import open_page, shown
from tests.stale_runs import write_stale_run


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))
    return tmp_path


def write_sweep(root, tag="sweep", momenta=(0.0, 0.99), seeds=(0, 1), **options):
    for m in momenta:
        for seed in seeds:
            angle = 0.5 * (1 - m)
            write_stale_run(
                root, f"{tag} {m} {seed}", angle=angle, momentum=m, seed=seed, sweep=tag, **options
            )


def test_a_sweep_is_averaged_over_seeds_beside_the_papers_numbers(root):
    write_sweep(root)
    app = open_page("momentum")
    text = shown(app)
    table = app.dataframe[0].value
    assert table["setting"].tolist() == [
        "m = 0",
        "m = 0.99",
        *(f"paper only, m = {m}" for m in (0.9, 0.999, 0.9999)),
    ]
    assert table["runs"].tolist()[:2] == ["2", "2"]
    assert table[PAPER_COLUMN].tolist() == ["fails", "57.8", "55.2", "59.0", "58.9"]
    assert "±" in table["loss, nats"][0]
    assert "half-life" in text
    assert "The grey column is the paper's" in text
    assert len(charts(app)) == 3


def test_a_sweep_can_be_chosen_by_its_tag(root):
    write_sweep(root, "older", momenta=(0.5,))
    write_sweep(root, "newer")
    app = open_page("momentum")
    assert len(app.multiselect[0].value) == 4
    picker = next(box for box in app.selectbox if box.label == "Show a sweep")
    picker.set_value("older").run()
    assert app.dataframe[0].value["setting"][0] == "m = 0.5"
    assert len(app.multiselect[0].value) == 2


def test_a_sweep_over_k_is_shown_along_k(root):
    for size in (16, 32):
        write_stale_run(root, f"k {size}", sweep="s", queue_size=size)
    app = open_page("momentum")
    text = shown(app)
    assert "Along queue length" in text
    assert "Along momentum" not in text
    assert "The grey column is the paper's" not in text
    assert len(charts(app)) == 3


def test_three_methods_are_compared(root):
    write_stale_run(root, "a", sweep="s")
    write_stale_run(root, "b", sweep="s", method="memory-bank")
    write_stale_run(root, "c", sweep="s", queue=False)
    app = open_page("momentum")
    text = shown(app)
    assert "Three ways to get negatives" in text
    assert "only one momentum" not in text
    assert len(charts(app)) == 3


def test_runs_of_one_momentum_lead_to_a_sweep(root):
    for seed in (0, 1):
        write_stale_run(root, f"seed {seed}", seed=seed, sweep="s")
    app = open_page("momentum")
    text = shown(app)
    assert "There is only one momentum here" in text
    assert "Along momentum" not in text
    assert len(charts(app)) == 2


def test_methods_without_momentum_say_so(root):
    write_stale_run(root, "c", queue=False)
    app = open_page("momentum")
    assert "None of these runs has a momentum encoder" in shown(app)
    assert not charts(app)


def test_an_empty_root_says_how_to_start(root):
    assert "no runs yet" in shown(open_page("momentum"))


def test_no_run_chosen_shows_none(root):
    write_sweep(root)
    app = open_page("momentum")
    app.multiselect[0].set_value([]).run()
    assert not app.exception
    assert not app.dataframe


def test_damage_is_named_and_costs_only_itself(root):
    write_sweep(root)
    broken = sorted(root.iterdir())[0]
    file = broken / "step-00000020" / "drift.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    unreadable = sorted(root.iterdir())[1]
    (unreadable / "run.json").write_text("{")
    app = open_page("momentum")
    assert "is left out" in shown(app)
    assert app.dataframe[0].value["runs"].tolist()[:2] == ["1", "2"]


def test_collapse_is_told(root):
    write_stale_run(root, "gone", collapsed=True, momentum=0.0)
    app = open_page("momentum")
    assert "Complete collapse: m \\= 0" in shown(app)
    assert app.dataframe[0].value["collapse"][0] == "complete"


def test_a_run_with_one_snapshot_and_no_labels_is_shown(root):
    write_stale_run(root, "one", steps=(20,), labelled=False)
    assert "Three clocks" in shown(open_page("momentum"))


def test_a_running_run_is_shown(root):
    RunWriter(write_stale_run(root, "run")).set_status(state="running")
    assert "Three clocks" in shown(open_page("momentum"))
