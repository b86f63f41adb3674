"""Every page on a run whose backbone gave zero features for some, or for all, of its images."""

from __future__ import annotations

import numpy as np
import pytest

from moco_core.runs import Run, RunWriter, schema
from tests.framed import REPOSITORY, framed, open_app
from tests.synthetic import write_run

__all__ = ["framed"]
PAGES = sorted(path.stem for path in (REPOSITORY / "pages").glob("*.py"))


@pytest.mark.parametrize("dead", [0.3, 1.0])
@pytest.mark.parametrize("page", PAGES)
def test_page(tmp_path, monkeypatch, framed, page, dead):
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))
    for name in ("dying", "other"):
        write_run(tmp_path, name, samples=60, steps=(0, 20))
    kill_features(tmp_path, "dying", dead)
    open_app(page, run="dying", layer="features", a="dying", b="other", a_step="20")


def kill_features(root, name, share):
    """A newer step like the last, but that this share of the features is zero."""
    last = Run(root / name).steps[-1]
    embeddings = dict(last.arrays(schema.EMBEDDINGS_FILE))
    features = embeddings["features"].copy()
    features[: round(share * len(features))] = 0
    embeddings["features"] = features
    RunWriter(root / name).write_step(30, {schema.EMBEDDINGS_FILE: embeddings}, dict(last.metrics))
    assert not np.array_equal(Run(root / name).steps[-1].features, last.features)
