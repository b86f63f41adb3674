"""Narrow windows: a small one beside the sidebar (800 px) and a phone (390 px). Nothing is cut or squeezed."""

from __future__ import annotations

import pytest

from tests.browser.waiting import assert_soon
from tests.stale_runs import write_stale_run

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PATIENCE = 120_000  # milliseconds, for two cores that several browsers share
CUT = """nodes => nodes.filter(n => n.scrollWidth > n.clientWidth + 1).map(n => n.textContent)"""
BOXES = """nodes => nodes.map(n => n.getBoundingClientRect()).map(b => [b.left, b.bottom, b.width])"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for momentum in (0.9, 0.99):
        write_stale_run(root, f"momentum {momentum}", momentum=momentum, sweep="momentum")
    return root


@pytest.fixture
def opened(page, app, root):
    """`opened(path, width)` opens a page in a window of that width, once its first chart is there."""
    page.set_default_timeout(PATIENCE)

    def visit(path, width):
        page.set_viewport_size({"width": width, "height": 1000})
        page.goto(app(root) + path)
        page.locator(".moco-chart[data-drawn]").first.wait_for()
        return page

    return visit


def test_numbers_and_their_names_are_not_cut(opened):
    page = opened("/queue", 800)
    numbers = page.locator("[data-testid=stMetric]")
    assert_soon(numbers.count, 5)
    parts = page.locator("[data-testid=stMetric] p, [data-testid=stMetricValue] *")
    assert_soon(lambda: parts.evaluate_all(CUT), [])


def test_charts_side_by_side_go_below_each_other(opened):
    for width, columns in ((1440, 2), (800, 1)):
        page = opened("/queue", width)
        charts = page.locator("[data-testid=stColumn] .moco-chart")
        assert_soon(charts.count, 6)
        boxes = charts.evaluate_all(BOXES)
        assert len({round(left) for left, _, _ in boxes}) == columns
        assert min(wide for _, _, wide in boxes) > 280


def test_names_of_axes_side_by_side_do_not_touch(opened):
    page = opened("/geometry", 390)
    page.get_by_role("heading", name="Class by class").scroll_into_view_if_needed()
    chart = page.locator(".moco-chart", has=page.locator(".x2title"))
    first, second = (chart.locator(name).bounding_box() for name in (".xtitle", ".x2title"))
    assert first["x"] + first["width"] + 4 <= second["x"]


def test_a_choice_is_seen_whole(opened):
    page = opened("/geometry", 800)
    choice = page.locator("[data-testid=stColumn] [data-testid=stButtonGroup]")
    choice.wait_for()
    assert choice.locator("button").count() == 2
    edge = choice.bounding_box()
    last = choice.locator("button").last.bounding_box()
    assert last["x"] + last["width"] <= edge["x"] + edge["width"] + 1
    assert choice.evaluate_all(CUT) == []


def test_pictures_stand_level_and_one_below_the_other_on_a_phone(opened):
    for width, columns in ((1440, 2), (390, 1)):
        page = opened("/compare", width)
        plots = page.locator(".moco-explorer .frame")
        assert_soon(plots.count, 2)
        boxes = plots.evaluate_all(BOXES)
        assert len({round(left) for left, _, _ in boxes}) == columns
        assert len({round(bottom) for _, bottom, _ in boxes}) == 3 - columns
        assert min(wide for _, _, wide in boxes) > 240


def test_small_charts_in_a_row_are_scrolled_sideways_on_a_phone(opened):
    page = opened("/momentum", 390)
    row = page.locator(".moco-chart").first
    assert row.evaluate("n => n.scrollWidth > n.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    main = page.locator("[data-testid=stMain]")
    assert main.evaluate("n => n.scrollWidth <= n.clientWidth")


def test_the_table_of_runs_shows_every_column_beside_the_sidebar(opened):
    page = opened("/", 1440)
    heads = page.locator("[data-testid=stDataFrame] [role=columnheader]")
    assert_soon(lambda: heads.last.text_content(), "Loss curve")
