"""The process that makes pictures: answers each job, survives bad ones, ends with its input."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from moco_core.projections import ProjectionSettings, find_projection, precompute, precompute_newest
from moco_core.projections.worker import lines, serve
from moco_core.runs import Run, RunError, RunWriter, schema
from tests.synthetic import write_run


def job(run, name="j", /, **changes):
    wanted = {
        "job": name,
        "root": str(run.path.parent),
        "run": run.id,
        "step": 20,
        "settings": {"method": "pca"},
    }
    return wanted | changes


def answers(jobs, spare):
    out = io.StringIO()
    serve(iter(jobs), out, spare)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_process_of_its_own_answers_and_ends_with_its_input(tmp_path):
    run = Run(write_run(tmp_path / "runs"))
    done = subprocess.run(
        [sys.executable, "-m", "moco_core.projections.worker", str(tmp_path)],
        input=json.dumps(job(run)) + "\n",
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=120,
        check=True,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said[-1] == {"job": "j", "done": True}
    assert find_projection(run, run.steps[-1], ProjectionSettings(method="pca")).measured


def test_what_cannot_be_done_is_said_and_the_next_job_is_done(tmp_path):
    run = Run(write_run(tmp_path / "runs"))
    said = answers(
        [
            job(run, "gone", run="nobody"),
            job(run, "step", step=7),
            job(run, "settings", settings={"method": "tsne"}),
            job(run, "good"),
        ],
        tmp_path,
    )
    ends = {answer["job"]: answer for answer in said if "stage" not in answer}
    assert "there is no run 'nobody'" in ends["gone"]["error"]
    assert "has no readable step 7" in ends["step"]["error"]
    assert "method must be one of" in ends["settings"]["error"]
    assert ends["good"] == {"job": "good", "done": True}


def test_a_picture_that_cannot_be_kept_is_an_error(tmp_path):
    run = Run(write_run(tmp_path / "runs"))
    (run.path / "cache").write_text("a file")
    (said,) = [a for a in answers([job(run)], tmp_path / "nowhere" / "at all") if "stage" not in a]
    assert re.fullmatch(r"it can't be stored: .*/nowhere/at all: No such file or directory", said["error"])


def test_lines_arrive_whole_and_silence_ends_them():
    reading, writing = os.pipe()
    text = "".join(json.dumps({"job": name}) + "\n" for name in ("a", "b")).encode()
    os.write(writing, text[:5])
    os.write(writing, text[5:])
    assert [line["job"] for line in lines(reading, idle=0.2)] == ["a", "b"]  # the pipe is still open
    os.close(writing)
    os.close(reading)


def test_precompute_stores_what_the_page_opens_with(tmp_path):
    run = Run(write_run(tmp_path, samples=12, steps=(0, 5)))
    precompute(run)
    for step in run.steps:
        assert find_projection(run, step, ProjectionSettings()).measured
        assert find_projection(run, step, ProjectionSettings(method="pca")).measured


def test_steps_that_have_no_directions_do_not_keep_others_from_being_made(tmp_path):
    run = Run(write_run(tmp_path, samples=12, steps=(0, 5)))
    first, other = run.steps
    broken = {**first.arrays(schema.EMBEDDINGS_FILE), "query": np.full_like(first.query, np.nan)}
    RunWriter(run.path).write_step(0, {schema.EMBEDDINGS_FILE: broken}, {})
    with pytest.raises(RunError, match=r"2 of 4 pictures can't be made; step 0, umap: .* not finite"):
        precompute(Run(run.path))
    assert find_projection(run, other, ProjectionSettings()) is not None
    assert find_projection(run, other, ProjectionSettings(method="pca")) is not None


def test_precompute_says_what_it_lacks(tmp_path):
    run = Run(write_run(tmp_path))
    for step in run.steps:
        (step.path / "manifest.json").unlink()
    with pytest.raises(RunError, match="has no step to project"):
        precompute(Run(run.path))


def test_the_trainer_is_not_held_up_by_a_run_that_cannot_be_projected(tmp_path, capsys):
    run = Run(write_run(tmp_path))
    (run.path / "eval_set.safetensors").write_bytes(b"junk")
    precompute_newest(Run(run.path))
    assert "was not projected: eval_set.safetensors" in capsys.readouterr().err
    assert not list((run.path).glob("cache/*"))


def test_a_signal_ends_a_fit_at_once(tmp_path, monkeypatch):
    """Python's handlers wait until compiled code returns."""
    handlers = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    monkeypatch.setattr(
        sys.modules[precompute.__module__],
        "stored_projection",
        lambda *_: handlers.extend(map(signal.getsignal, numbers)),
    )
    before = [signal.getsignal(number) for number in numbers]
    run = Run(write_run(tmp_path))
    precompute(run, aligned=True)
    precompute_newest(run)
    assert handlers == [signal.SIG_DFL] * 4
    assert [signal.getsignal(number) for number in numbers] == before
