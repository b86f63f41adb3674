"""From a file on someone's desk to its picture, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from moco_core.runs import RunStore

N = 120
POINTS_DRAWN = """() => [...document.querySelectorAll(".js-plotly-plot")].some(
    plot => (plot.data || []).some(trace => trace.x && trace.x.length > 20))"""


@pytest.mark.timeout(600)
def test_a_dropped_file_is_drawn_and_its_points_have_names(
    page, app: Callable[[Path], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root, desk = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("desk")
    rng = np.random.default_rng(0)
    labels = np.arange(N) % 3
    values = rng.normal(size=(3, 8))[labels] * 3 + rng.normal(size=(N, 8))
    kinds = [("beast", "tool", "<i>dish</i>")[i] for i in labels]
    pd.DataFrame(values).assign(label=kinds, word=[f"<b>word</b> {i}" for i in range(N)]).to_csv(
        desk / "words.csv", index=False
    )
    page.set_default_timeout(120_000)
    page.goto(f"{app(root)}/import")
    page.locator("input[type=file]").first.set_input_files(desk / "words.csv")
    page.get_by_text("120 vectors of 8 dimensions").wait_for()
    page.get_by_text("Labels: 3 classes.").wait_for()
    page.get_by_role("button", name="Import").click()
    page.get_by_text("words is imported: 120 vectors.").wait_for()
    (run,) = RunStore(root)
    assert run.eval_set.names[5] == "<b>word</b> 5"

    page.get_by_test_id("stMain").get_by_role("link", name="Projection").click()
    page.get_by_role("heading", name="Projection").wait_for()
    assert "run=words" in page.url
    page.get_by_text("PCA", exact=True).click()
    page.wait_for_function(POINTS_DRAWN)
    plot = page.locator(".moco-explorer .plot").first
    plot.scroll_into_view_if_needed()
    point = plot.locator(".scatterlayer .point, .gl-container").first
    point.wait_for(state="attached")
    tip = page.locator(".moco-explorer .tip")
    name = tip.get_by_text("<b>word</b>")  # as it is, and no markup
    for _ in range(30):  # the points may still be moving under the pointer
        place = page.evaluate(
            """() => {
                const plot = document.querySelector(".moco-explorer .js-plotly-plot");
                const { xaxis, yaxis } = plot._fullLayout;
                const box = plot.getBoundingClientRect();
                const { x, y } = plot.data.find((trace) => trace.x && trace.x.length > 20);
                return [
                    box.left + xaxis._offset + xaxis.l2p(x[0]), box.top + yaxis._offset + yaxis.l2p(y[0]),
                ];
            }"""
        )
        page.mouse.move(place[0] - 30, place[1] - 30)
        page.mouse.move(*place, steps=5)
        page.wait_for_timeout(500)
        if name.is_visible():
            break
    name.wait_for()
    assert tip.locator("canvas").count() == 0
    assert tip.locator("i").count() == 0
