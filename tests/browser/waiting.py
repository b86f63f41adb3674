"""What a page shows is read again until it is what a test expects: a browser draws when it can."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def assert_soon(read: Callable[[], Any], expected: Any, seconds: float = 30.0) -> None:
    """Assert that `read()` equals `expected` within `seconds`; the last reading is what a failure shows."""
    until = time.monotonic() + seconds
    while (seen := read()) != expected and time.monotonic() < until:
        time.sleep(0.1)
    assert seen == expected
