"""Seconds to a UMAP picture beside plain `umap.UMAP(metric="cosine")`, each in a new process.

Cold: from starting the process to the finished picture, imports and compiling included. Warm: the same picture
again in that process. The two sides take turns. With --quick only the cold start of 10,000 rows is measured, and
plain UMAP is stopped after 35 s: the ratio is then an upper bound, given when it meets the target.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.report import parse_args, report

DIM = 128
PATIENCE = 35.0  # seconds that --quick gives plain UMAP
TARGETS = {
    "cold/umap-10000": ("<=", 0.25),
    "trustworthiness − plain, 10000": (">=", -0.01),
}


def main() -> None:
    """Measure, print, write."""
    args = parse_args(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.quick:
            ratios, figures = bound(folder, 10_000)
        else:
            ratios, figures = beside_plain(folder, 10_000, rounds=2)
            more = beside_plain(folder, 50_000, rounds=1)
            ratios, figures = ratios | more[0], figures | more[1]
    report("projection", ratios, TARGETS, figures, args.json)


def samples(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows × DIM, float32, in ten classes that overlap a little, and the class of each."""
    rng = np.random.default_rng(0)
    centres, labels = rng.normal(size=(10, DIM)), rng.integers(0, 10, rows)
    x = centres[labels] + rng.normal(size=(rows, DIM))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


def ours(x: np.ndarray) -> np.ndarray:
    """The picture that the pages show."""
    from moco_core.analysis.projection import project

    return project(x)


def plain(x: np.ndarray) -> np.ndarray:
    """The picture that three lines with umap-learn give."""
    from umap import UMAP

    return UMAP(metric="cosine").fit_transform(x)


def child(side: str, folder: str, again: bool) -> None:
    """In a process of its own: make the picture, tell when it was done and how long a second one takes."""
    x = np.load(Path(folder) / "x.npy")
    make = {"ours": ours, "plain": plain}[side]
    picture = make(x)
    done = time.time()
    np.save(Path(folder) / f"{side}.npy", picture)
    seconds = 0.0
    if again:
        began = time.perf_counter()
        make(x)
        seconds = time.perf_counter() - began
    print(json.dumps([done, seconds]))


def run(side: str, folder: Path, again: bool, patience: float | None = None) -> tuple[float, float]:
    """Cold and warm seconds of one side in a new process; `subprocess.TimeoutExpired` beyond `patience`."""
    code = f"from benchmarks import projection; projection.child({side!r}, {str(folder)!r}, {again})"
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=patience,
    )
    finished, warm = json.loads(done.stdout)
    return finished - began, warm


def beside_plain(folder: Path, rows: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Medians over the rounds."""
    np.save(folder / "x.npy", samples(rows)[0])
    taken: dict[str, list[tuple[float, float]]] = {"ours": [], "plain": []}
    for _ in range(rounds):
        for side, found in taken.items():
            found.append(run(side, folder, again=rows <= 10_000))
    (cold, warm), (plain_cold, plain_warm) = (
        map(statistics.median, zip(*found, strict=True)) for found in taken.values()
    )
    ratios = {f"cold/umap-{rows}": cold / plain_cold}
    figures = {f"cold seconds, {rows}": cold, f"plain cold seconds, {rows}": plain_cold}
    if rows <= 10_000:
        ratios[f"warm/umap-{rows}"] = warm / plain_warm
        figures |= {f"warm seconds, {rows}": warm, f"plain warm seconds, {rows}": plain_warm}
        figures |= quality(folder, rows)
    return ratios, figures


def quality(folder: Path, rows: int) -> dict[str, float]:
    """How faithful both pictures are."""
    from moco_core.analysis.projection import faithfulness

    x = np.load(folder / "x.npy")
    own, peer = (faithfulness(x, np.load(folder / f"{side}.npy")) for side in ("ours", "plain"))
    return {
        f"trustworthiness, {rows}": own.trustworthiness,
        f"trustworthiness − plain, {rows}": own.trustworthiness - peer.trustworthiness,
        f"continuity, {rows}": own.continuity,
        f"continuity − plain, {rows}": own.continuity - peer.continuity,
    }


def bound(folder: Path, rows: int) -> tuple[dict[str, float], dict[str, float]]:
    """The cold ratio, or its upper bound where plain UMAP had to be stopped."""
    np.save(folder / "x.npy", samples(rows)[0])
    cold, _ = run("ours", folder, again=False)
    key, figures = f"cold/umap-{rows}", {f"cold seconds, {rows}": cold}
    try:
        plain_cold, _ = run("plain", folder, again=False, patience=PATIENCE)
    except subprocess.TimeoutExpired:
        figures[f"plain stopped after seconds, {rows}"] = PATIENCE
        ratio = cold / PATIENCE
        if ratio > TARGETS[key][1]:
            return {}, {**figures, f"{key}, at most": ratio}
        return {key: ratio}, figures
    return {key: cold / plain_cold}, {**figures, f"plain cold seconds, {rows}": plain_cold}


if __name__ == "__main__":
    main()
