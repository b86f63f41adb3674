"""Time and memory of the embedding analysis beside what one would use instead.

Exact uniformity against `torch.pdist`, each in processes of their own that take turns: seconds of the call, and
by how much it raises the peak resident size. The exact 15 nearest neighbours against scikit-learn's brute-force
search (Euclidean on unit rows, its fastest path) and against a partition of every row of the product, taking
turns in one process. The aligned pictures of six steps against pictures fitted to each step by itself.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.report import parse_args, report
from moco_core.analysis.align import align, displacement
from moco_core.analysis.geometry import uniformity
from moco_core.analysis.neighbors import nearest
from moco_core.analysis.projection import faithfulness, project

Array = np.ndarray

DIM, K = 128, 15
TARGETS = {
    "uniformity-time/pdist": ("<=", 1.0),
    "uniformity-memory/pdist": ("<=", 0.1),
    "nearest-time/sklearn": ("<=", 1.0),
    "aligned-displacement/separate": ("<=", 1.0),
    "aligned trustworthiness − separate": (">=", -0.01),
    "aligned seconds, 6 × 2000": ("<=", 30.0),
}


def main() -> None:
    """Measure, print, write."""
    args = parse_args(__doc__)
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {}
    for part in (
        uniformity_beside_pdist(15_000, rounds=1)
        if args.quick
        else uniformity_beside_pdist(40_000, rounds=2),
        nearest_beside_peers(15_000 if args.quick else 50_000, rounds=3),
        aligned_beside_separate(),
    ):
        ratios |= part[0]
        figures |= part[1]
    report("analysis", ratios, TARGETS, figures, args.json)


def samples(rows: int) -> Array:
    """Unit rows × DIM, float32, scattered around ten centres; made without large temporary arrays."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, DIM), np.float32)
    for start in range(10):
        x[start::10] += rng.standard_normal(DIM, np.float32)
    for start in range(0, rows, 1000):
        x[start : start + 1000] /= np.linalg.norm(x[start : start + 1000], axis=1, keepdims=True)
    return x


def uniformity_beside_pdist(rows: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Medians over the rounds; the two values must agree."""
    runs = {name: [] for name in ("our_uniformity", "pdist_uniformity")}
    for _ in range(rounds):
        for name, found in runs.items():
            found.append(in_own_process(name, rows))
    (value, seconds, grown), (peer_value, peer_seconds, peer_grown) = (
        map(statistics.median, zip(*found, strict=True)) for found in runs.values()
    )
    if abs(value - peer_value) > 1e-4:
        raise SystemExit(f"uniformity reads {value}, with torch.pdist {peer_value}")
    return (
        {"uniformity-time/pdist": seconds / peer_seconds, "uniformity-memory/pdist": grown / peer_grown},
        {
            "uniformity rows": rows,
            "uniformity seconds": seconds,
            "uniformity MB": grown,
            "pdist seconds": peer_seconds,
            "pdist MB": peer_grown,
        },
    )


def in_own_process(name: str, rows: int) -> tuple[float, float, float]:
    """What a function of this module returns in a fresh process."""
    code = f"import json; from benchmarks import analysis; print(json.dumps(analysis.{name}({rows})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    value, seconds, megabytes = json.loads(done.stdout)
    return value, seconds, megabytes


def our_uniformity(rows: int) -> tuple[float, float, float]:
    """Value, seconds, and MB of growth."""
    x = samples(rows)
    return observed(lambda: uniformity(x))


def pdist_uniformity(rows: int) -> tuple[float, float, float]:
    """The same from all pairwise distances at once, as the metric's authors write it."""
    import torch

    x = torch.from_numpy(samples(rows))
    return observed(lambda: torch.pdist(x).pow(2).mul(-2).exp().mean().log().item())


def observed(call: Callable[[], float]) -> tuple[float, float, float]:
    """What a call returns, its seconds, and by how many MB it raises the peak resident size."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    value = call()
    seconds = time.perf_counter() - began
    return value, seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def nearest_beside_peers(rows: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Medians over the rounds, after one small warm-up of each; the neighbours must agree."""
    from sklearn.neighbors import NearestNeighbors

    def with_sklearn(x: Array) -> Array:
        return NearestNeighbors(n_neighbors=K + 1, algorithm="brute").fit(x).kneighbors(x)[1][:, 1:]

    def with_partition(x: Array) -> Array:
        found = np.empty((len(x), K), np.int64)
        for start in range(0, len(x), 256):
            s = x[start : start + 256] @ x.T
            s[np.arange(len(s)), start + np.arange(len(s))] = -np.inf
            top = np.argpartition(s, -K, axis=1)[:, -K:]
            order = np.argsort(-np.take_along_axis(s, top, 1), axis=1)
            found[start : start + 256] = np.take_along_axis(top, order, 1)
        return found

    peers = {"ours": lambda x: nearest(x, K)[0], "sklearn": with_sklearn, "partition": with_partition}
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    x, found = samples(rows), {}
    for search in peers.values():
        search(x[:1000])
    for _ in range(rounds):
        for name, search in peers.items():
            began = time.perf_counter()
            found[name] = search(x)
            seconds[name].append(time.perf_counter() - began)
    for name, indices in found.items():
        if (indices == found["ours"]).mean() < 0.999:  # float32 may swap near-equal neighbours
            raise SystemExit(f"{name} finds other neighbours")
    median = {name: statistics.median(taken) for name, taken in seconds.items()}
    return (
        {
            "nearest-time/sklearn": median["ours"] / median["sklearn"],
            "nearest-time/partition": median["ours"] / median["partition"],
        },
        {
            "nearest rows": rows,
            **{f"nearest seconds, {name}": value for name, value in median.items()},
        },
    )


def aligned_beside_separate() -> tuple[dict[str, float], dict[str, float]]:
    """Steps as in training: samples of ten latent dimensions whose classes part while the encoder changes.

    The seconds are those of the first call in a process, compiling included.
    """
    steps, rows, rng = 6, 2000, np.random.default_rng(0)
    centre, own = 3 * rng.normal(size=(10, 10))[rng.integers(0, 10, rows)], rng.normal(size=(rows, 10))
    weights, spaces = rng.normal(size=(10, DIM)), []
    for step in range(steps):
        weights = weights + 0.3 * rng.normal(size=weights.shape)
        spaces.append(np.tanh((own + centre * step / (steps - 1)) @ weights / 4).astype(np.float32))
    began = time.perf_counter()
    aligned = align(spaces)
    seconds = time.perf_counter() - began
    separate = np.stack([project(x) for x in spaces])

    def trust(pictures: Array) -> float:
        return float(
            np.mean([faithfulness(x, p, K).trustworthiness for x, p in zip(spaces, pictures, strict=True)])
        )

    moved, moved_separate = float(displacement(aligned).mean()), float(displacement(separate).mean())
    return (
        {"aligned-displacement/separate": moved / moved_separate},
        {
            "aligned seconds, 6 × 2000": seconds,
            "aligned displacement": moved,
            "separate displacement": moved_separate,
            "aligned trustworthiness": trust(aligned),
            "aligned trustworthiness − separate": trust(aligned) - trust(separate),
        },
    )


if __name__ == "__main__":
    main()
