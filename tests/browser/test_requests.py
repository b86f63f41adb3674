"""No page asks anything of another host: the `page` fixture notes every request and checks them at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import REPOSITORY
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
