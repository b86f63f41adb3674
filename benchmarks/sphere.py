"""Seconds that 10,000 steps on the sphere take, at the defaults and with a long queue."""

import time

from benchmarks.report import parse_args, report
from moco_core.sphere import SphereMoCo

STEPS = 10_000
LIMIT = 2.0  # seconds


def main() -> None:
    """Measure and report."""
    args = parse_args(__doc__)
    rounds = 3 if args.quick else 10
    seconds = {f"seconds/{STEPS} steps, K={size}": best_of(rounds, size) for size in (64, 1024)}
    report("sphere", {}, dict.fromkeys(seconds, ("<=", LIMIT)), seconds, args.json)


def best_of(rounds: int, queue_size: int) -> float:
    """The fastest of several rounds: the one that other programs disturbed least."""
    sphere = SphereMoCo(queue_size=queue_size)
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(STEPS):
            sphere.step()
        taken.append(time.perf_counter() - began)
    return min(taken)


if __name__ == "__main__":
    main()
