"""`python -m moco_core import` as a person runs it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from moco_core.runs import RunStore

VALUES = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


def command(*words):
    done = subprocess.run(
        [sys.executable, "-m", "moco_core", "import", *map(str, words)], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def test_says_what_was_read_and_ends_with_the_run(tmp_path):
    pd.DataFrame(VALUES).assign(label=["a", "b"] * 10, name=[f"n{i}" for i in range(20)]).to_csv(
        tmp_path / "Mine.csv", index=False
    )
    code, out, said = command(tmp_path / "Mine.csv", "--runs", tmp_path / "runs")
    assert code == 0, said
    assert out == f"{tmp_path / 'runs' / 'mine'}\n"
    assert said.splitlines() == [
        "Mine.csv: 20 vectors of 4 dimensions from 4 columns, 0, 1, 2, 3 (text)",
        "labels: column 'label', 2 classes",
        "names: column 'name'",
    ]
    run = RunStore(tmp_path / "runs")["mine"]
    assert run.info["source"]["said"] == said.splitlines()
    np.testing.assert_allclose(run.steps[0].features, VALUES, rtol=1e-6)
    assert run.name == "Mine"


def test_every_option(tmp_path):
    np.savez(tmp_path / "x.npz", one=VALUES, two=VALUES)
    np.save(tmp_path / "second.npy", VALUES + 1)
    (tmp_path / "labels.txt").write_text("\n".join(["a", "b"] * 10))
    code, _, said = command(
        tmp_path / "x.npz",
        *("--columns", "two", "--labels", tmp_path / "labels.txt", "--second", tmp_path / "second.npy"),
        *("--drop-bad", "--name", "other", "--runs", tmp_path),
    )
    assert code == 0, said
    run = RunStore(tmp_path)["other"]
    assert run.eval_set.class_names == ("a", "b")
    assert "alignment" in run.steps[0].metrics


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["missing.npy"], 1, "error: there is no file missing.npy"),
        ([], 2, "required"),
        (["good.npy", "--second", "good.npy"], 1, "error: the second view, good.npy, holds the same vectors"),
        (["bad.npy"], 1, "error: of the 20 rows of bad.npy"),
        (["bad.npy", "--labels", "nowhere"], 1, "error: labels must be a file or a column"),
    ],
)
def test_what_cannot_be_imported_ends_with_one_sentence(tmp_path, monkeypatch, words, code, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    np.save(tmp_path / "good.npy", VALUES)
    values = VALUES.copy()
    values[4] = 0
    np.save(tmp_path / "bad.npy", values)
    found, out, said = command(*words, *(["--runs", tmp_path / "runs"] if words else []))
    assert found == code
    assert out == ""
    assert sentence in said
    assert "Traceback" not in said
    assert not (tmp_path / "runs").exists()
