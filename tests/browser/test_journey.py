"""A newcomer's first minutes, on a home directory where nothing has run before and without a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moco_core.runs import RunStore
from tests.jobs.conftest import processes_of, wait_for
from tests.synthetic import write_run

WATCH = """
import os, socket

def _note(host):
    if str(host) not in ("None", "", "localhost", "127.0.0.1", "::1", "0.0.0.0"):
        with open(os.environ["CONNECTIONS"], "a") as file:
            file.write(f"{host}\\n")

_connect, _lookup = socket.socket.connect, socket.getaddrinfo

def connect(self, address):
    if isinstance(address, tuple):
        _note(address[0])
    return _connect(self, address)

def getaddrinfo(host, *rest, **more):
    _note(host.decode() if isinstance(host, bytes) else host)
    return _lookup(host, *rest, **more)

socket.socket.connect, socket.getaddrinfo = connect, getaddrinfo
"""
POINTS_DRAWN = """() => [...document.querySelectorAll(".js-plotly-plot")].some(
    plot => (plot.data || []).some(trace => trace.x && trace.x.length > 100))"""
PATIENCE = 240_000  # milliseconds; the trainer shares two cores with a browser that renders in software


@pytest.fixture(scope="module")
def fresh(
    app: Callable[[Path], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, Path]]:
    """Address, runs root, and the file in which every process notes whom outside it tried to reach."""
    root, home, watch = (tmp_path_factory.mktemp(name) for name in ("runs", "home", "watch"))
    (watch / "sitecustomize.py").write_text(WATCH)
    write_run(root, "shipped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("PYTHONPATH", str(watch))
        patch.setenv("CONNECTIONS", str(watch / "connections.txt"))
        yield app(root), root, watch / "connections.txt"
    for process in processes_of(root):
        process.kill()


@pytest.mark.timeout(900)
def test_from_the_first_start_to_a_gallery(page, fresh) -> None:
    address, root, connections = fresh
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.get_by_role("heading", name="Runs").wait_for()
    page.get_by_test_id("stDataFrame").wait_for()  # the shipped run

    sidebar = page.get_by_test_id("stSidebar")
    sidebar.get_by_text("Train", exact=True).click()
    steps = sidebar.get_by_role("spinbutton", name="Steps", exact=True)
    steps.fill("40")
    steps.press("Enter")
    sidebar.get_by_text(re.compile("Estimated time: about")).wait_for()
    sidebar.get_by_role("button", name="Start").click()

    sidebar.get_by_text(re.compile(r"digits m=0.99 K=1024.*(starting|running)")).wait_for()
    run_id = "digits-m0.99-k1024"
    assert RunStore(root)[run_id].config.steps == 40
    page.get_by_text("digits m=0.99 K=1024 finished").wait_for()  # said once it is so
    assert f"run={run_id}" in page.url
    run = RunStore(root)[run_id]
    assert run.status.state == "finished"
    assert run.steps[-1].step == 40
    sidebar.get_by_role("button", name="Stop").wait_for(state="detached")

    sidebar.get_by_role("link", name="Projection").click()
    page.get_by_role("heading", name="Projection").wait_for()
    plot = page.locator(".js-plotly-plot").first
    plot.wait_for()
    page.wait_for_function(POINTS_DRAWN)
    assert re.search(f"/projection.*run={run_id}", page.url)

    plot.hover()
    plot.locator(".modebar-btn[data-val=lasso]").click()
    box = plot.locator(".nsewdrag").first.bounding_box()
    corners = [(0.05, 0.05), (0.95, 0.05), (0.95, 0.95), (0.05, 0.95), (0.05, 0.06)]
    path = [(box["x"] + a * box["width"], box["y"] + b * box["height"]) for a, b in corners]
    page.mouse.move(*path[0])
    page.mouse.down()
    for point in path[1:]:
        page.mouse.move(*point, steps=8)
    page.mouse.up()
    selected = page.get_by_role("heading", name=re.compile(r"Selected: \d"))
    selected.wait_for()
    assert int(selected.inner_text().split(":")[1].replace(",", "")) > 100

    wait_for(lambda: not processes_of(root, "worker"), 60)
    assert not connections.exists(), connections.read_text()
