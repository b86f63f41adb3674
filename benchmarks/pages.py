"""Seconds and megabytes of each page in a real browser, on the shipped runs and on a large synthetic one.

Cold: the first page opened after the app was started, nothing in the run's cache or the browser's. Warm: the same
address opened by one browser the third to the seventh time, of which the median is told; what the cold opening asked
for is made by then. New browser: the first of these, the browser's own cache empty. The picture is there when all that
the window shows is drawn; the whole page when its script has ended and everything below the window is drawn, too. These
are measured without a debugger in the browser (`visitor.py`). Megabytes are all that the browser received. On the
projection page also, by hands that Playwright moves: a new colour, a new step, and from the end of a lasso to the
gallery. The warm comparison of 50,000 points is opened in turn with an app that draws two such pictures with
`st.plotly_chart` and does nothing else (`peer_app.py`). Everything is drawn in software, without a GPU.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, Page, sync_playwright
from tqdm import tqdm

from benchmarks.opened import COMPLETE, LIMIT, PICTURE, served
from benchmarks.report import parse_args, report
from benchmarks.visitor import WINDOW, Visitor, visitor
from tests.browser.server import BROWSER_FLAGS, REPOSITORY, browser_path
from tests.synthetic import write_run

POINTS = 50_000
QUICK_POINTS = 2_000  # only where no runs are shipped
QUICK_PAGES = ("projection",)
BARE_PAGES = ("import",)  # without a picture to wait for
ADDRESSES = {"runs": "", "compare": "compare?a_step=0"}  # of one run: its first step beside its last
UMAP = """() => document.querySelector("[data-testid=stMain]").innerText.match(/Trustworthiness [01]\\./)"""
PEER_APP = Path(__file__).with_name("peer_app.py")
PEER_DRAWN = """() => {
  const charts = [...document.querySelectorAll(".js-plotly-plot")];
  return document.querySelector("[data-test-script-state=notRunning]") && charts.length === 2
    && charts.every((chart) => chart.querySelector(".gl-canvas-context") && chart.querySelector(".xtick"));
}"""
# By the browser's own clock: what moves the mouse hears of it only when the page is no longer busy.
SINCE_RELEASE = """(until) => {
  const there = () => [...document.querySelectorAll(until)].some((found) => found.checkVisibility());
  globalThis.waited = 0;
  addEventListener("pointerup", ({ timeStamp }) => {
    const look = () => {
      if (there()) globalThis.waited = performance.now() - timeStamp;
      else requestAnimationFrame(look);
    };
    look();
  }, { capture: true, once: true });
}"""
PEER_ROUNDS = 5
WARM_OPENINGS = 5
SECONDS = {"cold": 15.0, "warm": 3.0, "new colour": 1.0, "lasso to gallery": 1.5}


class Visit:
    """One page in a window of its own, with a count of what it received."""

    def __init__(self, browser: Browser) -> None:
        self.context = browser.new_context(viewport=WINDOW)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(LIMIT * 1000)
        self.received = 0
        network = self.context.new_cdp_session(self.page)
        network.send("Network.enable")
        network.on("Network.loadingFinished", lambda event: self._count(event["encodedDataLength"]))
        self.page.on(
            "websocket", lambda socket: socket.on("framereceived", lambda data: self._count(len(data)))
        )

    def _count(self, received: float) -> None:
        self.received += int(received)

    def open(self, address: str) -> float:
        """Megabytes received until all of the page is drawn."""
        self.page.goto(address)
        self.page.wait_for_function(COMPLETE, polling=50)
        return self.received / 1e6

    def seconds(self, act: Callable[[], Any], until: str) -> tuple[float, float]:
        """Seconds from the release of the button in `act` until `until` is there, and megabytes received."""
        self.received = 0
        self.page.evaluate(SINCE_RELEASE, until)
        act()
        waited = self.page.wait_for_function("() => globalThis.waited", polling=50)
        return waited.json_value() / 1000, self.received / 1e6


def main() -> None:
    """Measure and report."""
    args = parse_args(__doc__)
    path = browser_path()
    if path is None:
        raise SystemExit("no browser found; install chromium")
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    there = sorted(page.stem for page in (REPOSITORY / "pages").glob("*.py"))
    pages = QUICK_PAGES if args.quick else tuple(page for page in there if page not in BARE_PAGES)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, visitor(path) as person:
        browser = playwright.chromium.launch(executable_path=path, args=BROWSER_FLAGS)
        for name, root in roots(Path(folder), args.quick):
            for page in tqdm(pages, desc=name):
                found = measured(person, browser, root, page, interact=page == "projection")
                figures |= {f"{page}, {name}, {key}": value for key, value in found.items()}
                if page == "compare" and root.name == "large":
                    ratios["compare / two st.plotly_chart, warm"] = beside_peer(person, root)
        browser.close()
    targets = {
        key: ("<=", limit)
        for key in figures
        for kind, limit in SECONDS.items()
        if key.endswith((f", {kind}, s", f", {kind} again, s"))
    }
    targets |= {name: ("<=", 1.0) for name in ratios}
    report("pages", ratios, targets, figures, args.json)


def roots(folder: Path, quick: bool) -> Iterator[tuple[str, Path]]:
    """Name and runs root of what is opened: copies without a cache. Quick: the shipped runs, where there are any."""
    shipped = REPOSITORY / "checkpoints"
    if any(shipped.glob("*/run.json")):
        copied = shutil.copytree(shipped, folder / "shipped", ignore=shutil.ignore_patterns("cache"))
        yield "shipped", Path(copied)
        if quick:
            return
    points = QUICK_POINTS if quick else POINTS
    write_run(folder / "large", "large", samples=points, classes=10, dim=128, steps=(0, 20), queue_size=4096)
    yield f"{points:,} points", folder / "large"


def measured(person: Visitor, browser: Browser, root: Path, page: str, *, interact: bool) -> dict[str, float]:
    """One page on one runs root, cold and warm."""
    for run in root.iterdir():
        shutil.rmtree(run / "cache", ignore_errors=True)
    person.forget()
    figures: dict[str, float] = {}
    with served(root) as server:
        address = f"{server.url}/{ADDRESSES.get(page, page)}"
        cold = person.open(address, (PICTURE, COMPLETE, UMAP) if interact else (PICTURE, COMPLETE), LIMIT)
        figures |= dict(zip(("cold, s", "whole page cold, s", "UMAP there, s"), cold, strict=False))
        rest(server.process.pid)
        visit = Visit(browser)  # the first opening with the finished projections, which packs them
        figures["whole page, MB"] = visit.open(address)
        visit.context.close()
        rest(server.process.pid)
        person.forget()
        opened = []
        for _ in range(2 + WARM_OPENINGS):
            opened.append(person.open(address, (PICTURE, COMPLETE), LIMIT))
            rest(server.process.pid, 1.0)
        warm = [statistics.median(times) for times in zip(*opened[2:], strict=True)]
        for name, times in (("new browser", opened[0]), ("warm", warm)):
            figures |= dict(zip((f"{name}, s", f"whole page {name}, s"), times, strict=True))
        if interact:
            visit = Visit(browser)
            visit.open(address)
            figures |= interactions(visit)
            visit.context.close()
    return figures


def beside_peer(person: Visitor, root: Path) -> float:
    """Seconds to the picture of the warm comparison ÷ those of an app that draws two such pictures and nothing else."""
    with served(root) as ours, served(root, PEER_APP) as peer:
        openings = (
            (f"{ours.url}/{ADDRESSES['compare']}", (PICTURE,)),
            (f"{peer.url}/", (PEER_DRAWN,)),
        )
        taken: tuple[list[float], list[float]] = ([], [])
        for turn in range(PEER_ROUNDS + 2):
            for which in (0, 1) if turn % 2 else (1, 0):
                taken[which].extend(person.open(*openings[which], LIMIT))
                rest((ours, peer)[which].process.pid, 0.5)
    return statistics.median(
        own / other for own, other in list(zip(*taken, strict=True))[2:]
    )  # two to warm up


def rest(process: int, seconds: float = 2.0) -> None:
    """Wait until the app and the processes that it started have used less than a twentieth of a core, twice over."""
    app = psutil.Process(process)

    def used() -> dict[int, float]:
        found = {}
        for one in (app, *app.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                found[one.pid] = sum(one.cpu_times()[:2])
        return found

    quiet, before = 0, used()
    while quiet < 2:
        time.sleep(seconds)
        now = used()
        spent = sum(total - before.get(pid, 0.0) for pid, total in now.items())
        quiet = quiet + 1 if spent < seconds / 20 else 0
        before = now


def interactions(visit: Visit) -> dict[str, float]:
    """What someone does on the projection page, in seconds, and megabytes of a new colour."""
    page = visit.page
    figures: dict[str, float] = {}
    for number, colour in enumerate(
        ("cosine to own key", "class", "local density", "class", "local density")
    ):
        page.get_by_role("combobox", name="Colour").click()
        choice = page.get_by_role("option", name=colour)
        choice.wait_for()
        seconds, megabytes = visit.seconds(choice.click, f"[data-colour='{colour}']")
        if number == 0:
            figures["new colour, s"], figures["new colour, MB"] = seconds, megabytes
        if number == 2:
            figures["first neighbour search, s"] = seconds
        if number == 4:
            figures["new colour again, s"] = seconds
        page.wait_for_function(COMPLETE, polling=50)
    figures["lasso to gallery, s"] = visit.seconds(lambda: lasso(page), ".gallery")[0]
    return figures


def lasso(page: Page) -> None:
    """Around the middle of the picture."""
    box = page.locator(".moco-explorer .plot").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x - 250, y - 200)
    page.mouse.down()
    for right, down in ((250, -200), (250, 200), (-250, 200), (-250, -200)):
        page.mouse.move(x + right, y + down, steps=8)
    page.mouse.up()


if __name__ == "__main__":
    main()
