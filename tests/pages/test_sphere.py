"""The sphere page: readouts follow the steps, sliders act on the running lab, the URL carries the settings."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from moco_core import jobs
from moco_core.dashboard.sphere_controls import LAB, RUNNING
from moco_core.dashboard.sphere_lessons import LESSONS
from moco_core.sphere import SphereMoCo
from tests.synthetic import write_run

PAGE = str(Path(__file__).parents[2] / "pages" / "sphere.py")


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Opens the page on the runs below a temporary root, with these settings in the URL."""
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))

    def open_page(**query: str) -> AppTest:
        app = AppTest.from_file(PAGE, default_timeout=60)
        app.query_params.update(query)
        app.run()
        assert not app.exception
        return app

    return open_page


def readouts(app: AppTest, number: int = 0) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric[6 * number : 6 * number + 6]}


def press(app: AppTest, name: str) -> AppTest:
    app.button(f"sphere.{name}").click().run()
    assert not app.exception
    return app


def test_dashes_before_the_first_step_then_numbers(opened):
    app = opened()
    before = readouts(app)
    assert all(metric.proto.help for metric in app.metric[:6])  # each says what it is
    assert [before[label] for label in ("InfoNCE loss", "Positive cosine", "Mean negative cosine")] == [
        "—"
    ] * 3
    assert before["Training steps"] == "0"

    twin = SphereMoCo()
    press(app, "step")
    twin.step()
    assert readouts(app)["Mean negative cosine"] == "—"  # the queue was empty
    press(app, "step")
    step = twin.step()
    after = readouts(app)
    assert after["Training steps"] == "2"
    assert after["InfoNCE loss"] == f"{step.loss:.3f}"
    assert after["Positive cosine"] == f"{step.positive_cosine:.3f}"
    assert after["Mean negative cosine"] == f"{step.mean_negative_cosine:.3f}"


def test_fast_forward_and_reset(opened):
    app = press(opened(), "leap")
    twin = SphereMoCo()
    for _ in range(500):
        twin.step()
    np.testing.assert_array_equal(app.session_state[LAB].experiments[0].sphere.queries, twin.queries)
    assert readouts(app)["Training steps"] == "500"
    assert readouts(press(app, "reset"))["Training steps"] == "0"


def test_sliders_act_without_a_restart(opened):
    app = press(opened(), "leap")
    before = app.session_state[LAB].experiments[0].sphere
    for key, value in (("tau", 0.5), ("m", 0.9), ("K", 10), ("eta", 0.1)):
        app.slider(key).set_value(value)
    app.run()
    sphere = app.session_state[LAB].experiments[0].sphere
    assert sphere is before
    assert (sphere.temperature, sphere.momentum, sphere.queue_size, sphere.step_size) == (0.5, 0.9, 10, 0.1)
    assert (sphere.steps, len(sphere.queue)) == (500, 10)
    assert readouts(press(app, "step"))["Training steps"] == "501"


@pytest.mark.parametrize("seed", ["1e309", "-1e309", "nan", "-1", "9" * 40, "", "x"])
def test_a_seed_that_cannot_be_is_the_default(opened, seed):
    assert opened(seed=seed).number_input("seed").value == 0


def test_a_seed_starts_anew(opened):
    app = press(opened(), "leap")
    app.number_input("seed").set_value(7).run()
    lab = app.session_state[LAB]
    assert (lab.seed, lab.experiments[0].sphere.steps) == (7, 0)
    np.testing.assert_array_equal(lab.experiments[0].sphere.queries, SphereMoCo(seed=7).queries)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_is_one_click(opened, lesson):
    app = press(opened(tau="0.77", m="0.5"), "leap")
    app.button(f"lesson.{lesson.name}").click().run()
    assert not app.exception
    sphere = app.session_state[LAB].experiments[0].sphere
    applied = (sphere.temperature, sphere.momentum, sphere.queue_size, sphere.step_size)
    settings = lesson.settings
    assert applied == (settings.temperature, settings.momentum, settings.queue_size, settings.step_size)
    assert sphere.steps == 0  # the clock starts with this run
    assert app.session_state[RUNNING]
    assert any(lesson.watch in info.value for info in app.info)


def test_settings_come_from_the_url(opened):
    app = opened(tau="0.35", m="0.5", K="17", eta="0.4", seed="3", two="true", m2="0.9")
    left, right = app.session_state[LAB].experiments
    assert (left.sphere.temperature, left.sphere.momentum, left.sphere.queue_size) == (0.35, 0.5, 17)
    assert (left.sphere.step_size, right.sphere.momentum, app.session_state[LAB].seed) == (0.4, 0.9, 3)


def test_two_spheres_step_together(opened):
    app = press(opened(two="true", m2="0"), "leap")
    left, right = app.session_state[LAB].experiments
    assert left.sphere.steps == right.sphere.steps == 500
    assert left.last.anchor == right.last.anchor
    assert not np.allclose(left.sphere.queries, right.sphere.queries)
    assert readouts(app, 1)["Positive cosine"] == "1.000"
    assert sum("Anchor: class" in text.value for text in app.markdown) == 2


def test_running_takes_steps_by_the_clock(opened, monkeypatch):
    app = opened()
    clock = iter(range(100))
    monkeypatch.setattr("time.monotonic", lambda: next(clock) / 10)
    press(app, "run")
    assert readouts(app)["Training steps"] == "0"
    app.run()
    assert readouts(app)["Training steps"] == "5"  # 50 steps a second, a tenth of a second later
    press(app, "run")
    assert not app.session_state[RUNNING]
    assert readouts(app.run())["Training steps"] == "5"


def test_formulas_carry_the_numbers_of_the_step(opened):
    app = press(press(opened(), "leap"), "step")
    last = app.session_state[LAB].experiments[0].last
    text = next(element.value for element in app.markdown if "Anchor: class" in element.value)
    assert f"class **{'ABCDEF'[last.anchor]}**" in text
    assert f"= {last.contrast.weights[0]:.3g}$$" in text
    assert f"$p_j = {last.contrast.weights[1:].max():.3g}$" in text
    assert f"= {np.linalg.norm(last.displacement):.3g}" in text


class TestRealImages:
    def test_says_so_when_there_is_no_run_in_3_d(self, opened, tmp_path):
        write_run(tmp_path, "flat", dim=8)
        assert any("No run with D = 3 yet" in info.value for info in opened().info)

    def test_runs_in_3_d_are_offered(self, opened, tmp_path):
        write_run(tmp_path, "flat", dim=8)
        write_run(tmp_path, "round", dim=3, samples=40)
        app = opened()
        assert app.selectbox("real").options == ["round"]
        assert any("40 held-out images" in caption.value for caption in app.caption)

    def test_the_button_queues_a_run(self, opened, tmp_path, monkeypatch):
        asked = []

        def submit(config, root):
            asked.append((config, root))
            return write_run(tmp_path, "queued", dim=3, state="queued").name

        monkeypatch.setattr(jobs, "submit", submit)
        app = press(opened(), "train")
        [(config, root)] = asked
        assert (config.dim, config.dataset, root) == (3, "digits", tmp_path)
        assert app.session_state["real"] == app.selectbox("real").value

    def test_runs_of_one_name_are_told_apart(self, opened, tmp_path):
        for _ in range(2):
            write_run(tmp_path, "round", dim=3)
        assert sorted(opened().selectbox("real").options) == ["1 · round", "2 · round"]

    def test_a_waiting_run_says_so(self, opened, tmp_path):
        run = write_run(tmp_path, "round", dim=3, state="queued")
        for step in run.glob("step-*"):
            shutil.rmtree(step)
        assert any("waits for its turn" in info.value for info in opened().info)

    def test_a_damaged_run_is_a_sentence(self, opened, tmp_path):
        run = write_run(tmp_path, "round", dim=3)
        (run / "eval_set.safetensors").write_bytes(b"")
        app = opened()
        assert any("can't be shown" in error.value for error in app.error)
