"""What the comparison with embedding-atlas measures and reports, without measuring anything."""

import json
import sys
from contextlib import nullcontext

import pytest

from benchmarks import interop
from moco_core.interop.vectors import read_vectors


def test_the_file_is_one_that_import_reads_with_its_labels(tmp_path):
    vectors = read_vectors(interop.write_vectors(tmp_path / "vectors.parquet", 50)).vectors
    assert vectors.values.shape == (50, 128)
    assert set(vectors.class_names) == {f"class {i}" for i in range(10)}
    assert (vectors.labels >= 0).all()


@pytest.mark.parametrize(
    ("theirs", "ratios"),
    [
        ({"embedding-atlas, points in its view": [40.0, 60.0]}, {"key": 0.5}),
        ({"embedding-atlas, points in its view": [20.0]}, {"key": 1.25}),
        ({"embedding-atlas stopped after": [50.0]}, {"key": 0.5}),
        ({"embedding-atlas stopped after": [20.0]}, {}),  # it may have taken much longer
        ({}, {}),
    ],
    ids=["faster", "slower", "stopped late", "stopped too soon to tell", "not installed"],
)
def test_ratio_is_ours_over_theirs_or_a_bound_that_meets_the_target(theirs, ratios):
    assert interop.compared("key", {"UMAP drawn": [20.0, 30.0], **theirs}) == ratios


def test_without_embedding_atlas_it_says_how_to_install_it_and_gives_our_figures(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(interop, "atlas_program", lambda: None)
    monkeypatch.setattr(interop, "visitor", nullcontext)
    monkeypatch.setattr(interop, "browser_path", lambda: "browser")
    monkeypatch.setattr(interop, "ours", lambda *_: {"UMAP drawn": 12.0})
    monkeypatch.setattr(sys, "argv", ["interop", "--quick", "--json", str(tmp_path / "found.json")])
    interop.main()
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["ratios"] == {}
    assert found["targets"] == {"first-picture/embedding-atlas": ["<=", 1.0]}
    assert found["figures"] == {"UMAP drawn, 2000, s": 12.0}
    assert "pip install embedding-atlas" in capsys.readouterr().err
