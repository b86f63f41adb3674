"""The first picture of a page is drawn before what lies below it is sent.

A browser that gets a whole page at once puts all of it together before it draws anything. So a page that someone
looks at for the first time waits, after its first picture, until the browser has said that it is drawn.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PATIENCE = 3.0  # seconds for a browser that says nothing: a tab in the background draws nothing
NOBODY = ""

_AHEAD, _SEEN = "_first_picture_ahead", "_first_pictures_seen"  # in the session's state
_awaited: dict[str, threading.Event] | None = None  # by address; None where no server listens, as in tests


def from_the_top() -> None:
    """A page is run from its top: its first picture is still to come."""
    st.session_state[_AHEAD] = True


@contextmanager
def first_picture(key: str) -> Iterator[str]:
    """Around every picture; waits at its end if `key` is the first of its page and new to this session.

    Yields the address to which the browser posts once the picture is drawn, or `NOBODY` where none waits.
    """
    seen = st.session_state.setdefault(_SEEN, set())
    ahead = st.session_state.pop(_AHEAD, False)
    if _awaited is None or not ahead or key in seen:
        yield NOBODY
        return
    address = f"drawn/{secrets.token_urlsafe(12)}"
    drawn = _awaited[address] = threading.Event()
    try:
        yield address
        drawn.wait(PATIENCE)
        seen.add(key)
    finally:
        del _awaited[address]


def drawn_route(folder: str) -> Route:
    """Where browsers say that a picture is drawn; `folder` is the app's, ending in /."""
    global _awaited
    _awaited = {}
    return Route(f"{folder}drawn/{{token}}", _drawn, methods=["POST"])


async def _drawn(request: Request) -> Response:
    drawn = (_awaited or {}).get(f"drawn/{request.path_params['token']}")
    if drawn:
        drawn.set()
    return Response(status_code=204)
