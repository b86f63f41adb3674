"""Clicks into charts: a cell of the confusion matrix and a bar of the histogram open the images behind them."""

from __future__ import annotations

import numpy as np
import pytest

from moco_core.analysis.neighbors import knn_predict
from moco_core.dashboard import similarity_data, similarity_view
from moco_core.runs import Run
from tests.browser.waiting import assert_soon
from tests.synthetic import write_run

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PATIENCE = 120_000  # milliseconds, for two cores that several browsers share


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write_run(root, "mixed", samples=90, classes=3, dim=4, steps=(0,))
    write_run(root, "trained", samples=90, classes=3, dim=4)
    return root


def open_page(page, address, path):
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}/{path}")
    page.locator("[data-test-script-state=notRunning]").wait_for()


def click(page, chart, point, trace):
    """Click at data coordinates of a chart's trace, moving there first as a hand does."""
    plot = page.locator(f".st-key-{chart} .js-plotly-plot")
    plot.evaluate("plot => plot.scrollIntoView({ block: 'center' })")
    x, y = page.evaluate(
        """([chart, [x, y], trace]) => {
          const plot = document.querySelector(`.st-key-${chart} .js-plotly-plot`);
          const { xaxis, yaxis } = plot._fullData[trace];
          const layout = plot._fullLayout;
          const [across, up] = [layout[xaxis.replace('x', 'xaxis')], layout[yaxis.replace('y', 'yaxis')]];
          const box = plot.getBoundingClientRect();
          return [box.left + across._offset + across.d2p(x), box.top + up._offset + up.d2p(y)];
        }""",
        [chart, [float(value) for value in point], trace],
    )
    page.mouse.move(x - 2, y)
    page.mouse.move(x, y)
    plot.locator(".hoverlayer .hovertext").first.wait_for()
    page.mouse.click(x, y)


def settled(page, number):
    """Wait until the page has run to its end and the last gallery shows the sample with this id."""
    page.locator("[data-test-script-state=notRunning]").wait_for()
    page.locator(".gallery").last.locator(f"figure[title$='#{number}']").first.wait_for()


def ids(page):
    """Sample ids of the first card of each line of the last gallery."""
    titles = (
        page.locator(".gallery")
        .last.locator("> div > figure:first-child")
        .evaluate_all("f => f.map(x => x.title)")
    )
    return [int(title.rpartition("#")[2]) for title in titles]


def test_a_cell_of_the_confusion_matrix(page, app, root):
    run = Run(root / "mixed")
    images, query = run.eval_set, run.steps[-1].query
    votes = knn_predict(query, images.labels)
    expected = images.sample_ids[np.flatnonzero((images.labels == 1) & (votes == 2))]
    assert len(expected)
    open_page(page, app(root), "geometry?run=mixed")
    click(page, "confusion", (2.3, 1.25), 1)  # off the centre of row 1, column 2
    page.get_by_text(f"{len(expected)} samples, each followed by").wait_for()
    settled(page, expected[-1])
    assert_soon(lambda: ids(page), expected.tolist())
    assert "true=class+1" in page.url
    assert "vote=class+2" in page.url


def test_a_bar_of_the_histogram(page, app, root):
    run = Run(root / "trained")
    checkpoint = run.steps[-1]
    found = similarity_data.cosines(run, checkpoint, similarity_data.QUEUE).histograms()
    positive, *others = [h.counts / h.counts.sum() for h in found]
    bar = int((positive - np.max(others, axis=0)).argmax())  # the positives' bar that stands out most
    assert positive[bar] > 1.2 * max(other[bar] for other in others)
    low, high = similarity_data.edges()[bar : bar + 2]
    cosines = (checkpoint.query * checkpoint.second_view).sum(1)
    inside = np.flatnonzero((cosines >= low) & (cosines < high))
    expected = run.eval_set.sample_ids[inside[np.argsort(cosines[inside])]]
    open_page(page, app(root), "similarity?run=trained")
    click(page, "cosines", ((low + high) / 2, 0.95 * positive[bar]), 0)
    page.get_by_text("the least alike first").wait_for()
    settled(page, expected[-1])
    shown = page.locator(".gallery").last.locator("figure")
    assert_soon(
        lambda: [int(title.rpartition("#")[2]) for title in shown.evaluate_all("f => f.map(x => x.title)")],
        expected[: similarity_view.PAIRS].tolist(),
    )
    assert "pairs=positives" in page.url
