"""All parts are done, errors arrive, and linear algebra has its threads back afterwards."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from moco_core.analysis import parallel
from moco_core.analysis.neighbors import nearest


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def several():
    with threadpool_limits(3, user_api="blas"):
        yield


def test_every_part_is_done_once_with_one_thread_of_linear_algebra():
    before, done, seen = blas_threads(), [], set()
    together = threading.Barrier(3, timeout=60)

    def task(part: int) -> None:
        if part < 3:
            together.wait()  # three threads are at it
        done.append(part)
        seen.update(blas_threads())

    parallel.in_parallel(task, range(50))
    assert sorted(done) == list(range(50))
    assert seen == {1}
    assert blas_threads() == before


def test_the_first_error_is_raised_and_threads_come_back():
    before = blas_threads()

    def task(part: int) -> None:
        if part in (3, 4):
            raise ValueError(f"part {part}")

    with pytest.raises(ValueError, match="part 3"):
        parallel.in_parallel(task, range(6))
    assert blas_threads() == before


def test_callers_at_once_leave_the_threads_as_they_were():
    before = blas_threads()
    barrier = threading.Barrier(4)

    def caller() -> None:
        barrier.wait()
        for _ in range(5):
            parallel.in_parallel(lambda part: None, range(4))

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert blas_threads() == before


def test_neighbours_are_the_same_with_any_number_of_threads():
    x = np.random.default_rng(0).normal(size=(1500, 16)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    found = nearest(x, 7)
    with threadpool_limits(1, user_api="blas"):
        alone = nearest(x, 7)
    assert np.array_equal(found[0], alone[0])
    assert np.allclose(found[1], alone[1], atol=1e-6)
