"""The app as a process of its own, and a browser to open it with."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
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


class Server:
    """`streamlit run app.py` on a free port of this machine, its runs below `root`."""

    def __init__(self, root: Path, log: Path, environment: Mapping[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "streamlit", "run", "app.py"),
                *("--server.port", str(port), "--server.address", "127.0.0.1", "--server.headless", "true"),
            ],
            cwd=REPOSITORY,
            env={**os.environ, **environment, "MOCO_RUNS": str(root)},
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        self._wait()

    def _wait(self, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"the app did not start:\n{self.log.read_text()}")

    def stop(self) -> None:
        """End the server and wait for it."""
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
