"""Every page by its own address: framed by the app, even as a server's first, and nothing asked of another host."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import plotly
import pytest

from tests.browser.conftest import REPOSITORY
from tests.browser.server import APP, Server, Serving, free_port
from tests.synthetic import write_run

PAGES = sorted(path.stem for path in (REPOSITORY / "pages").glob("*.py"))


@pytest.fixture(scope="module")
def address(app, tmp_path_factory) -> str:
    root: Path = tmp_path_factory.mktemp("runs")
    for momentum in (0.9, 0.99):
        write_run(root, f"m={momentum}", momentum=momentum, sweep="momenta")
    write_run(root, "digits in 3-D", dim=3)
    return app(root)


@pytest.mark.parametrize("name", PAGES)
def test_page(page, address, name):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/{name}")
    page.locator("[data-testid=stMain] h1").first.wait_for()
    page.locator("[data-test-script-state=notRunning]").wait_for()
    page.wait_for_timeout(1500)
    assert asked
    assert all(url.startswith((address, f"blob:{address}", "data:")) for url in asked)


@pytest.mark.parametrize("name", ["sphere", "geometry"])
def test_a_link_may_be_the_first_that_a_server_is_asked_for(page, tmp_path, name):
    write_run(tmp_path / "runs")
    server = Server(tmp_path / "runs", tmp_path / "log.txt", {})
    try:
        page.goto(f"{server.url}/{name}?run=synthetic")
        page.locator("[data-testid=stMain] h1").first.wait_for()
        page.get_by_test_id("stSidebar").get_by_role("link", name="Projection").wait_for()
        assert f"/{name}" in page.url
    finally:
        server.stop()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_no_temporary_file_outlives_the_app(page, tmp_path, name):
    write_run(tmp_path / "runs")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    handed_down = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under `nohup`, that it is ignored
    server = Server(tmp_path / "runs", tmp_path / "log.txt", {"TMPDIR": str(temporary)})
    signal.signal(signal.SIGHUP, handed_down)
    try:
        page.goto(f"{server.url}/projection")
        page.locator(".moco-explorer[data-colour]").wait_for()
        assert list(temporary.iterdir())
        server.process.send_signal(getattr(signal, name))
        server.process.wait(30)
        assert not list(temporary.iterdir())
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop()


def test_a_browser_may_keep_plotly(page, address):
    with page.expect_response("**/plotly.min.js?*") as answer:
        page.goto(f"{address}/geometry")
    assert answer.value.status == 200
    assert "immutable" in answer.value.headers["cache-control"]
    installed = Path(plotly.__file__).parent / "package_data/plotly.min.js"
    assert answer.value.body().endswith(installed.read_bytes())


def test_an_app_below_a_folder_of_its_host(page, tmp_path):
    write_run(tmp_path / "runs")
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(APP), "--server.port", str(port)]
    server = Serving(
        [*command, "--server.baseUrlPath", "lens"],
        f"http://127.0.0.1:{port}/lens",
        "/_stcore/health",
        tmp_path / "log.txt",
        {"MOCO_RUNS": str(tmp_path / "runs")},
    )
    try:
        with page.expect_response("**/drawn/*") as told:  # the first picture is there
            page.goto(f"{server.url}/geometry")
        assert told.value.status == 204
        page.locator(".moco-chart[data-drawn]").first.wait_for()
    finally:
        server.stop()
