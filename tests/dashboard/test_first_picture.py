"""What lies below a page's first picture waits until that is drawn, once."""

from __future__ import annotations

import threading

import pytest
import streamlit as st
from starlette.routing import Match

from moco_core.dashboard import first_picture as module
from moco_core.dashboard.first_picture import NOBODY, drawn_route, first_picture, from_the_top


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "session_state", {})
    monkeypatch.setattr(module, "_awaited", None)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose browsers say nothing: whoever waits has waited in vain after a moment."""
    drawn_route("/")
    monkeypatch.setattr(module, "PATIENCE", 0.01)


def told(key: str) -> str:
    with first_picture(key) as address:
        return address


def test_nobody_waits_where_no_server_listens() -> None:
    from_the_top()
    assert told("a") == NOBODY


def test_only_the_first_picture_of_a_page_is_waited_for(served: None) -> None:
    from_the_top()
    assert told("a").startswith("drawn/")
    assert told("b") == NOBODY


def test_a_picture_is_waited_for_once(served: None) -> None:
    from_the_top()
    first = told("a")
    from_the_top()
    assert told("a") == NOBODY
    from_the_top()
    assert told("b") not in (NOBODY, first)  # another page


def test_a_picture_that_could_not_be_made_is_waited_for_next_time(served: None) -> None:
    from_the_top()
    with pytest.raises(ValueError, match="no picture"), first_picture("a"):
        raise ValueError("no picture")
    assert not module._awaited
    from_the_top()
    assert told("a") != NOBODY


def test_the_wait_ends_when_the_browser_has_drawn(served: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 600)
    from_the_top()
    order = []
    addresses: list[str] = []
    sent = threading.Event()

    def look() -> None:
        with first_picture("a") as address:
            addresses.append(address)
            sent.set()
        order.append("below")

    page = threading.Thread(target=look)
    page.start()
    assert sent.wait(60)
    order.append("drawn")
    module._awaited[addresses[0]].set()
    page.join(60)
    assert order == ["drawn", "below"]


@pytest.mark.parametrize("folder", ["/", "/lens/"])
def test_the_route_lies_in_the_apps_folder(folder: str) -> None:
    route = drawn_route(folder)
    scope = {"type": "http", "path": f"{folder}drawn/abc", "method": "POST"}
    assert route.matches(scope)[0] == Match.FULL
    assert route.matches(scope | {"method": "GET"})[0] == Match.PARTIAL
