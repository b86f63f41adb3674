"""Charts in a real browser: drawn without being scrolled to, kept as they were left, in the colours of the theme."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.browser.waiting import assert_soon
from tests.synthetic import write_run

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PATIENCE = 120_000  # milliseconds, for two cores that several browsers share


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write_run(root, "one", samples=90, classes=3)
    return root


@pytest.fixture
def geometry(page, app, root):
    page.set_default_timeout(PATIENCE)
    page.goto(f"{app(root)}/geometry?run=one")
    page.locator(".st-key-spectrum .moco-chart[data-drawn]").wait_for()
    return page


def layout(page, chart, read):
    """Something of a chart's full layout `l`."""
    return page.evaluate(
        f"l => ({read})(document.querySelector('.st-key-{chart} .js-plotly-plot')._fullLayout)"
    )


def test_charts_far_below_are_drawn_in_idle_moments(geometry):
    undrawn = geometry.locator(".moco-chart:not([data-drawn])")
    assert_soon(undrawn.count, 0)
    assert geometry.locator(".moco-chart[data-drawn] .main-svg").count() >= 5
    assert geometry.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == 0


def test_zoom_stays_when_the_step_changes(geometry):
    plot = geometry.locator(".st-key-spectrum .js-plotly-plot")
    plot.evaluate("plot => plot.scrollIntoView({ block: 'center' })")
    before = layout(geometry, "spectrum", "l => l.xaxis.range")
    box = plot.locator(".nsewdrag").first.bounding_box()
    x, y = box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"]
    geometry.mouse.move(x, y)
    geometry.mouse.down()
    geometry.mouse.move(x + 0.3 * box["width"], y + 0.4 * box["height"], steps=6)
    geometry.mouse.up()
    zoomed = layout(geometry, "spectrum", "l => l.xaxis.range")
    assert before[0] < zoomed[0] < zoomed[1] < before[1]
    drawn = "l => JSON.stringify(document.querySelector('.st-key-spectrum .js-plotly-plot').data[0].y)"
    first = layout(geometry, "spectrum", drawn)
    geometry.get_by_role("slider", name="Step").first.focus()
    geometry.keyboard.press("ArrowLeft")
    assert_soon(lambda: layout(geometry, "spectrum", drawn) != first, True)
    assert layout(geometry, "spectrum", "l => l.xaxis.range") == zoomed


def test_colours_follow_the_theme(page, app, root):
    page.set_default_timeout(PATIENCE)
    seen = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{app(root)}/geometry?run=one")
        page.locator(".st-key-spectrum .moco-chart[data-drawn]").wait_for()
        seen.append(layout(page, "spectrum", "l => l.font.color"))
    light, dark = (sum(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in seen)
    assert light < 300 < 450 < dark


def saved_picture(page, chart):
    """The PNG that a chart's mode bar gives."""
    plot = page.locator(f".st-key-{chart} .js-plotly-plot")
    plot.evaluate("plot => plot.scrollIntoView({ block: 'center' })")
    plot.hover()
    with page.expect_download() as saved:
        plot.locator("[data-title^='Download']").click()
    return saved.value


def test_a_picture_is_named_after_the_step_that_it_shows(geometry):
    assert saved_picture(geometry, "spectrum").suggested_filename == "moco-lens-spectrum-one-step-20.png"
    geometry.get_by_role("slider", name="Step").first.focus()
    geometry.keyboard.press("ArrowLeft")
    geometry.wait_for_url("**step=10**")
    geometry.locator("[data-test-script-state=notRunning]").wait_for()
    assert saved_picture(geometry, "spectrum").suggested_filename == "moco-lens-spectrum-one-step-10.png"


def test_a_picture_stands_on_the_ground_of_the_page(dark_page, app, root):
    dark_page.set_default_timeout(PATIENCE)
    dark_page.goto(f"{app(root)}/geometry?run=one")
    dark_page.locator(".st-key-spectrum .moco-chart[data-drawn]").wait_for()
    corner = Image.open(saved_picture(dark_page, "spectrum").path()).convert("RGBA").getpixel((2, 2))
    ground = dark_page.locator("[data-testid=stApp]").evaluate("app => getComputedStyle(app).backgroundColor")
    assert corner == (*map(int, ground.removeprefix("rgb(").rstrip(")").split(",")), 255)


def test_letters_of_a_picture_have_the_room_that_they_were_given(geometry):
    """An image is drawn without the page's font: what was measured in it is cut at the legend's end."""
    geometry.evaluate(
        """() => {
          const save = Plotly.downloadImage;
          Plotly.downloadImage = (figure, options) => {
            globalThis.font = figure.layout.font.family;
            return save(figure, options);
          };
        }"""
    )
    saved_picture(geometry, "spectrum")
    assert geometry.evaluate("globalThis.font") == "sans-serif"


def test_a_browser_without_plotly_says_so(page, app, root):
    page.set_default_timeout(PATIENCE)
    page.route("**/plotly.min.js*", lambda route: route.abort())
    page.goto(f"{app(root)}/geometry?run=one")
    page.get_by_text("The chart can't be drawn: plotly.js did not load.").first.wait_for()
