"""The sphere page's buttons and sliders, bound to the URL, and the lab that they act on."""

from __future__ import annotations

import time
from dataclasses import fields

import streamlit as st

from moco_core.dashboard.sphere_lab import Lab
from moco_core.dashboard.sphere_lessons import LESSONS, Lesson, Settings
from moco_core.dashboard.widgets import seed_input

SLIDERS = {  # field of Settings → name in the URL, label, range, step, format, help
    "temperature": (
        "tau",
        "Temperature τ",
        0.01,
        1.0,
        0.01,
        "%.2f",
        "Small: only the nearest negatives count.",
    ),
    "momentum": ("m", "Momentum m", 0.0, 1.0, 0.001, "%.3f", "0 copies q into k; 1 never moves k."),
    "queue_size": ("K", "Queue size K", 1, 1024, 1, "%d", "Past keys that serve as negatives."),
    "step_size": ("eta", "Step size η", 0.01, 1.0, 0.01, "%.2f", "How far a step moves q."),
}
SPEEDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # steps a second
LEAP = 500  # steps of a fast-forward
LAB, RUNNING = "sphere.lab", "sphere.running"


def lessons() -> None:
    """A button a lesson: it sets the (first) sphere's sliders, starts from the seed and runs."""
    with st.container(horizontal=True):
        for lesson in LESSONS:
            st.button(lesson.name, on_click=_teach, args=(lesson,), key=f"lesson.{lesson.name}")


def transport() -> tuple[float, int, bool]:
    """Run, step, leap, reset; returns the speed (steps a second), the seed and whether there are two spheres."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        moving = running()
        label, icon = ("Pause", "pause") if moving else ("Run", "play_arrow")
        st.button(
            label,
            icon=f":material/{icon}:",
            on_click=_run,
            args=(not moving,),  # what the button says, however often it is heard
            key="sphere.run",
            type="primary",
        )
        st.button("Step", icon=":material/skip_next:", on_click=_step, args=(1,), key="sphere.step")
        leap = f"Fast-forward {LEAP} steps"
        st.button(leap, icon=":material/fast_forward:", on_click=_step, args=(LEAP,), key="sphere.leap")
        st.button("Reset", icon=":material/replay:", on_click=_reset, key="sphere.reset")
        rate = st.select_slider("Steps a second", SPEEDS, 50, key="speed", bind="query-params", width=200)
        seed = seed_input(width=120)
        two = st.toggle(
            "Two spheres",
            key="two",
            bind="query-params",
            help="Same seed, same anchors, settings of their own.",
        )
    return rate, seed, two


def sliders(number: int, side: str) -> Settings:
    """The four sliders of one of the spheres (0 or 1), in a row; `side` says which it is, where there are two."""
    if side:
        st.markdown(f"**{side.capitalize()}**")
    values = {}
    row = st.container(horizontal=True)
    for field in fields(Settings):
        _, label, low, high, step, form, tip = SLIDERS[field.name]
        values[field.name] = row.slider(
            label,
            low,
            high,
            field.default,
            step,
            form,
            key=_key(field.name, number),
            bind="query-params",
            help=tip,
        )
    return Settings(**values)


def lab(settings: list[Settings], seed: int) -> Lab:
    """The session's lab with these settings; a fresh one after a reset, another seed or number of spheres."""
    kept = st.session_state.get(LAB)
    if kept is None or kept.seed != seed or len(kept.experiments) != len(settings):
        kept = st.session_state[LAB] = Lab(settings, seed)
    kept.apply(settings)
    return kept


def running() -> bool:
    """Whether the lab steps by itself."""
    return bool(st.session_state.get(RUNNING))


def tick(rate: float) -> None:
    """Take the steps that are due by now."""
    if running():
        st.session_state[LAB].tick(time.monotonic(), rate)
    else:
        st.session_state[LAB].rest()


def _key(field: str, number: int) -> str:
    return SLIDERS[field][0] + ("2" if number else "")


def _teach(lesson: Lesson) -> None:
    for field in fields(Settings):
        st.session_state[_key(field.name, 0)] = getattr(lesson.settings, field.name)
    _reset()
    st.session_state[RUNNING] = True


def _run(wanted: bool) -> None:
    st.session_state[RUNNING] = wanted


def _step(steps: int) -> None:
    if LAB in st.session_state:
        st.session_state[LAB].advance(steps)


def _reset() -> None:
    st.session_state.pop(LAB, None)
