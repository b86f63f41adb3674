"""The projection page in a real browser: what is pointed at, lassoed, clicked, recoloured and turned."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from moco_core.dashboard.palette import CLASS_COLOURS
from moco_core.projections import ProjectionSettings, stored_projection
from moco_core.runs import Run
from tests.browser.waiting import assert_soon
from tests.synthetic import write_run

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect

NO_WEBGL = """
const real = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
  return /webgl/.test(kind) ? null : real.call(this, kind, ...rest);
};
"""
NO_PLOTLY = "Object.defineProperty(globalThis, 'Plotly', { get: () => undefined, set: () => {} });"
PCA = ProjectionSettings(method="pca")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    run = Run(write_run(root, "marked <i>up</i>", class_names=("<b>bold</b>", "cat & dog", "cow", "emu")))
    for step in run.steps:
        stored_projection(run, step, PCA)
    big = Run(write_run(root, "big", samples=15_000, classes=3, steps=(0, 20)))
    stored_projection(big, big.steps[-1], PCA)
    return root


@pytest.fixture(scope="module")
def run(root):
    return next(Run(path) for path in root.iterdir() if path.name.startswith("marked"))


@pytest.fixture(scope="module")
def address(app, root):
    return app(root)


def open_page(page, address, run, query="", colour="class"):
    page.goto(f"{address}/projection?run={run.id}&method=PCA{query}")
    page.locator(f"[data-colour='{colour}']").wait_for()
    page.locator("[data-test-script-state=notRunning]").wait_for()
    return page


def to_screen(page, points):
    """Where data coordinates lie on the page, M×2."""
    return np.array(
        page.evaluate(
            """points => {
              const plot = document.querySelector('.moco-explorer .plot');
              const { xaxis, yaxis } = plot._fullLayout;
              const box = plot.getBoundingClientRect();
              return points.map(([x, y]) => [
                box.left + xaxis._offset + xaxis.l2p(x), box.top + yaxis._offset + yaxis.l2p(y)]);
            }""",
            np.asarray(points, float).tolist(),
        )
    )


def lasso(page, corners):
    page.mouse.move(*corners[0])
    page.mouse.down()
    for x, y in [*corners[1:], corners[0]]:
        page.mouse.move(x, y, steps=6)
    page.mouse.up()


def inside(points, corners):
    """Whether points lie in a polygon: an odd number of edges to their right."""
    crossings = np.zeros(len(points), int)
    for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
        between = (points[:, 1] < y0) != (points[:, 1] < y1)
        with np.errstate(divide="ignore", invalid="ignore"):
            at = x0 + (points[:, 1] - y0) / (y1 - y0) * (x1 - x0)
        crossings += between & (points[:, 0] < at)
    return crossings % 2 == 1


def lasso_left_half(page, run):
    """Lasso about half of the samples of the newest step; their rows."""
    flat = to_screen(page, stored_projection(run, run.steps[-1], PCA).coordinates[0])
    (left, top), (right, bottom) = flat.min(0) - 8, flat.max(0) + 8
    middle = np.sort(flat[:, 0])[29:31].mean()
    corners = [(left, top), (middle, top), (middle, bottom), (left, bottom)]
    lasso(page, corners)
    rows = np.flatnonzero(inside(flat, corners))
    assert 20 <= len(rows) <= 40
    assert right > middle
    return rows


def chosen(page):
    """Rows that the picture itself shows as selected."""
    return page.evaluate(
        """() => {
          const plot = document.querySelector('.moco-explorer .plot');
          const rows = plot._fullData[0].selectedpoints;
          return rows ? [...rows].sort((a, b) => a - b) : null;
        }"""
    )


def test_pointing_shows_the_thumbnail_itself(page, address, run):
    open_page(page, address, run)
    images = run.eval_set
    flat = to_screen(page, stored_projection(run, run.steps[-1], PCA).coordinates[0])
    gaps = np.linalg.norm(flat[:, None] - flat[None], axis=2) + 1e9 * np.eye(len(flat))
    row = int(gaps.min(1).argmax())  # the loneliest point: no other one under the pointer
    page.mouse.move(*flat[row] - 3)
    page.mouse.move(*flat[row])
    tip = page.locator(".moco-explorer .tip")
    expect(tip).to_be_visible()
    expect(tip).to_contain_text(f"#{images.sample_ids[row]}")
    expect(tip).to_contain_text(images.name_of(images.labels[row]))
    url = page.evaluate("document.querySelector('.moco-explorer .tip canvas').toDataURL()")
    drawn = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("L"))
    np.testing.assert_array_equal(drawn[6::12, 6::12], images.thumbnails[row, ..., 0])


def test_a_lasso_fills_the_gallery_with_what_it_holds(page, address, run):
    open_page(page, address, run)
    rows = lasso_left_half(page, run)
    expect(page.get_by_role("heading", name=f"Selected: {len(rows)}")).to_be_visible()
    assert_soon(lambda: chosen(page), rows.tolist())
    cards = page.locator(".gallery > div > figure:first-child")
    assert_soon(
        lambda: [int(title.rpartition("#")[2]) for title in cards.evaluate_all("f => f.map(x => x.title)")],
        run.eval_set.sample_ids[rows[:12]].tolist(),
    )


def test_selection_and_zoom_survive_colour_and_step(page, address, run):
    open_page(page, address, run)
    rows = lasso_left_half(page, run)
    page.get_by_role("heading", name=f"Selected: {len(rows)}").wait_for()
    page.locator(".moco-explorer .modebar-btn[data-val=zoom]").click()
    box = page.locator(".moco-explorer .plot").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 400, steps=6)
    page.mouse.up()
    ranges = "document.querySelector('.moco-explorer .plot')._fullLayout.xaxis.range"
    zoomed = page.evaluate(ranges)
    flat = stored_projection(run, run.steps[-1], PCA).coordinates[0]
    assert zoomed[1] - zoomed[0] < 0.7 * np.ptp(flat[:, 0])

    def choose_colour(name):
        page.get_by_role("combobox", name=re.compile("Colour")).click()
        page.get_by_role("option", name=name).click()
        page.locator(f"[data-colour='{name}']").wait_for()

    choose_colour("local density")
    assert_soon(lambda: chosen(page), rows.tolist())
    assert_soon(lambda: page.evaluate(ranges), zoomed)
    page.get_by_role("slider", name="Step").press("ArrowLeft")
    page.wait_for_url("**step=10**")
    expect(page.get_by_role("heading", name=f"Selected: {len(rows)}")).to_be_visible()
    page.wait_for_timeout(1200)  # the points are on their way
    assert_soon(lambda: chosen(page), rows.tolist())
    assert_soon(lambda: page.evaluate(ranges), zoomed)


def test_the_camera_survives_a_new_colour(page, address, run):
    open_page(page, address, run, "&dim=3-D")
    plot = "document.querySelector('.moco-explorer .plot')"
    camera = f"Object.values({plot}._fullLayout.scene._scene.getCamera().eye).map(x => x.toFixed(3)).join()"
    at_first = page.evaluate(camera)
    box = page.locator(".moco-explorer .plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 150, box["y"] + box["height"] / 2 + 40, steps=8)
    page.mouse.up()
    page.wait_for_function(f"{camera} !== {at_first!r}")
    turned = page.evaluate(camera)
    page.get_by_role("combobox", name=re.compile("Colour")).click()
    page.get_by_role("option", name="cosine to own key").click()
    page.locator("[data-colour='cosine to own key']").wait_for()
    assert_soon(lambda: page.evaluate(camera), turned)


def test_a_click_shows_the_neighbours_in_the_full_space(page, address, run):
    open_page(page, address, run)
    step = run.steps[-1]
    flat = to_screen(page, stored_projection(run, step, PCA).coordinates[0])
    row = int((np.linalg.norm(flat[:, None] - flat[None], axis=2) + 1e9 * np.eye(len(flat))).min(1).argmax())
    heading = page.get_by_role("heading", name=re.compile(f"Clicked: .*#{run.eval_set.sample_ids[row]}"))

    def click() -> bool:
        """Once more where a browser that is still drawing has lost the last one, as a hand would."""
        page.mouse.move(*flat[row] - 3)
        page.mouse.move(*flat[row])
        page.wait_for_timeout(1000)
        page.mouse.down()
        page.mouse.up()
        page.wait_for_timeout(3000)
        return heading.is_visible()

    assert_soon(click, True, seconds=60)
    figures = page.locator(".gallery figure")
    expect(figures.nth(1)).to_be_visible()
    page.locator("[data-test-script-state=notRunning]").wait_for()
    neighbours = figures.count() - 1
    cosines = np.sort(np.delete(step.query @ step.query[row], row))[::-1][:neighbours]
    assert_soon(
        lambda: [
            float(re.search(r"cosine ([\d.]+)", text)[1])
            for text in figures.evaluate_all("f => f.slice(1).map(x => x.innerText)")
        ],
        pytest.approx(cosines.tolist(), abs=6e-4),
    )
    links = "document.querySelector('.moco-explorer .plot').data.at(-2).x.length"
    assert_soon(lambda: page.evaluate(links), 3 * neighbours)


def test_a_class_in_the_legend_selects_it_and_names_are_text(page, address, run):
    open_page(page, address, run)
    page.get_by_role("button", name="<b>bold</b>").click()
    page.get_by_role("heading", name="Selected: 15").wait_for()
    assert_soon(lambda: chosen(page), np.flatnonzero(run.eval_set.labels == 0).tolist())
    assert page.locator(".moco-explorer b").count() == 0  # the tip is empty
    page.get_by_role("button", name=re.compile("cat & dog")).click(modifiers=["Shift"])
    page.get_by_role("heading", name="Selected: 30").wait_for()


def test_a_new_colour_moves_only_colours(page, address, root):
    received: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.append(len(data))))
    big = next(Run(path) for path in root.iterdir() if path.name == "big")
    open_page(page, address, big)
    assert page.locator(".moco-explorer .gl-canvas").count() > 0
    received.clear()
    page.get_by_role("combobox", name=re.compile("Colour")).click()
    page.get_by_role("option", name="local density").click()
    page.locator("[data-colour='local density']").wait_for()
    assert sum(received) < 130_000  # 15,000 points: 4 bytes each, and the page's words


def test_a_lasso_among_many_points_takes_those_it_holds_in_any_colour(page, address, root):
    big = next(Run(path) for path in root.iterdir() if path.name == "big")
    open_page(page, address, big)
    labels = big.eval_set.labels
    for colour in ("local density", "class"):
        page.get_by_role("combobox", name=re.compile("Colour")).click()
        page.get_by_role("option", name=colour, exact=True).click()
        page.locator(f"[data-colour='{colour}']").wait_for()
    drawn = page.evaluate(
        """() => document.querySelector('.moco-explorer .plot').data
            .filter(trace => trace.type === 'scattergl').map(trace => [trace.marker.color, trace.x.length])"""
    )
    thirds = [labels[start : start + 5000] for start in (0, 5000, 10_000)]  # each colour in three rounds
    expected = [(CLASS_COLOURS[c], int((third == c).sum())) for third in thirds for c in (0, 1, 2)]
    assert sorted(map(tuple, drawn)) == sorted(expected)
    flat = to_screen(page, stored_projection(big, big.steps[-1], PCA).coordinates[0])
    (left, top), (_, bottom) = flat.min(0) - 8, flat.max(0) + 8
    middle = np.sort(flat[:, 0])[4999:5001].mean()  # in the gap between two classes: no point on the line
    corners = [(left, top), (middle, top), (middle, bottom), (left, bottom)]
    lasso(page, corners)
    rows = np.flatnonzero(inside(flat, corners))
    assert len(rows) > 4000
    expect(page.get_by_role("heading", name=f"Selected: {len(rows):,}")).to_be_visible(timeout=30_000)
    cards = page.locator(".gallery > div > figure:first-child")
    assert_soon(
        lambda: [int(title.rpartition("#")[2]) for title in cards.evaluate_all("f => f.map(x => x.title)")],
        big.eval_set.sample_ids[rows[:12]].tolist(),
    )


def test_without_webgl_a_sample_is_drawn_and_said(page, address, root):
    page.add_init_script(NO_WEBGL)
    big = next(Run(path) for path in root.iterdir() if path.name == "big")
    open_page(page, address, big)
    expect(page.get_by_text("one in 3 of 15,000 points is drawn")).to_be_visible()
    assert page.evaluate("document.querySelector('.moco-explorer .plot').data[0].x.length") == 5000
    page.get_by_text("3-D", exact=True).click()
    expect(page.get_by_text("which a 3-D picture needs")).to_be_visible()


def test_without_plotly_there_are_words(browser, address, run):
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(NO_PLOTLY)
    page.goto(f"{address}/projection?run={run.id}&method=PCA")
    expect(page.get_by_text("plotly.js did not load")).to_be_visible(timeout=30_000)
    context.close()


def test_downloads(page, address, run):
    open_page(page, address, run)
    with page.expect_download() as picture:
        page.get_by_title("Download the picture (PNG)").or_(
            page.locator("[data-title='Download the picture (PNG)']")
        ).first.click()
    image = Image.open(picture.value.path())
    assert image.format == "PNG"
    assert image.width > 1000
    page.get_by_role("button", name="Download", exact=True).click()
    with page.expect_download() as table:
        page.get_by_role("button", name="CSV").click()
    assert table.value.path().read_text().count("\n") == 61
    with page.expect_download() as figure:
        page.get_by_role("button", name="HTML").click()
    text = figure.value.path().read_text()
    assert "cdn.plot.ly" not in text.partition("plotly.js v")[0]
    assert "<script src" not in text
    with page.expect_download() as vectors:
        page.get_by_role("button", name="Vectors").click()
    assert vectors.value.suggested_filename.endswith(".parquet")
    frame = pd.read_parquet(vectors.value.path())
    np.testing.assert_array_equal(np.stack(frame["query"]), run.steps[-1].query)


def test_dark(dark_page, address, run):
    open_page(dark_page, address, run)
    colour = dark_page.evaluate("document.querySelector('.moco-explorer .plot').layout.font.color")
    assert min(int(colour[i : i + 2], 16) for i in (1, 3, 5)) > 180


def test_aligned_steps_play_and_leave_the_page_at_the_last(page, address, run):
    aligned = stored_projection(run, run.steps[-1], ProjectionSettings(method="pca", aligned="steps"))
    open_page(page, address, run, "&aligned=other+steps&step=0")
    place = "() => [...document.querySelector('.moco-explorer .plot').data[0].x]"
    np.testing.assert_allclose(page.evaluate(place), aligned.coordinates[0, :, 0], atol=1e-5)
    page.get_by_role("button", name="Play").click()
    page.locator("[data-frame='2']").wait_for()
    expect(page.get_by_role("slider", name="Step")).to_have_attribute("aria-valuetext", "20")
    np.testing.assert_allclose(page.evaluate(place), aligned.coordinates[2, :, 0], atol=1e-5)
    expect(page.get_by_text(f"Trustworthiness {aligned.trustworthiness[2]:.3f}")).to_be_visible()
