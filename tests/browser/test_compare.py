"""Two checkpoints in a real browser: what is selected or pointed at on one side shows on the other."""

from __future__ import annotations

import re

import numpy as np
import pytest

from moco_core.projections import ProjectionSettings, stored_projection
from moco_core.runs import Run
from tests.browser.waiting import assert_soon
from tests.synthetic import write_run

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PATIENCE = 120_000  # milliseconds, for two cores that several browsers share
PCA = ProjectionSettings(method="pca")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for name, dim in (("left", 8), ("right", 6)):
        run = Run(write_run(root, name, dim=dim))
        for step in run.steps:
            stored_projection(run, step, PCA)
    return root


@pytest.fixture
def compared(page, app, root):
    """The page with both pictures drawn."""
    page.set_default_timeout(PATIENCE)
    page.goto(f"{app(root)}/compare?run=left&a=left&b=right&method=PCA")
    page.locator("[data-colour='class']").wait_for()
    page.locator("[data-test-script-state=notRunning]").wait_for()
    page.locator(".moco-explorer .frame").nth(1).wait_for()
    page.locator(".moco-explorer").evaluate("explorer => explorer.scrollIntoView({ block: 'center' })")
    return page


def on_screen(page, pane):
    """Where the samples of a pane lie on the page, N×2, in the order of the evaluation set."""
    return np.array(
        page.evaluate(
            """pane => {
              const plot = document.querySelector('.moco-explorer .plot');
              const n = pane ? pane + 1 : '';
              const { [`xaxis${n}`]: xaxis, [`yaxis${n}`]: yaxis } = plot._fullLayout;
              const box = plot.getBoundingClientRect();
              const { x, y } = plot._fullData.find(trace => trace.xaxis === `x${n}`);
              return Array.from(x, (value, i) => [
                box.left + xaxis._offset + xaxis.l2p(value), box.top + yaxis._offset + yaxis.l2p(y[i])]);
            }""",
            pane,
        )
    )


def chosen(page, pane):
    return page.evaluate(
        """pane => {
          const plot = document.querySelector('.moco-explorer .plot');
          const rows = plot._fullData.find(trace => trace.xaxis === (pane ? 'x2' : 'x')).selectedpoints;
          return rows ? [...rows].sort((a, b) => a - b) : null;
        }""",
        pane,
    )


def test_a_lasso_on_the_left_selects_the_same_samples_on_the_right(compared):
    page = compared
    flat = on_screen(page, 0)
    (left, top), (_, bottom) = flat.min(0) - 8, flat.max(0) + 8
    middle = np.sort(flat[:, 0])[19:21].mean()
    rows = np.flatnonzero(flat[:, 0] < middle).tolist()
    corners = [(left, top), (middle, top), (middle, bottom), (left, bottom), (left, top)]
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*corner, steps=6)
    page.mouse.up()
    page.get_by_text(f"Selected: {len(rows)}").wait_for()
    assert_soon(lambda: [chosen(page, 0), chosen(page, 1)], [rows, rows])
    assert (
        len({tuple(np.round(p)) for p in on_screen(page, 1) - on_screen(page, 0)}) > 5
    )  # two pictures, not one


def test_pointing_on_the_right_rings_the_same_sample_on_the_left(compared):
    page = compared
    flat = on_screen(page, 1)
    gaps = np.linalg.norm(flat[:, None] - flat[None], axis=2) + 1e9 * np.eye(len(flat))
    row = int(gaps.min(1).argmax())  # the loneliest point: no other one under the pointer
    page.mouse.move(*flat[row] - 3)
    page.mouse.move(*flat[row])
    page.locator(".moco-explorer .tip").wait_for()
    rings = page.locator(".moco-explorer .ring")
    rings.nth(0).wait_for()
    box = rings.nth(0).bounding_box()
    middle = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
    np.testing.assert_allclose(middle, on_screen(page, 0)[row], atol=1)
    assert not rings.nth(1).is_visible()  # the pointer is there
    page.mouse.move(5, 5)
    rings.nth(0).wait_for(state="hidden")


def test_a_link_opens_the_same_view(page, app, root):
    page.set_default_timeout(PATIENCE)
    page.goto(f"{app(root)}/compare?run=left&a=right&b=left&a_step=10&method=PCA&k=7")
    page.get_by_text(re.compile("its 7 nearest neighbours")).wait_for()
    page.get_by_text("A: right, step 10").wait_for()
    page.get_by_text("B: left, step 20").wait_for()
