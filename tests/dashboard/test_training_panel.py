"""The form follows `TrainConfig`; the progress chart shows what was logged."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from moco_core.config import TrainConfig, help_text
from moco_core.dashboard.figures.loss_curves import LossCurve, loss_curves
from moco_core.dashboard.figures.progress import progress_chart
from moco_core.dashboard.training_form import MAIN, MORE
from moco_core.dashboard.training_progress import _readout
from moco_core.runs import Run
from moco_core.runs.schema import HISTORY_KEYS
from tests.synthetic import write_run


def form() -> None:
    import streamlit as st

    from moco_core.dashboard.training_form import training_form

    st.session_state["values"] = training_form()


def test_untouched_the_form_is_the_default_config() -> None:
    opened = AppTest.from_function(form, default_timeout=30).run()
    assert not opened.exception
    assert TrainConfig(**opened.session_state["values"]) == TrainConfig()


def test_every_field_is_there_once_with_its_help() -> None:
    names = [field.name for field in dataclasses.fields(TrainConfig)]
    assert sorted((*MAIN, *MORE)) == sorted(names)
    opened = AppTest.from_function(form, default_timeout=30).run()
    widgets = [*opened.number_input, *opened.selectbox, *opened.text_input, *opened.checkbox]
    shown = {widget.key.removeprefix("train."): widget.help for widget in widgets}
    assert shown == {name: help_text(name) for name in names}


def test_an_own_folder_becomes_a_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    opened = AppTest.from_function(form, default_timeout=30).run()
    opened.selectbox(key="train.dataset").select("a folder of mine").run()
    assert opened.session_state["values"]["dataset"] == "folder:"
    opened.text_input(key="train.folder").set_value(" ~/pictures ").run()
    assert opened.session_state["values"]["dataset"] == "folder:/home/someone/pictures"


def test_a_cosine_of_almost_nothing_has_no_sign(tmp_path: Path) -> None:
    run = Run(write_run(tmp_path))
    logged = {name: np.array([-0.001]) for name in HISTORY_KEYS}
    assert "positive cosine 0.00 · mean negative 0.00" in _readout(run, logged)


def test_progress_chart() -> None:
    step = np.arange(1, 6)
    loss, positive, negative = np.linspace(7, 5, 5), np.linspace(0, 1, 5), np.linspace(0.5, 0, 5)
    figure = progress_chart(step, loss, positive, negative, chance=6.93, floor=2.15)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["loss"].y) == list(loss)
    assert list(traces["chance"].y) == [6.93, 6.93]
    assert list(traces["floor"].y) == [2.15, 2.15]
    assert list(traces["positive"].y) == list(positive)
    assert list(traces["mean negative"].y) == list(negative)
    assert figure.layout.yaxis.title.text == "loss, nats"
    assert figure.layout.xaxis2.title.text == "step"


def test_cosines_below_the_usual_stay_in_the_progress_chart() -> None:
    step, cosine = np.arange(3), np.array([np.nan, -0.3, 0.1])
    low, high = progress_chart(step, step, cosine, cosine, chance=6.93, floor=2.15).layout.yaxis2.range
    assert low == pytest.approx(-0.35)
    assert high == 1.05


def test_a_history_of_any_length_is_drawn_with_as_many_points_as_can_be_seen() -> None:
    step = np.arange(1, 500_001, dtype=float)
    noise = np.random.default_rng(0).normal(size=500_000)
    progress = progress_chart(step, noise, noise, noise, chance=6.93, floor=2.15)
    losses = loss_curves([LossCurve("long", step, noise, 6.93, 2.15)])
    for trace in (*progress.data[:1], *progress.data[-2:], losses.data[0]):
        assert len(trace.x) == len(trace.y) == 2000
        assert list(trace.x[:2]) == [125.5, 375.5]
        np.testing.assert_allclose(trace.y, noise.reshape(2000, 250).mean(1))
