"""The sphere in a real browser: it runs, turns, zooms, names its points, and keeps its frame rate."""

from __future__ import annotations

import base64
import io
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image

from tests.browser.waiting import assert_soon
from tests.synthetic import write_run

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = sync_api.expect


@pytest.fixture(scope="module")
def address(app, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    write_run(root, "digits in 3-D", dim=3, samples=120)
    return app(root)


@pytest.fixture
def sphere(page, address):
    return open_sphere(page, address)


def open_sphere(page, address, query=""):
    page.goto(f"{address}/sphere{query}")
    page.get_by_role("heading", name="MoCo on a sphere").wait_for()
    page.locator("canvas[data-frames]").first.wait_for()
    return page


def canvas(page, number=0):
    return page.locator("canvas[data-frames]").nth(number)


def view(page, number=0) -> tuple[float, ...]:
    """Yaw, pitch and zoom of one of the spheres."""
    return tuple(float(x) for x in canvas(page, number).get_attribute("data-view").split())


def readout(page, label, number=0) -> str:
    metric = page.get_by_test_id("stMetric").filter(has_text=label).nth(number)
    return metric.get_by_test_id("stMetricValue").inner_text().replace(",", "")


def steps(page) -> int:
    return int(readout(page, "Training steps"))


def wait_for(page, condition, seconds=60):
    """Until `condition()` holds; what the browser shows lags behind what was asked for."""
    for _ in range(seconds * 10):
        if condition():
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"still not so after {seconds} s")


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def middle(page, number=0):
    canvas(page, number).scroll_into_view_if_needed()
    box = canvas(page, number).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def pixels(page) -> np.ndarray:
    data = canvas(page).evaluate("canvas => canvas.toDataURL()")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data.split(",")[1]))))


def test_run_changes_the_readouts_and_pause_stops_them(sphere):
    assert (readout(sphere, "InfoNCE loss"), readout(sphere, "Mean negative cosine")) == ("—", "—")
    press(sphere, "Run")
    wait_for(sphere, lambda: steps(sphere) > 20)
    loss = readout(sphere, "InfoNCE loss")
    assert 0 < float(loss) < 5
    wait_for(sphere, lambda: readout(sphere, "InfoNCE loss") != loss)
    paused = sphere.get_by_role("button", name="Run", exact=True)

    def pause() -> bool:
        """Once more where a browser that is drawing has lost the last click, as a hand would."""
        if not paused.is_visible():
            press(sphere, "Pause")
            sphere.wait_for_timeout(3000)
        return paused.is_visible()

    assert_soon(pause, True, seconds=60)
    stopped = None
    while stopped != steps(sphere):  # the last ones may still be on their way to the page
        stopped = steps(sphere)
        sphere.wait_for_timeout(1000)
    press(sphere, "Step")
    wait_for(sphere, lambda: steps(sphere) == stopped + 1)


def test_sliders_act_while_it_runs(sphere):
    press(sphere, "Fast-forward 500 steps")
    wait_for(sphere, lambda: steps(sphere) >= 500)
    wait_for(sphere, lambda: canvas(sphere).get_attribute("data-points") == str(6 + 6 + 64))
    press(sphere, "Run")
    wait_for(sphere, lambda: steps(sphere) > 510)
    slider = sphere.get_by_role("slider", name="Queue size K")
    for _ in range(10):
        slider.press("ArrowLeft")
    wait_for(sphere, lambda: parse_qs(urlsplit(sphere.url).query).get("K") == ["54"])
    wait_for(sphere, lambda: canvas(sphere).get_attribute("data-points") == str(6 + 6 + 54))
    before = steps(sphere)
    assert before > 510  # no restart
    wait_for(sphere, lambda: steps(sphere) > before)


def test_a_lesson_is_one_click_and_its_link_opens_the_same(sphere, address):
    press(sphere, "m = 0: chasing your own tail")
    wait_for(sphere, lambda: steps(sphere) > 20)
    wait_for(sphere, lambda: readout(sphere, "Positive cosine") == "1.000")
    wait_for(sphere, lambda: parse_qs(urlsplit(sphere.url).query).get("m") == ["0"])
    open_sphere(sphere, address, "?" + urlsplit(sphere.url).query)
    expect(sphere.get_by_text("Each key is a copy of its query")).to_be_visible()


def test_keeps_30_frames_a_second_while_it_runs(sphere):
    press(sphere, "Run")
    wait_for(sphere, lambda: steps(sphere) > 20)
    wait_for(sphere, lambda: float(canvas(sphere).get_attribute("data-fps")) >= 30, seconds=120)
    frames = int(canvas(sphere).get_attribute("data-frames"))
    wait_for(sphere, lambda: int(canvas(sphere).get_attribute("data-frames")) > frames)


def test_drag_turns_it_while_it_runs(sphere):
    press(sphere, "Run")
    wait_for(sphere, lambda: steps(sphere) > 5)
    yaw, pitch, _ = view(sphere)
    x, y = middle(sphere)
    sphere.mouse.move(x, y)
    sphere.mouse.down()
    sphere.mouse.move(x + 90, y + 40, steps=6)
    sphere.mouse.up()
    wait_for(sphere, lambda: view(sphere)[0] > yaw + 0.2 and view(sphere)[1] > pitch + 0.1)
    turned = None
    while turned != view(sphere):  # the last frames of the drag may still be on their way
        turned = view(sphere)
        sphere.wait_for_timeout(1000)
    before = steps(sphere)
    wait_for(sphere, lambda: steps(sphere) > before + 20)
    assert view(sphere) == turned  # new positions leave the view alone


def test_wheel_and_keys(sphere):
    x, y = middle(sphere)
    sphere.mouse.move(x, y)
    sphere.mouse.wheel(0, -400)
    wait_for(sphere, lambda: view(sphere)[2] > 1.3)
    canvas(sphere).focus()
    yaw, pitch, zoom = view(sphere)
    sphere.keyboard.press("ArrowRight")
    sphere.keyboard.press("ArrowDown")
    sphere.keyboard.press("-")
    wait_for(sphere, lambda: view(sphere)[0] > yaw and view(sphere)[1] > pitch and view(sphere)[2] < zoom)
    sphere.keyboard.press("0")
    wait_for(sphere, lambda: view(sphere) == (0.6, 0.45, 1.0))


def test_fingers_turn_and_pinch(browser, address):
    context = browser.new_context(has_touch=True, viewport={"width": 900, "height": 1200})
    page = open_sphere(context.new_page(), address)
    page.set_default_timeout(30_000)
    x, y = middle(page)
    devtools = context.new_cdp_session(page)

    def touch(kind, *points):
        places = [{"x": px, "y": py, "id": i} for i, (px, py) in enumerate(points)]
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    yaw, _, zoom = view(page)
    touch("touchStart", (x, y))
    for i in range(1, 6):
        touch("touchMove", (x + 15 * i, y))
    touch("touchEnd")
    wait_for(page, lambda: view(page)[0] > yaw + 0.2)
    touch("touchStart", (x - 30, y), (x + 30, y))
    for i in range(1, 6):
        touch("touchMove", (x - 30 - 6 * i, y), (x + 30 + 6 * i, y))
    touch("touchEnd")
    wait_for(page, lambda: view(page)[2] > zoom * 1.3)
    context.close()


def test_hover_names_a_point_and_its_age(sphere):
    press(sphere, "Fast-forward 500 steps")
    wait_for(sphere, lambda: canvas(sphere).get_attribute("data-points") == str(6 + 6 + 64))
    sphere.wait_for_timeout(800)  # they glide to their places
    x, y = middle(sphere)
    radius = 0.43 * canvas(sphere).bounding_box()["height"]
    seen = set()
    for dx in np.linspace(-0.95, 0.95, 40):
        for dy in np.linspace(-0.95, 0.95, 40):
            if dx * dx + dy * dy < 1:
                sphere.mouse.move(x + dx * radius, y + dy * radius)
                tip = sphere.locator(".tip .what").first
                if tip.is_visible():
                    seen.add(tip.inner_text())
        if any("old" in name for name in seen) and any(name.startswith("Query q of class") for name in seen):
            break
    assert any(name.startswith("Query q of class ") for name in seen), seen
    assert any(name.startswith("Queued key of class ") and name.endswith(" old") for name in seen), seen


def test_two_spheres_turn_and_step_together(page, address):
    open_sphere(page, address, "?two=true&m2=0.5")
    expect(page.locator("canvas[data-frames]")).to_have_count(3)  # two spheres and the run in 3-D
    press(page, "Fast-forward 500 steps")
    wait_for(page, lambda: readout(page, "Training steps", 0) == readout(page, "Training steps", 1) == "500")
    canvas(page, 0).focus()
    page.keyboard.press("ArrowRight")
    wait_for(page, lambda: view(page, 0) == view(page, 1) != (0.6, 0.45, 1.0))
    assert view(page, 2) == (0.6, 0.45, 1.0)


def test_real_images_with_thumbnails(sphere):
    real = canvas(sphere, 1)
    real.scroll_into_view_if_needed()
    wait_for(sphere, lambda: real.get_attribute("data-points") == "120")
    tip = sphere.locator(".tip").last
    box = real.bounding_box()
    for dx in np.linspace(-0.8, 0.8, 60):
        sphere.mouse.move(
            box["x"] + box["width"] / 2 + dx * 0.4 * box["height"], box["y"] + box["height"] / 2
        )
        if tip.is_visible():
            break
    expect(tip).to_contain_text("class ")
    picture = tip.locator(".picture")
    assert picture.evaluate("node => getComputedStyle(node).backgroundImage").startswith(
        'url("data:image/png'
    )
    assert picture.bounding_box()["width"] >= 64


@pytest.mark.parametrize("scheme", ["page", "dark_page"])
def test_it_is_drawn_in_both_themes(scheme, address, request):
    page = open_sphere(request.getfixturevalue(scheme), address)
    press(page, "Fast-forward 500 steps")
    wait_for(page, lambda: canvas(page).get_attribute("data-points") == str(6 + 6 + 64))
    page.wait_for_timeout(800)  # they glide to their places
    drawn = pixels(page)
    ink = drawn[drawn[..., 3] > 0][:, :3]
    assert len(ink) > 10_000
    coloured = ink[ink.max(axis=1).astype(int) - ink.min(axis=1) > 100]
    assert len(coloured) > 500
    grey = ink[(ink.max(axis=1).astype(int) - ink.min(axis=1) < 30)]  # the globe, in the colour of the text
    assert (np.median(grey) > 128) == (scheme == "dark_page")


def test_says_so_without_a_canvas(page, address):
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    page.goto(f"{address}/sphere")
    expect(page.get_by_text("so the sphere can't be shown here").first).to_be_visible()
    press(page, "Step")
    wait_for(page, lambda: steps(page) == 1)
