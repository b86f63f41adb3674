"""The app (or another program that serves pages) as a process of its own, and a browser to open it with."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
APP = REPOSITORY / "app.py"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_FLAGS = (
    "--no-sandbox",
    "--use-gl=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
)


def browser_path() -> str | None:
    """The first browser found on this machine."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Serving:
    """A program that serves pages at `url`, and has answered at `url + health` when this is made."""

    def __init__(
        self,
        command: Sequence[str],
        url: str,
        health: str,
        log: Path,
        environment: Mapping[str, str],
        patience: float = 120,
    ) -> None:
        self.url = url
        self.log = log
        self.process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        self._wait(url + health, patience)

    def _wait(self, address: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(address, timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        ended = self.process.poll() is not None
        self.stop()
        if not ended:
            raise TimeoutError(f"no answer at {address} within {seconds:g} s:\n{self.log.read_text()}")
        raise RuntimeError(f"the server did not start:\n{self.log.read_text()}")

    def stop(self) -> None:
        """End the server and wait for it."""
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Server(Serving):
    """`streamlit run app.py` (or another script) on a free port of this machine, its runs below `root`."""

    def __init__(self, root: Path, log: Path, environment: Mapping[str, str], script: Path = APP) -> None:
        port = free_port()
        command = [
            *(sys.executable, "-m", "streamlit", "run", str(script)),
            *("--server.port", str(port), "--server.address", "127.0.0.1", "--server.headless", "true"),
        ]
        runs = {"MOCO_RUNS": str(root)}
        super().__init__(command, f"http://127.0.0.1:{port}", "/_stcore/health", log, {**environment, **runs})
