"""A browser as a person has it, with no debugger attached, asked what it shows.

Playwright, like every debugger, has V8 gather the source position of each exception that is thrown and caught. Starting
plotly.js takes twice as long then, and Streamlit's start grows, too. Here the protocol's `Runtime.evaluate` alone is
used, which changes nothing in how pages run.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.browser.server import BROWSER_FLAGS

WINDOW = {"width": 1400, "height": 1000}
POLL = 0.05  # seconds between two questions


class Visitor:
    """A headless browser, which keeps what it has loaded and compiled until it forgets.

    Its pages belong to a profile on disk, as a person's do: a private window would keep no compiled scripts.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    def forget(self) -> None:
        """Empty the cache."""
        with self._tab() as session:
            self._ask("Network.clearBrowserCache", session)

    def open(self, address: str, until: tuple[str, ...], limit: float) -> list[float]:
        """Seconds from the address until each of the JavaScript functions `until` has been true, in this order."""
        with self._tab() as session:
            self._ask(
                "Emulation.setDeviceMetricsOverride", session, deviceScaleFactor=1, mobile=False, **WINDOW
            )
            began = time.perf_counter()
            self._ask("Page.navigate", session, url=address)
            return [self._wait(session, condition, began, limit) for condition in until]

    @contextmanager
    def _tab(self) -> Iterator[str]:
        """A session with a tab of its own."""
        tab = self._ask("Target.createTarget", url="about:blank")["targetId"]
        try:
            yield self._ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        finally:
            self._ask("Target.closeTarget", targetId=tab)

    def _wait(self, session: str, condition: str, began: float, limit: float) -> float:
        while True:
            answer = self._ask("Runtime.evaluate", session, expression=f"!!({condition})()")
            seconds = time.perf_counter() - began
            if answer["result"].get("value") is True:
                return seconds
            if seconds > limit:
                raise TimeoutError(f"not there after {limit:g} s: {condition}")
            time.sleep(POLL)

    def _ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]


@contextmanager
def visitor(browser: str) -> Iterator[Visitor]:
    """Start the browser at path `browser`, and end it after use."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = [*BROWSER_FLAGS, "--headless=new", "--no-first-run", "--remote-debugging-port=0"]
        process = subprocess.Popen(
            [browser, *flags, f"--user-data-dir={profile}", "about:blank"], stderr=subprocess.DEVNULL
        )
        try:
            with connect(_address(Path(profile) / "DevToolsActivePort", process), max_size=None) as socket:
                yield Visitor(socket)
        finally:
            process.terminate()
            process.wait()


def _address(file: Path, process: subprocess.Popen[bytes], seconds: float = 30.0) -> str:
    """Where the browser listens: it writes its port and a path into a file of its profile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and len(lines := file.read_text().splitlines()) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise RuntimeError("the browser did not start")
