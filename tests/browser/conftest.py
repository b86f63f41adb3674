"""The app in a real browser: servers by runs root, pages that note every request and every script error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser.server import BROWSER_FLAGS, BROWSERS, REPOSITORY, Server, browser_path

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
sync_api.expect.set_options(timeout=60_000)  # milliseconds, for two cores that several browsers share

__all__ = ["REPOSITORY"]
OUR_FRAME = re.compile(rf'File "{re.escape(str(REPOSITORY))}/(app\.py|pages/|moco_core/)')  # of a traceback


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test below this folder drives a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[sync_api.Browser]:
    """One browser for all tests; without one they are skipped, but never where `CI` is set."""
    path = browser_path()
    if path is None:
        message = f"no browser found; install one of {', '.join(BROWSERS)}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], str]]:
    """`app(root)` serves the runs below `root` and returns the address; one server a root and module.

    No server may have logged a traceback through our own code when the module ends. (Streamlit logs one of its
    own when a browser leaves at the moment at which it is greeted.)
    """
    servers: dict[Path, Server] = {}

    def serve(root: Path) -> str:
        if root not in servers:
            servers[root] = Server(
                root, tmp_path_factory.mktemp("server") / "log.txt", {"OMP_NUM_THREADS": "1"}
            )
        return servers[root].url

    yield serve
    for server in servers.values():
        server.stop()
    for server in servers.values():
        assert not OUR_FRAME.search(server.log.read_text()), server.log.read_text()


@pytest.fixture
def page(browser: sync_api.Browser) -> Iterator[sync_api.Page]:
    """A fresh page. At the end no request may have left the app's host, and no script may have failed."""
    yield from _watched(browser, "light")


@pytest.fixture
def dark_page(browser: sync_api.Browser) -> Iterator[sync_api.Page]:
    """`page` for someone whose system is dark."""
    yield from _watched(browser, "dark")


def _watched(browser: sync_api.Browser, scheme: str) -> Iterator[sync_api.Page]:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(30_000)
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("websocket", lambda socket: requests.append(socket.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    own = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:http://127.0.0.1:", "about:")
    assert [url for url in requests if not url.startswith(own)] == []
    assert errors == []
