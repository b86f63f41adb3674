"""The desk has pictures made elsewhere, says how far they are, and survives the maker's end."""

import os
import signal
import time

import pytest

from moco_core.dashboard.projections import ProjectionDesk
from moco_core.projections import ProjectionSettings, find_projection
from moco_core.runs import Run
from tests.synthetic import write_run

PCA = ProjectionSettings(method="pca")


@pytest.fixture
def run(tmp_path):
    return Run(write_run(tmp_path))


@pytest.fixture
def desk():
    made = ProjectionDesk()
    yield made
    made.close()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def found(run, settings, desk):
    picture = find_projection(run, run.steps[-1], settings, desk.spare)
    return picture is not None and picture.measured


def test_what_is_asked_for_is_made_in_another_process(desk, run):
    step = run.steps[-1]
    assert not found(run, PCA, desk)
    work = desk.ask(run, step, PCA)
    assert not work.error
    wait_for(lambda: found(run, PCA, desk))
    assert (run.path / "cache").is_dir()


def test_several_are_made_one_after_another(desk, run):
    wanted = [
        ProjectionSettings(method="pca", dim=dim, keys=keys) for dim in (2, 3) for keys in (True, False)
    ]

    def done():
        missing = [s for s in wanted if not found(run, s, desk)]
        for settings in missing:
            desk.ask(run, run.steps[-1], settings)
        return not missing

    wait_for(done)


def test_an_error_is_told_until_someone_retries(desk, tmp_path):
    run = Run(write_run(tmp_path / "runs", queue=False))
    settings = ProjectionSettings(method="pca", queue=True)
    wait_for(lambda: desk.ask(run, run.steps[-1], settings).error)
    assert "has no queue" in desk.ask(run, run.steps[-1], settings).error
    desk.retry(run, run.steps[-1], settings)
    assert not desk.ask(run, run.steps[-1], settings).error


def test_a_killed_process_is_reported_and_replaced(desk, run):
    umap = ProjectionSettings()
    desk.ask(run, run.steps[-1], umap)  # loading UMAP alone takes longer than the kill
    os.kill(desk._worker.pid, signal.SIGKILL)
    wait_for(lambda: desk.ask(run, run.steps[-1], umap).error)
    assert "ended with code -9" in desk.ask(run, run.steps[-1], umap).error
    desk.ask(run, run.steps[-1], PCA)
    wait_for(lambda: found(run, PCA, desk))


def test_a_run_that_cannot_be_written_is_kept_aside(desk, run):
    (run.path / "cache").write_text("a file where the folder would be")
    desk.ask(run, run.steps[-1], PCA)
    wait_for(lambda: found(run, PCA, desk))
    assert find_projection(run, run.steps[-1], PCA) is None
