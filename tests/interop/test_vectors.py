import io
import json
import pickle
from collections import namedtuple
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image
from safetensors.numpy import save_file

from moco_core.interop.formats import digest
from moco_core.interop.problem import VectorsError
from moco_core.interop.thumbnails import thumbnails
from moco_core.interop.vectors import Choices, read_vectors

N, D = 12, 3
VALUES = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
LABELS = np.arange(N) % 3
WORDS = [f"word {i}" for i in range(N)]


def frame(**more):
    return pd.DataFrame({f"v{i}": VALUES[:, i] for i in range(D)} | more)


def csv(path, table, **more):
    table.to_csv(path, index=False, **more)
    return path


def read(path, **choices):
    return read_vectors(path, Choices(**choices))


def same(found, values=VALUES):
    np.testing.assert_allclose(found.vectors.values, values, rtol=1e-6)
    assert found.vectors.values.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8"])
def test_npy_of_any_kind_of_number(tmp_path, dtype):
    values = (np.abs(VALUES) * 50 + 1).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    found = read(tmp_path / "a.npy")
    same(found, values.astype(np.float32))
    assert found.source["dtype"] == dtype
    assert found.source["sha256"] == digest(tmp_path / "a.npy")
    assert found.sentences[0] == "a.npy: 12 vectors of 3 dimensions from the array (npy)"
    assert found.vectors.names is None
    assert (found.vectors.labels == -1).all()


def test_columns_that_could_be_labels_are_offered(tmp_path):
    topics = np.array(["a", "b"])[np.arange(N) % 2]
    table = frame(text=WORDS, topic=topics)
    found = read(csv(tmp_path / "a.csv", table), columns=("v0", "v1", "v2"))
    assert "labels: none found; --labels takes a column: topic" in found.sentences
    found = read(csv(tmp_path / "a.csv", table), columns=("v0", "v1", "v2"), labels="topic")
    assert found.vectors.class_names == ("a", "b")
    assert "labels: none found" in read(csv(tmp_path / "a.csv", frame(text=WORDS))).sentences


def test_npz_with_labels_names_and_ids(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        other=np.ones((N, 9)),
        embeddings=VALUES,
        labels=LABELS,
        names=WORDS,
        id=LABELS * 0 + np.arange(N) + 7,
    )
    found = read(tmp_path / "a.npz")
    same(found)
    assert found.vectors.labels.tolist() == LABELS.tolist()
    assert found.vectors.class_names == ("0", "1", "2")
    assert found.vectors.names == tuple(WORDS)
    assert found.vectors.sample_ids.tolist() == list(range(7, 7 + N))
    assert found.vectors.values.shape[1] == D
    assert read(tmp_path / "a.npz", columns=("other",)).vectors.values.shape[1] == 9


def test_an_npy_has_no_names_to_choose_by(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    with pytest.raises(VectorsError, match="holds one array, which has no name"):
        read(tmp_path / "a.npy", columns=("embeddings",))


def test_a_column_of_an_npz_may_have_a_second_axis(tmp_path):
    np.savez(tmp_path / "a.npz", embeddings=VALUES, labels=LABELS[:, None])
    assert read(tmp_path / "a.npz").vectors.labels.tolist() == LABELS.tolist()


def test_the_only_flat_array_of_an_npz_is_taken(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", anything=VALUES, cube=np.ones((2, 2, 2)))
    same(read(tmp_path / "a.npz"))


def test_safetensors(tmp_path):
    save_file({"vectors": VALUES, "labels": LABELS}, tmp_path / "a.safetensors")
    found = read(tmp_path / "a.safetensors")
    same(found)
    assert found.vectors.labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), D), pa.large_list(pa.float32())]
)
def test_parquet_with_a_column_of_lists(tmp_path, kind):
    table = pa.table(
        {"embedding": pa.array(VALUES.tolist(), kind), "label": ["x", "y", None] * 4, "word": WORDS}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    same(found)
    assert found.vectors.labels.tolist() == [0, 1, -1] * 4
    assert found.vectors.class_names == ("x", "y")
    assert found.vectors.names == tuple(WORDS)
    assert "labels: column 'label', 2 classes, 4 without" in found.sentences


def test_parquet_with_numeric_columns(tmp_path):
    frame(label=LABELS, id=np.arange(N)[::-1]).to_parquet(tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    same(found)
    assert found.source["vectors"] == "3 columns, v0, v1, v2"
    assert found.vectors.sample_ids.tolist() == list(range(N))[::-1]


@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("csv", ";"), ("tsv", "\t"), ("csv", "\t")])
def test_text_with_titles(tmp_path, ending, separator):
    found = read(csv(tmp_path / f"a.{ending}", frame(label=LABELS, name=WORDS), sep=separator))
    same(found)
    assert found.vectors.labels.tolist() == LABELS.tolist()
    assert found.vectors.names == tuple(WORDS)


@pytest.mark.parametrize("separator", [" ", ",", "\t", ";"])
def test_text_as_r_writes_it_without_a_title_for_the_names_of_the_rows(tmp_path, separator):
    kinds = np.array(["NA", "OK", "not so"])[LABELS]

    def table(names):
        rows = [['"v0"', '"v1"', '"v2"', '"kind"']]
        for name, values, kind in zip(names, VALUES.tolist(), kinds, strict=True):
            rows.append([f'"{name}"', *map(str, values), f'"{kind}"'])
        path = tmp_path / "a.csv"
        path.write_text("".join(separator.join(row) + "\n" for row in rows))
        return read(path, labels="kind")

    named = table([f"gene_{i}" for i in range(N)])
    same(named)
    assert named.vectors.names == tuple(f"gene_{i}" for i in range(N))
    assert named.vectors.class_names == ("NA", "OK", "not so")
    counted = table(range(1, N + 1))
    same(counted)
    assert counted.vectors.sample_ids.tolist() == list(range(1, N + 1))


def test_text_without_titles_and_as_pandas_and_numpy_write_it(tmp_path):
    same(read(csv(tmp_path / "a.csv", frame(), header=False)))
    pd.DataFrame(VALUES).to_csv(tmp_path / "b.csv")
    found = read(tmp_path / "b.csv")
    same(found)
    assert found.vectors.sample_ids.tolist() == list(range(N))
    np.savetxt(tmp_path / "c.txt", VALUES)
    same(read(tmp_path / "c.txt"))
    pd.DataFrame({"x": VALUES[:, 0], "y": VALUES[:, 1]}).to_csv(tmp_path / "d.csv", index=False)
    same(read(tmp_path / "d.csv"), VALUES[:, :2])


def test_words_with_their_vectors_in_plain_text(tmp_path):
    lines = [
        f"{word.replace(' ', '_')} {' '.join(map(str, row))}" for word, row in zip(WORDS, VALUES, strict=True)
    ]
    (tmp_path / "glove.txt").write_text("\n".join([lines[0].replace("word_0", '"'), *lines[1:]]))
    found = read(tmp_path / "glove.txt", names="0")
    same(found)
    assert found.vectors.names[:2] == ('"', "word_1")
    assert found.vectors.names == read(tmp_path / "glove.txt").vectors.names


@pytest.mark.parametrize("written", [json.dumps, lambda row: str(np.array(row)), lambda row: str(tuple(row))])
def test_a_text_column_of_lists(tmp_path, written):
    table = pd.DataFrame({"what": [written(row) for row in VALUES.tolist()], "class": ["a", "b"] * 6})
    found = read(csv(tmp_path / "a.csv", table))
    np.testing.assert_allclose(found.vectors.values, VALUES, atol=1e-6)
    assert found.vectors.class_names == ("a", "b")


def test_words_that_look_like_missing_values_are_words(tmp_path):
    words = ["NA", "null", "None", *WORDS[3:-1], ""]
    path = csv(tmp_path / "a.csv", frame(word=words, label=["None", "golden retriever"] * 6))
    found = read(path)
    assert found.vectors.names == tuple(words)
    assert found.vectors.class_names == ("None", "golden retriever")
    np.save(tmp_path / "b.npy", VALUES)
    for name in ("labels.txt", "labels.csv"):
        (tmp_path / name).write_text("golden retriever\nclass 1\n" * 6)
        assert read(tmp_path / "b.npy", labels=name).vectors.class_names == ("class 1", "golden retriever")


def test_too_many_classes_are_no_classes(tmp_path, monkeypatch):
    monkeypatch.setattr("moco_core.interop.columns.MOST_CLASSES", 10)
    path = csv(tmp_path / "a.csv", frame(label=WORDS))
    with pytest.raises(
        VectorsError, match="column 'label' holds 12 different values, where labels are at most 10"
    ):
        read(path, labels="label")
    found = read(path)
    assert (found.vectors.labels == -1).all()
    assert any(
        s.startswith("labels: none taken, as column 'label' holds 12 different") for s in found.sentences
    )
    assert read(path, labels="none", names="label").vectors.names == tuple(WORDS)


def test_columns_that_are_named_make_the_vectors(tmp_path):
    path = csv(tmp_path / "a.csv", frame(weight=np.arange(N)))
    same(read(path, columns=("v0", "v1", "v2")))
    assert read(path).vectors.values.shape[1] == 4
    assert read(path, labels="weight").vectors.values.shape[1] == 3


def test_quotation_marks_in_projector_metadata_are_part_of_the_names(tmp_path):
    np.savetxt(tmp_path / "vectors.tsv", VALUES, delimiter="\t")
    words = ['"quoted" word', '"', 'a 5" disk', *WORDS[3:]]
    (tmp_path / "metadata.tsv").write_text("".join(f"{w}\n" for w in words))
    assert read(tmp_path / "vectors.tsv").vectors.names == tuple(words)


def test_projector_files(tmp_path):
    np.savetxt(tmp_path / "vectors.tsv", VALUES, delimiter="\t")
    same(read(tmp_path / "vectors.tsv"))
    (tmp_path / "metadata.tsv").write_text("".join(f"{w}\n" for w in WORDS))
    found = read(tmp_path / "vectors.tsv")
    same(found)
    assert found.vectors.names == tuple(WORDS)
    assert found.source["format"] == "TensorBoard projector TSV"
    assert (found.vectors.labels == -1).all()
    csv(
        tmp_path / "metadata.tsv",
        pd.DataFrame({"label": LABELS, "class": [f"c{i}" for i in LABELS]}),
        sep="\t",
    )
    found = read(tmp_path / "vectors.tsv")
    assert found.vectors.labels.tolist() == LABELS.tolist()
    assert found.vectors.class_names == ("c0", "c1", "c2")
    (tmp_path / "metadata.tsv").write_text("one\ntwo\n")
    with pytest.raises(VectorsError, match=r"metadata\.tsv has 1 rows where there are 12 vectors"):
        read(tmp_path / "vectors.tsv")


def test_labels_from_a_file(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    np.save(tmp_path / "l.npy", LABELS)
    (tmp_path / "l.txt").write_text("\n".join(f"c{i}" for i in LABELS))
    csv(tmp_path / "titled.csv", pd.DataFrame({"kind": [f"c{i}" for i in LABELS]}))
    csv(tmp_path / "many.csv", pd.DataFrame({"name": WORDS, "label": LABELS - 1}))
    assert read(tmp_path / "a.npy", labels=str(tmp_path / "l.npy")).vectors.labels.tolist() == LABELS.tolist()
    for name in ("l.txt", "titled.csv"):
        found = read(tmp_path / "a.npy", labels=name)
        assert found.vectors.labels.tolist() == LABELS.tolist()
        assert found.vectors.class_names == ("c0", "c1", "c2")
        assert found.vectors.names is None
    found = read(tmp_path / "a.npy", labels="many.csv")
    assert found.vectors.names == tuple(WORDS)
    assert found.vectors.labels.tolist() == (LABELS - 1).tolist()
    assert found.source["labels"] == "column 'label' of many.csv"


def test_labels_of_a_file_go_before_those_beside_the_vectors(tmp_path):
    path = csv(tmp_path / "a.csv", frame(label=LABELS))
    (tmp_path / "l.txt").write_text("\n".join("xy"[i % 2] for i in range(N)))
    found = read(path, labels="l.txt")
    assert found.vectors.class_names == ("x", "y")
    assert "l.txt: columns 0" in found.sentences  # and not those of the vectors' own file
    csv(tmp_path / "l.csv", pd.DataFrame({"note": WORDS, "label": [f"new {i}" for i in LABELS]}))
    assert read(path, labels="l.csv").vectors.class_names == ("new 0", "new 1", "new 2")


def test_text_beside_the_vectors_may_look_like_numbers(tmp_path):
    codes = [*map(str, range(N - 1)), "none"]
    found = read(csv(tmp_path / "a.csv", frame(code=codes)))
    assert found.vectors.values.shape == (N, D)


DECIMALS = {
    "semicolons.csv": "a;b;c\n0,5;1;2,25\n1,5;2;-3e1\n",
    "untitled.csv": "0,5;1;2,25\n1,5;2;-3e1\n",
    "quoted.csv": 'a;b;c\n"0,5";"1";"2,25"\n"1,5";"2";"-3e1"\n',
    "tabs.tsv": "a\tb\tc\n0,5\t1\t2,25\n1,5\t2\t-3e1\n",
    "spaces.txt": "0,5 1,0 2,25\n1,5 2,0 -3e1\n",
}


@pytest.mark.parametrize("name", DECIMALS)
def test_decimal_commas_are_read_as_such(tmp_path, name):
    (tmp_path / name).write_text(DECIMALS[name])
    found = read(tmp_path / name)
    same(found, [[0.5, 1, 2.25], [1.5, 2, -30]])
    assert "(text with decimal commas)" in found.sentences[0]


def test_commas_that_part_cells_or_thousands_are_no_decimal_commas(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    same(read(tmp_path / "a.csv"), [[1, 2], [3, 4]])
    (tmp_path / "b.csv").write_text("1, 2\n3, 4\n")
    same(read(tmp_path / "b.csv"), [[1, 2], [3, 4]])
    (tmp_path / "c.csv").write_text("a;b;c\n1,234;0.5;1\n1,999;0.25;2\n")
    assert read(tmp_path / "c.csv").source["vectors"] == "2 columns, b, c"


@pytest.mark.parametrize("name", ["a.npz", "a.parquet", "b.parquet"])
def test_what_unpacks_to_more_than_the_memory_is_refused(tmp_path, name, monkeypatch):
    sound_files(tmp_path)
    free = namedtuple("Memory", "available")
    monkeypatch.setattr("psutil.virtual_memory", lambda: free(100))
    with pytest.raises(VectorsError, match=f"{name} unpacks to 0.0 GiB, and 0.0 GiB of memory are free"):
        read(tmp_path / name)
    monkeypatch.setattr("psutil.virtual_memory", lambda: free(10_000))
    same(read(tmp_path / name))


def test_a_header_of_an_array_that_is_too_long_is_no_pickle(tmp_path):
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 4), }".ljust(20_000)
    (tmp_path / "a.npy").write_bytes(
        b"\x93NUMPY\x02\x00" + len(head).to_bytes(4, "little") + head + bytes(80)
    )
    with pytest.raises(VectorsError, match=r"a\.npy can't be read: Header info length"):
        read(tmp_path / "a.npy")


def test_spaces_and_separators_at_the_ends_make_no_columns(tmp_path):
    lines = ["v0, v1, v2 , label, name,"]
    lines += [", ".join(map(repr, row.tolist())) + f', {i % 3}, "n, {i}",' for i, row in enumerate(VALUES)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    found = read(tmp_path / "a.csv")
    same(found)
    np.testing.assert_array_equal(found.vectors.labels, LABELS)
    assert found.vectors.names == tuple(f"n, {i}" for i in range(N))


def test_ids_of_many_digits_are_names(tmp_path):
    long = [f"{i}2345678901234567890123" for i in range(1, N + 1)]
    found = read(csv(tmp_path / "a.csv", frame(id=long)))
    same(found)
    assert found.vectors.names == tuple(long)


def test_labels_of_several_fields_are_text(tmp_path):
    np.savez(tmp_path / "a.npz", embeddings=VALUES, label=np.array([(1, 2)] * N, dtype="i4,i4"))
    assert read(tmp_path / "a.npz").vectors.class_names == ("(1, 2)",)


def test_labels_of_bytes_are_text(tmp_path):
    words = np.array([b"caf\xc3\xa9", b"\xff"] * (N // 2))
    np.savez(tmp_path / "a.npz", embeddings=VALUES, label=words)
    assert read(tmp_path / "a.npz").vectors.class_names == ("café", "\ufffd")
    np.save(tmp_path / "b.npy", VALUES)
    for name, column in (("l.npy", words), ("l.npz", None)):
        if column is None:
            np.savez(tmp_path / name, label=words)
        else:
            np.save(tmp_path / name, column)
        assert read(tmp_path / "b.npy", labels=name).vectors.class_names == ("café", "\ufffd")


@pytest.mark.parametrize("label", [np.full(N, 1e300), np.full(N, 2**64 - 1, np.uint64)])
def test_labels_that_no_number_can_hold_are_said(tmp_path, label):
    np.savez(tmp_path / "a.npz", embeddings=VALUES, label=label)
    found = read(tmp_path / "a.npz")
    assert "labels: none taken, as column 'label' holds 1" in found.sentences[1]
    assert found.vectors.labels.tolist() == [-1] * N
    with pytest.raises(VectorsError, match="whole numbers are below"):
        read(tmp_path / "a.npz", labels="label")


def test_labels_large_numbers_missing_values_and_none(tmp_path):
    big = csv(tmp_path / "a.csv", frame(label=LABELS * 1_000_000))
    assert read(big).vectors.class_names == ("0", "1000000", "2000000")
    assert read(big).vectors.labels.tolist() == LABELS.tolist()
    gaps = csv(tmp_path / "b.csv", frame(label=np.where(LABELS == 1, np.nan, LABELS)))
    assert read(gaps).vectors.labels.tolist() == np.where(LABELS == 1, -1, LABELS).tolist()
    assert (read(gaps, labels="none").vectors.labels == -1).all()


def test_bad_rows_are_refused_or_left_out(tmp_path):
    values = VALUES.copy()
    values[[2, 5], 1] = np.nan, np.inf
    values[7] = 0
    path = csv(tmp_path / "a.csv", pd.DataFrame(values).assign(label=LABELS, name=WORDS))
    with pytest.raises(
        VectorsError,
        match=r"of the 12 rows .* 2 are not finite .* first is row 2; 1 is zero, the first is row 7.*--drop-bad",
    ):
        read(path)
    found = read(path, drop_bad=True)
    kept = [i for i in range(N) if i not in (2, 5, 7)]
    same(found, VALUES[kept])
    assert found.vectors.labels.tolist() == LABELS[kept].tolist()
    assert found.vectors.names == tuple(WORDS[i] for i in kept)
    assert found.source["left_out"] == {"not finite (NaN or infinity)": 2, "zero": 1}
    assert "left out: 1 of 12 rows, zero" in found.sentences


def test_a_second_view(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    np.save(tmp_path / "b.npy", VALUES + 1)
    found = read(tmp_path / "a.npy", second=str(tmp_path / "b.npy"))
    np.testing.assert_allclose(found.vectors.second_view, VALUES + 1)
    assert found.source["second_view"]["file"] == "b.npy"
    np.save(tmp_path / "c.npy", VALUES[:4])
    with pytest.raises(VectorsError, match=r"shape of a\.npy, 12×3; c.npy has 4×3"):
        read(tmp_path / "a.npy", second=str(tmp_path / "c.npy"))
    np.save(tmp_path / "d.npy", np.where(np.arange(N)[:, None] == 4, np.nan, VALUES).astype(np.float64))
    for first, second in ("ad", "da"):
        with pytest.raises(VectorsError, match=r"of the 12 rows of d\.npy .* the first is row 4"):
            read(tmp_path / f"{first}.npy", second=str(tmp_path / f"{second}.npy"))
    csv(tmp_path / "d.csv", pd.DataFrame(np.load(tmp_path / "d.npy")))
    for first, second in (("a.npy", "a.npy"), ("d.npy", "d.csv")):
        with pytest.raises(VectorsError, match=rf"{second}, holds the same vectors as {first}.*leave it out"):
            read(tmp_path / first, second=str(tmp_path / second), drop_bad=True)
    a = csv(tmp_path / "a.csv", frame(id=np.arange(N)))
    b = csv(tmp_path / "b.csv", frame(id=np.roll(np.arange(N), 1)))
    with pytest.raises(VectorsError, match="same order; column 'id' differs first in row 0"):
        read(a, second=str(b))


def picture(path, shade, size=(40, 20)):
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", size, (shade, 0, 0)).save(path)


def test_images_by_column_by_name_and_by_order(tmp_path):
    for i in range(N):
        picture(tmp_path / "pics" / f"p{i:02}.png", 10 * i, (64, 64))
    (tmp_path / "pics" / "p03.png").write_bytes(b"broken")
    shade = [10 * i if i != 3 else 128 for i in range(N)]
    path = csv(
        tmp_path / "a.csv",
        frame(picture=[f"pics/p{i:02}.png" for i in range(N)], name=[f"p{i:02}" for i in range(N)]),
    )
    found = read(path, images="picture")
    assert found.vectors.thumbnails.shape == (N, 64, 64, 3)
    assert found.vectors.thumbnails[:, 30, 30, 0].tolist() == shade
    assert found.source["images_unreadable"] == 1
    assert any("11 read, 1 unreadable and shown grey (the first is p03.png" in s for s in found.sentences)
    by_name = read(path, images="pics")
    np.testing.assert_array_equal(by_name.vectors.thumbnails, found.vectors.thumbnails)
    assert by_name.source["images"] == "folder pics, by name"
    np.save(tmp_path / "b.npy", VALUES)
    by_order = read(tmp_path / "b.npy", images=str(tmp_path / "pics"))
    np.testing.assert_array_equal(by_order.vectors.thumbnails, found.vectors.thumbnails)
    assert by_order.source["images"] == "folder pics, by order of their paths"
    for name in ("._p00.png", ".trash/p00.png", "__MACOSX/p00.png"):  # which systems leave behind
        picture(tmp_path / "pics" / name, 255)
    by_order = read(tmp_path / "b.npy", images="pics")
    np.testing.assert_array_equal(by_order.vectors.thumbnails, found.vectors.thumbnails)
    (tmp_path / "pics" / "p03.png").unlink()
    with pytest.raises(VectorsError, match="holds 11 images for 12 vectors, and without names"):
        read(tmp_path / "b.npy", images="pics")


def test_images_are_read_as_those_to_train_on(tmp_path):
    """Upright, whole between bars, sixteen bits scaled; and nothing that would start another program."""
    turned = np.zeros((20, 40, 3), np.uint8)
    turned[:, :20] = 255
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # held on its side: left is up
    Image.fromarray(turned).save(tmp_path / "0.png", exif=exif)
    Image.fromarray(np.full((8, 8), 200 << 8, np.uint16)).save(tmp_path / "1.png")
    (tmp_path / "2.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n")
    found = thumbnails([tmp_path / f"{i}.png" for i in range(3)])
    assert found.pixels[0, :, 32, 0].tolist() == [255] * 32 + [0] * 32
    assert (found.pixels[0, :, [0, -1]] == 0).all()
    assert (found.pixels[1] == 200).all()
    assert (found.unreadable, found.first) == (1, "2.png: not an image")


def test_images_stored_in_a_parquet_column(tmp_path):
    def encoded(shade):
        file = io.BytesIO()
        Image.new("L", (16, 8), shade).save(file, "png")
        return file.getvalue()

    table = pa.table(
        {
            "embedding": pa.array(VALUES.tolist()),
            "image": [{"bytes": encoded(20 * i), "path": None} for i in range(N)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    pixels = read(tmp_path / "a.parquet", images="image").vectors.thumbnails
    assert pixels[:, 32, 32, 1].tolist() == [20 * i for i in range(N)]
    assert (pixels[:, 0] == 0).all()  # a wide picture is padded, not stretched


class Trap:
    def __reduce__(self):
        return (print, ("ran",))


def refused(tmp_path):
    """File name → (how to make it, what is said)."""
    one = np.ones((N, D), np.float32)
    return {
        "a.pkl": (lambda p: p.write_bytes(pickle.dumps(one)), "a.pkl is a pickle, .* any code"),
        "model.pt": (lambda p: p.write_bytes(b"PK"), "is a pickle"),
        "a.xlsx": (lambda p: p.write_bytes(b"PK"), "accepted are .npy, .npz, .parquet"),
        "empty.csv": (lambda p: p.write_bytes(b""), "empty.csv is empty"),
        "o.npy": (
            lambda p: np.save(p, np.array([Trap()], object), allow_pickle=True),
            "o.npy holds Python objects.*never opened",
        ),
        "o.npz": (
            lambda p: np.savez(p, embeddings=one, names=np.array(WORDS, object)),
            r"array 'names' of o\.npz holds Python objects.*never opened.*names\.astype\(str\)",
        ),
        "t.npz": (lambda p: np.savez(p, x=np.array([Trap()], object)), "t.npz holds Python objects"),
        "utf16.csv": (lambda p: p.write_text("a,b\n1,2\n3,4\n", "utf-16"), "utf16.csv is text in UTF-16; save it as"),
        "flat.npy": (lambda p: np.save(p, np.ones(5)), r"has shape \(5,\); vectors are N×D"),
        "complex.npy": (lambda p: np.save(p, one * 1j), "holds complex64; vectors are made of real numbers"),
        "text.csv": (lambda p: p.write_text("a,b\nx,y\nz,w\n"), "has no numeric columns .* a, b"),
        "fake.npy": (lambda p: p.write_text("1,2\n3,4\n"), "fake.npy is no npy file, whatever its name says"),
        "fake.parquet": (lambda p: p.write_text("1,2\n"), "is no parquet file"),
        "cut.parquet": (lambda p: p.write_bytes(b"PAR1xx"), "cut.parquet can't be read"),
        "fake.csv": (lambda p: np.save(p.open("wb"), one), "fake.csv is no csv file"),
        "fake.safetensors": (lambda p: p.write_text("hello world"), "can't be read as safetensors"),
        "cut.npz": (lambda p: p.write_bytes(b"PK\x03\x04rest"), "cut.npz can't be read"),
        "two.npz": (lambda p: np.savez(p, a=one, b=one), "leaves open which .* a 12×3, b 12×3"),
        "ragged.csv": (
            lambda p: p.write_text('v\n"[1, 2]"\n"[3]"\n"[1, 2]"\n"[]"\n'),
            "differ in length: 2 numbers in row 0, 1 in row 1 .2 rows",
        ),
        "lines.csv": (lambda p: p.write_text("a,b\n1,2\n1,2,3\n"), "lines.csv can't be read as a table of text"),
        "untitled.csv": (  # else a column further left would have its place
            lambda p: p.write_text("a,b,label\n" + "1.5,2.5,3.5,0\n" * 4),
            "the rows of untitled.csv have more cells than its first line has titles",
        ),
        "unnamed.csv": (  # each number once: may as well be those of a
            lambda p: p.write_text("a,b\n" + "".join(f"{i / 7},{i},{i * i}\n" for i in range(9))),
            "the rows of unnamed.csv have more cells than its first line has titles",
        ),
        "even.csv": (
            lambda p: p.write_text("a,b\n" + "".join(f"{2 * i},{i / 7},{i * i}\n" for i in range(9))),
            "the rows of even.csv have more cells than its first line has titles",
        ),
        "ended.csv": (  # by a comma
            lambda p: p.write_text("name,a\nx,1,\ny,2,\nz,3,\n"),
            "the rows of ended.csv have more cells than its first line has titles",
        ),
        "named.csv": (
            lambda p: p.write_text("name,a\nx,p,1\ny,q,2\nz,r,3\n"),
            "the rows of named.csv have more cells than its first line has titles",
        ),
        "alike.csv": (lambda p: p.write_text("a,a ,b\n1,2,3\n4,5,6\n"), "has more than one column 'a'"),
        "latin.csv": (lambda p: p.write_bytes("näme,b\n1,2\n".encode("latin1")), "can't be read as a table"),
        "ids.csv": (
            lambda p: csv(p, frame(id=np.arange(N) // 2)),
            "column 'id' gives 6 ids more than once, the first is 0",
        ),
        "words.csv": (lambda p: csv(p, frame(id=["a", "a", *WORDS[2:]])), "gives 1 ids more than once, the first is a"),
        "typo.csv": (
            lambda p: csv(p, frame(v3=["1.5"] * (N - 1) + ["1,5x"])),
            r"column 'v3' of typo\.csv holds numbers, but text in 1 rows, first in row 11 \('1,5x'\)",
        ),
        "zip.npz": (lambda p: p.write_bytes(b"PK, just words"), "zip.npz is no npz file"),
        "nothing.npz": (lambda p: np.savez(p), "it holds nothing"),
        "large.npz": (
            lambda p: np.savez(p, embeddings=one, id=np.arange(N) + 2.0**63),
            r"column 'id' holds 9\.223372036854776e\+18; whole numbers are below 2\^63",
        ),
        "unsigned.npz": (
            lambda p: np.savez(p, embeddings=one, id=np.arange(N, dtype=np.uint64) + 2**63),
            "column 'id' holds 9223372036854775819; whole numbers are below",
        ),
        "f8.safetensors": (
            lambda p: p.write_bytes(
                (72).to_bytes(8, "little")
                + b'{"embeddings":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]}}   '
                + bytes(4)
            ),
            "f8.safetensors can't be read as safetensors of numpy's types",
        ),
        "one.npy": (lambda p: np.save(p, np.ones((1, 4))), "the array of one.npy is 1×4; .* at least 2 rows"),
        "none.npy": (lambda p: np.save(p, np.ones((4, 0))), "the array of none.npy is 4×0; .* 2 dimensions"),
        "thousands.csv": (
            lambda p: p.write_text("a;b\n" + "1.234,5;2,5\n" * 3),
            "column 'b' of thousands.csv is 3×1; vectors need at least 2 rows and 2 dimensions",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", refused(None))
def test_bad_files_are_refused_in_a_sentence(tmp_path, name, capsys):
    make, sentence = refused(tmp_path)[name]
    make(tmp_path / name)
    with pytest.raises(VectorsError, match=sentence) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert "ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"columns": ("v0", "nope")}, "has no column 'nope'; it has v0, v1, v2, name, score"),
        ({"columns": ("name",)}, "column 'name' of a.csv holds text"),
        ({"labels": "score"}, "column 'score' holds fractions; labels are whole numbers or text"),
        ({"labels": "nope"}, "no 'nope', and its columns beside the vectors are name"),
        ({"names": "nope"}, r"names must be a column beside the vectors \(name\)"),
        ({"images": "nope"}, "images must be a folder or a column"),
        ({"images": "name"}, "none of 12 images can be read; the first is word 0: No such file"),
        ({"second": "nope.npy"}, "there is no file nope.npy"),
        ({"second": "~nobody-of-that-name/x.npy"}, "there is no file ~nobody-of-that-name"),
        ({"labels": "~nobody-of-that-name/x.npy"}, "there is no '~nobody-of-that-name"),
        ({"images": "~nobody-of-that-name/x"}, "images must be a folder"),
    ],
)
def test_choices_that_do_not_fit_are_refused(tmp_path, choices, sentence):
    path = csv(tmp_path / "a.csv", frame(name=WORDS, score=np.linspace(0, 1, N)))
    with pytest.raises(VectorsError, match=sentence):
        read(path, **choices)


def test_labels_of_another_length_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    np.save(tmp_path / "l.npy", LABELS[:-1])
    with pytest.raises(VectorsError, match=r"l\.npy has 11 rows where there are 12 vectors"):
        read(tmp_path / "a.npy", labels="l.npy")
    csv(tmp_path / "l.csv", pd.DataFrame({"a": WORDS, "b": WORDS}))
    with pytest.raises(VectorsError, match=r"l\.csv leaves open which column holds the labels; it has a, b"):
        read(tmp_path / "a.npy", labels="l.csv")


def sound_files(folder):
    """One file of each format."""
    np.save(folder / "a.npy", VALUES)
    np.savez_compressed(folder / "a.npz", embeddings=VALUES, labels=LABELS)
    save_file({"vectors": VALUES, "labels": LABELS}, folder / "a.safetensors")
    csv(folder / "a.csv", frame(label=LABELS, name=WORDS))
    frame(label=LABELS).to_parquet(folder / "a.parquet")
    pq.write_table(pa.table({"e": pa.array(VALUES.tolist()), "name": WORDS}), folder / "b.parquet")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.safetensors", "a.csv", "a.parquet", "b.parquet"])
def test_damaged_files_are_read_or_refused_in_one_line(tmp_path, name):
    sound_files(tmp_path)
    path, rng = tmp_path / name, np.random.default_rng(0)
    sound, refusals = path.read_bytes(), []
    for _ in range(80):
        damaged = bytearray(sound)
        for place in rng.integers(0, len(damaged), rng.integers(1, 12)):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged[: rng.integers(1, len(damaged))] if rng.random() < 0.3 else damaged)
        try:
            read(path, drop_bad=True)
        except VectorsError as error:
            refusals.append(str(error))
    assert len(refusals) > 10
    assert [sentence for sentence in refusals if "\n" in sentence] == []


def test_an_index_of_pandas_is_a_column(tmp_path):
    frame().set_index(pd.Index(WORDS)).to_parquet(tmp_path / "a.parquet")
    frame().set_index(pd.Index(WORDS, name="word")).to_parquet(tmp_path / "b.parquet")
    for name in ("a.parquet", "b.parquet"):
        found = read(tmp_path / name)
        same(found)
        assert found.vectors.names == tuple(WORDS)
    pq.write_table(pa.table([pa.array(VALUES[:, 0])] * 2, names=["v", "v"]), tmp_path / "c.parquet")
    with pytest.raises(VectorsError, match="more than one column 'v'"):
        read(tmp_path / "c.parquet")


@pytest.mark.parametrize("lists", [None, pa.list_, pa.large_list, lambda kind: pa.list_(kind, D)])
def test_decimal_numbers_of_parquet(tmp_path, lists):
    kind = pa.decimal128(12, 2)
    rows = [[Decimal(f"{i}.{j}5") for j in range(D)] for i in range(N)]
    columns = (
        {f"v{j}": pa.array([row[j] for row in rows], kind) for j in range(D)}
        if lists is None
        else {"vectors": pa.array(rows, lists(kind))}
    )
    labels = pa.array([Decimal(int(label)) for label in LABELS], pa.decimal128(5, 0))
    pq.write_table(pa.table(columns | {"label": labels}), tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet")
    same(found, np.array(rows, np.float32))
    assert found.vectors.labels.tolist() == LABELS.tolist()
