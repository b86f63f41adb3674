"""Parts of a computation on all cores at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import ThreadpoolController

MOST = 8  # threads: each may hold a block of memory
T = TypeVar("T")

_whole_machine = threading.Lock()  # limits of two callers at once would undo each other


def in_parallel(task: Callable[[T], None], parts: Sequence[T]) -> None:
    """`task(part)` for every part, in threads; returns when all are done and raises the first error.

    There are as many threads as linear algebra would use, which gets one thread in each: a part a core wastes
    less than one product on all cores, since what follows a product (comparing, sorting) is spread, too.
    """
    if len(parts) < 2:
        for part in parts:
            task(part)
        return
    with _whole_machine:
        blas = ThreadpoolController().select(user_api="blas")
        threads = max((library["num_threads"] for library in blas.info()), default=1)
        with blas.limit(limits=1), ThreadPoolExecutor(min(threads, MOST)) as pool:
            for done in [pool.submit(task, part) for part in parts]:
                done.result()
