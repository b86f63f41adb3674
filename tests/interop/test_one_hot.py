"""Classes told by the place of the 1 in a row of zeros."""

import numpy as np
import pandas as pd
import pytest

from moco_core.interop.problem import VectorsError
from moco_core.interop.vectors import Choices, read_vectors

VECTORS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
CLASSES = [0, 2, 1, 1, 0, 2]
ONE_HOT = np.eye(3)[CLASSES]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool])
@pytest.mark.parametrize("vectors", ["embeddings", "called_otherwise"])
def test_beside_the_vectors(tmp_path, dtype, vectors):
    np.savez(tmp_path / "a.npz", **{vectors: VECTORS}, labels=ONE_HOT.astype(dtype))
    found = read_vectors(tmp_path / "a.npz").vectors
    np.testing.assert_array_equal(found.values, VECTORS)
    assert found.labels.tolist() == CLASSES
    assert found.class_names == ("0", "1", "2")


def test_vectors_may_look_like_that_where_nothing_else_is_there(tmp_path):
    np.savez(tmp_path / "a.npz", z=ONE_HOT)
    assert read_vectors(tmp_path / "a.npz").vectors.values.tolist() == ONE_HOT.tolist()


@pytest.mark.parametrize("labels", [ONE_HOT, ONE_HOT.astype(int), np.array(CLASSES)[:, None]])
@pytest.mark.parametrize("vectors", ["lists", "numbers"])
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_in_a_column_of_lists(tmp_path, ending, vectors, labels):
    numbers = {f"v{i}": VECTORS[:, i] for i in range(4)}
    table = pd.DataFrame({"called": VECTORS.tolist()} if vectors == "lists" else numbers)
    table["y" if vectors == "lists" else "told"] = labels.tolist()
    path = tmp_path / f"a{ending}"
    table.to_parquet(path) if ending == ".parquet" else table.to_csv(path, index=False)
    found = read_vectors(path, Choices(labels="" if vectors == "lists" else "told")).vectors
    np.testing.assert_allclose(found.values, VECTORS, rtol=1e-6)
    assert found.labels.tolist() == CLASSES


def test_in_a_parquet_file_of_labels(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    pd.DataFrame({"told": ONE_HOT.tolist()}).to_parquet(tmp_path / "labels.parquet")
    assert (
        read_vectors(tmp_path / "a.npy", Choices(labels="labels.parquet")).vectors.labels.tolist() == CLASSES
    )


def test_what_is_no_column_is_said_to_be_left_aside(tmp_path):
    shares = ONE_HOT / 2
    np.savez(tmp_path / "a.npz", embeddings=VECTORS, labels=shares, ids=np.arange(5))
    pd.DataFrame({"x": VECTORS.tolist(), "labels": shares.tolist()}).to_parquet(tmp_path / "a.parquet")
    for name, aside in (("a.npz", "labels, ids"), ("a.parquet", "labels")):
        found = read_vectors(tmp_path / name)
        assert found.sentences[1:] == (
            "labels: none found",
            f"left aside, as not one entry a vector: {aside}",
        )


def test_in_a_file_of_labels(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    np.save(tmp_path / "labels.npy", ONE_HOT)
    found = read_vectors(tmp_path / "a.npy", Choices(labels="labels.npy")).vectors
    assert found.labels.tolist() == CLASSES


def test_titles_of_a_table_are_the_classes(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    rows = "\n".join(",".join(f"{x:.0f}" for x in row) for row in ONE_HOT)
    (tmp_path / "labels.csv").write_text(f"cat,dog,bird\n{rows}\n")
    found = read_vectors(tmp_path / "a.npy", Choices(labels="labels.csv")).vectors
    names = [found.class_names[label] for label in found.labels]
    assert names == [("cat", "dog", "bird")[i] for i in CLASSES]


def test_two_classes_in_a_row_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", VECTORS)
    np.save(tmp_path / "labels.npy", np.ones((6, 3)))
    with pytest.raises(VectorsError, match="one label a row, or a row of zeros with a 1 for its class"):
        read_vectors(tmp_path / "a.npy", Choices(labels="labels.npy"))
