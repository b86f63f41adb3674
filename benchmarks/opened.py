"""What the benchmarks that open pages share: a freshly started app, and when its picture is there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.server import APP, Server

LIMIT = 180.0  # seconds that anything may take
DRAWN = """
  const main = document.querySelector("[data-testid=stMain]");
  const stopped = document.querySelector("[data-test-script-state=notRunning]");
  const all = (names) => [...main.querySelectorAll(names)].filter((found) => found.checkVisibility());
  const inWindow = (found) => {
    const { top, bottom } = found.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  };
  const awaited = "[data-testid=stSkeleton], [data-testid=stSpinner], .moco-chart:not([data-drawn]), "
    + ".moco-explorer:not([data-colour]), [data-testid=stBidiComponentRegular]:empty";
"""
# A picture is drawn, the window is full, and nothing in it is still awaited.
PICTURE = (
    "() => {"
    + DRAWN
    + """
  const end = main?.querySelector("[data-testid=stMainBlockContainer]")?.getBoundingClientRect().bottom;
  return main?.querySelector("h1") && (stopped || end > 1.2 * innerHeight) && !all(awaited).some(inWindow)
    && all(".moco-chart[data-drawn], .moco-explorer[data-colour], [class*=st-key-sphere]").length;
}"""
)
COMPLETE = "() => {" + DRAWN + "return stopped && main?.querySelector('h1') && !all(awaited).length; }"


@contextmanager
def served(root: Path, script: Path = APP) -> Iterator[Server]:
    """A freshly started app."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(root, Path(folder) / "log.txt", {}, script)
        try:
            yield server
        finally:
            server.stop()
