"""The order of runs that are drawn together: a run's place in it is its colour, on every page."""

from __future__ import annotations

from collections.abc import Iterable

from moco_core.runs import Run


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Readable runs in an order that a legend can be read in: by method, momentum, queue size."""
    return sorted(
        runs, key=lambda run: (run.config.method, run.config.momentum, run.config.queue_size, run.id)
    )
