"""Seconds from the command to a UMAP picture of a file of vectors in the browser, beside embedding-atlas.

The file is Parquet: rows of 128 numbers in ten classes, with their labels. Ours: `python -m moco_core import FILE`,
then `streamlit run app.py`, then its page /projection. Theirs: `embedding-atlas FILE --vector embedding`, then its
page. Both compute UMAP of all rows (15 neighbours, min_dist 0.1, by the cosine) in new processes, with no results
kept from before; what numba keeps compiled beside the libraries stays. The sides take turns in one open browser
that draws in software, without a debugger (`visitor.py`).

Our clock stops when UMAP's points are drawn; the principal components that the page shows until then are given
apart. embedding-atlas draws with WebGPU, of which software offers too little (no shader-f16): its clock stops when
the view says how many points it holds, so the drawing is not counted for it and the ratio is, if anything, too high.
With --quick embedding-atlas is stopped when its page isn't served 44 s after the benchmark began: the ratio is then
an upper bound, given when it meets the target.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from functools import partial
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from benchmarks.opened import LIMIT, PICTURE, served
from benchmarks.projection import samples
from benchmarks.report import parse_args, report
from benchmarks.visitor import Visitor, visitor
from tests.browser.server import REPOSITORY, Serving, browser_path, free_port

SIZES = (10_000, 50_000)
QUICK_SIZES = (2_000,)
ROUNDS = 2
PATIENCE = 900.0  # seconds that embedding-atlas gets to serve its page
QUICK_END = 44.0  # seconds after which --quick waits for it no longer
RATIO = "first-picture/embedding-atlas"
BOUND = 1.0
INSTALL = (
    "embedding-atlas is not there: install it with `pip install embedding-atlas`, here or in an environment of "
    "its own whose bin folder is on PATH"
)
# The points that the explorer shows are those of a UMAP, and no longer the preview's.
UMAP_DRAWN = """() => {
  const { dataset, textContent } = document.querySelector(".moco-explorer");
  const umap = textContent.includes("UMAP 1");
  globalThis.preview ??= umap ? "" : dataset.points;
  return umap && dataset.points !== globalThis.preview;
}"""


def main() -> None:
    """Measure, print, write."""
    args = parse_args(__doc__)
    program = atlas_program()
    if program is None:
        print(INSTALL, file=sys.stderr)
    path = browser_path()
    if path is None:
        raise SystemExit("no browser found; install chromium")
    end = time.perf_counter() + QUICK_END if args.quick else math.inf
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {}
    with visitor(path) as person:
        for rows in tqdm(QUICK_SIZES if args.quick else SIZES, desc="files"):
            taken = race(person, rows, 1 if args.quick else ROUNDS, program, end)
            figures |= {f"{what}, {rows}, s": statistics.median(found) for what, found in taken.items()}
            key = RATIO if rows in (SIZES[0], *QUICK_SIZES) else f"{RATIO}, {rows}"
            ratios |= compared(key, taken)
    targets = {key: ("<=", BOUND) for key in (RATIO, *ratios)}
    report("interop", ratios, targets, figures, args.json)


def compared(key: str, taken: dict[str, list[float]]) -> dict[str, float]:
    """Ours over theirs; where theirs was stopped, over the time it had, if that is enough to meet the target."""
    ours = statistics.median(taken["UMAP drawn"])
    if theirs := taken.get("embedding-atlas, points in its view"):
        return {key: ours / statistics.median(theirs)}
    if stopped := taken.get("embedding-atlas stopped after"):
        ratio = ours / statistics.median(stopped)
        return {key: ratio} if ratio <= BOUND else {}
    return {}


def race(person: Visitor, rows: int, rounds: int, program: str | None, end: float) -> dict[str, list[float]]:
    """Seconds since the command at each thing that is waited for, one entry a round; the sides take turns.

    At `end`, on the clock `time.perf_counter`, embedding-atlas is waited for no longer.
    """
    taken: dict[str, list[float]] = {}
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            file = write_vectors(folder / "vectors.parquet", rows)
            sides = [partial(ours, person, file, folder)]
            if program is not None:
                sides.append(partial(theirs, person, file, folder, rows, program, end))
            for side in sides if number % 2 == 0 else reversed(sides):
                for what, seconds in side().items():
                    taken.setdefault(what, []).append(seconds)
    return taken


def write_vectors(path: Path, rows: int) -> Path:
    """A Parquet file with the columns `embedding` (lists of float32) and `label` (text)."""
    x, labels = samples(rows)
    names = [f"class {label}" for label in labels]
    pq.write_table(pa.table({"embedding": pa.array(list(x)), "label": pa.array(names)}), path)
    return path


def ours(person: Visitor, file: Path, folder: Path) -> dict[str, float]:
    """Import, app and page, one after the other."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "moco_core", "import", str(file), "--runs", str(folder / "runs")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
    run = Path(done.stdout.split()[-1]).name
    seen = {"imported": time.perf_counter() - began}
    with served(folder / "runs") as server:
        seen["app serves"] = time.perf_counter() - began
        address = f"{server.url}/projection?run={run}"
        person.forget()
        first, umap = person.open(address, (PICTURE, UMAP_DRAWN), LIMIT)
        seen["principal components drawn"] = seen["app serves"] + first
        seen["UMAP drawn"] = seen["app serves"] + umap
        for worker in psutil.Process(server.process.pid).children(recursive=True):
            worker.kill()  # it measures the picture, which must not slow the other side
    return seen


def theirs(
    person: Visitor, file: Path, folder: Path, rows: int, program: str, end: float
) -> dict[str, float]:
    """Command and page."""
    port = free_port()
    command = [program, str(file), "--vector", "embedding", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--umap-n-neighbors", "15", "--umap-min-dist", "0.1", "--umap-metric", "cosine"]
    results = {"XDG_CACHE_HOME": str(folder / "cache")}
    began = time.perf_counter()
    patience = min(PATIENCE, end - began)
    try:
        server = Serving(command, f"http://127.0.0.1:{port}", "/", folder / "log.txt", results, patience)
    except TimeoutError:
        return {"embedding-atlas stopped after": patience}
    try:
        seen = {"embedding-atlas, page served": time.perf_counter() - began}
        shown = f"e => !e.children.length && e.textContent.trim() === '{rows:,} points'"
        condition = f"() => [...document.querySelectorAll('*')].some({shown})"
        person.forget()
        (points,) = person.open(server.url, (condition,), LIMIT)
        seen["embedding-atlas, points in its view"] = seen["embedding-atlas, page served"] + points
    finally:
        server.stop()
    return seen


def atlas_program() -> str | None:
    """The command `embedding-atlas` of this environment, or else on PATH."""
    folders = (sysconfig.get_path("scripts"), os.environ.get("PATH", ""))
    return shutil.which("embedding-atlas", path=os.pathsep.join(folders))


if __name__ == "__main__":
    main()
