"""The queue page on every kind of run: it shows numbers or a sentence, never a traceback or a blank."""

import pytest

from moco_core.runs import Run, RunWriter
from tests.charts import charts
from tests.pages.opening import open_page, shown
from tests.stale_runs import write_stale_run
from tests.synthetic import write_run

CHARTS = 10


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))
    return tmp_path


def test_a_run_shows_everything(root):
    write_stale_run(root, "run", angle=0.8, momentum=0.0)
    app = open_page("queue")
    text = shown(app)
    assert "keys are consistent" in text
    assert "All 32 keys were encoded again" in text
    assert "as they must" in text
    assert "Spearman" in text
    assert [metric.label for metric in app.metric][:2] == ["Consistent length K*", "Queue filled"]
    assert app.metric[1].value == "100%"
    assert len(charts(app)) == CHARTS


def test_several_momenta_are_shown_together(root):
    write_stale_run(root, "m0", angle=0.8, momentum=0.0, sweep="s")
    write_stale_run(root, "m9", angle=0.01, momentum=0.9, sweep="s")
    write_stale_run(root, "other")
    app = open_page("queue", run="m0")
    assert not app.exception
    assert set(app.multiselect[0].value) == {"m0", "m9"}
    summary = app.dataframe[0].value
    assert summary["run"].tolist() == ["m0", "m9"]
    assert summary["k_star"].tolist()[0] < summary["k_star"].tolist()[1]


def test_an_empty_root_says_how_to_start(root):
    assert "no runs yet" in shown(open_page("queue"))


def test_an_empty_queue_says_so(root):
    write_stale_run(root, "run")
    app = open_page("queue")
    app.select_slider[0].set_value("0").run()
    assert "still empty at step 0" in shown(app)
    assert not app.metric


def test_a_partly_filled_queue_tells_its_share(root):
    write_stale_run(root, "run", queue_size=1000)
    app = open_page("queue")
    assert "16% full" in shown(app)
    assert app.metric[1].value == "16%"


def test_one_snapshot_says_that_a_second_is_needed(root):
    write_stale_run(root, "run", steps=(20,))
    app = open_page("queue")
    assert "a second will show" in shown(app)
    assert "Over training" not in shown(app)


def test_unlabelled_images_say_that_nothing_can_be_marked(root):
    write_stale_run(root, "run", labelled=False)
    assert "no labels" in shown(open_page("queue"))


def test_a_class_can_be_marked(root):
    write_stale_run(root, "run")
    app = open_page("queue")
    picker = next(box for box in app.selectbox if box.label == "Mark the slots of class")
    picker.select_index(2).run()
    assert "are of class class 2" in shown(app)


def test_a_collapsed_run_is_called_collapsed(root):
    write_stale_run(root, "run", collapsed=True)
    text = shown(open_page("queue"))
    assert "**collapsed**" in text
    assert "all keys lie in one place" in text


def test_a_method_without_a_queue_says_why(root):
    write_stale_run(root, "run", queue=False)
    app = open_page("queue")
    assert "keeps no keys" in shown(app)
    assert not charts(app)


def test_a_queue_that_was_not_measured_is_still_shown(root):
    write_run(root, "run", drift=False)
    app = open_page("queue")
    assert "was not measured" in shown(app)
    assert len(charts(app)) == 1


def test_the_contracts_arrays_alone_are_enough(root):
    write_run(root, "run")
    app = open_page("queue")
    assert not app.exception
    assert "No control was measured" in shown(app)


def test_a_damaged_measurement_is_named_and_the_rest_shown(root):
    path = write_stale_run(root, "run")
    file = path / "step-00000010" / "drift.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    text = shown(open_page("queue"))
    assert "Left out" in text
    assert "checksum differs" in text
    assert "Spearman" in text


def test_a_damaged_queue_is_named_and_the_rest_shown(root):
    path = write_stale_run(root, "run")
    file = path / "step-00000020" / "queue.safetensors"
    file.write_bytes(b"?" * file.stat().st_size)
    text = shown(open_page("queue"))
    assert "queue.safetensors" in text.replace("\\", "")
    assert "Spearman" in text


def test_a_damaged_run_is_named(root):
    path = write_stale_run(root, "run")
    (path / "run.json").write_text("{")
    assert "can't be shown" in shown(open_page("queue"))


def test_drift_can_be_raw_and_on_a_log_scale(root):
    write_stale_run(root, "run", angle=0.3)
    app = open_page("queue")
    app.toggle[0].set_value(True).run()
    assert not app.exception


def test_a_running_run_is_shown(root):
    path = write_stale_run(root, "run")
    RunWriter(path).set_status(state="running")
    assert "Spearman" in shown(open_page("queue"))


def test_the_collapse_verdict_stands_first(root):
    write_stale_run(root, "run", collapsed=True)
    app = open_page("queue")
    assert "This run has collapsed at this step" in app.warning[0].value


def test_a_memory_bank_is_explained(root):
    write_stale_run(root, "run", method="memory-bank")
    assert "A memory bank has one slot a sample, 32 here, and each step draws 32" in shown(open_page("queue"))


def pointer(app):
    """The button that leads to the least consistent step; None where there is none."""
    return next((button for button in app.button if button.key == "least_consistent"), None)


def test_a_button_leads_to_the_least_consistent_step(root):
    write_stale_run(root, "m0", angle=0.8, momentum=0.0, sweep="s")
    write_stale_run(root, "m9", angle=0.01, momentum=0.9, sweep="s")
    cosines = {
        number: [
            float(Run(root / name).steps[number // 10].drift["gradient_cosine"][-1]) for name in ("m0", "m9")
        ]
        for number in (10, 20)  # at step 0 the queue is empty
    }
    worst, other = sorted(cosines, key=lambda number: sum(cosines[number]))
    app = open_page("queue", run="m9", step=str(other))
    low, high = sorted(cosines[worst])
    assert pointer(app).label == (
        f"The queues were least consistent at step {worst} (gradient cosines from {low:.3f} to {high:.3f}): "
        ":primary[show that step]"
    )
    pointer(app).click().run()
    assert app.select_slider[0].value == str(worst)
    assert pointer(app) is None


def test_of_one_run_the_button_names_its_cosine(root):
    write_stale_run(root, "run", angle=0.8)
    app = open_page("queue", step="0")
    assert pointer(app).label.startswith("The queue was least consistent at step ")


def test_a_queue_that_was_always_consistent_has_no_such_button(root):
    write_stale_run(root, "run", angle=1e-4)
    app = open_page("queue")
    assert "whole queue is consistent" in shown(app)
    assert pointer(app) is None
