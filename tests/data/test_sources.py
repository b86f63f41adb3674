"""Data sets by name."""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torchvision import datasets

from moco_core import config
from moco_core.data import downloads, sources
from moco_core.data.images import DataError
from moco_core.data.sources import LOADERS, load
from tests.data.files import write_images, write_mnist, write_pickle


@pytest.fixture(autouse=True)
def _only_what_the_test_puts_there(request, tmp_path, monkeypatch):
    """No data sets from elsewhere on this machine, and no network."""
    if "real" in request.node.name:
        return

    def unreachable(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr(downloads, "SYSTEM_ROOT", tmp_path / "no-system-data")
    monkeypatch.setenv("MOCO_DATA", str(tmp_path / "data"))


# Digits


def test_digits_are_scikit_learns_twice_as_large():
    train, held_out = load("digits")
    assert (len(train), len(held_out)) == (1438, 359)
    pixels, labels = load_digits(return_X_y=True)
    for part in (train, held_out):
        assert part.images.shape[1:] == (1, 16, 16)
        ids = part.sample_ids.numpy()
        np.testing.assert_array_equal(part.labels.numpy(), labels[ids])
        small = F.avg_pool2d(part.images.float(), 2)[:, 0].numpy()  # bilinear enlargement, averaged back
        original = pixels[ids].reshape(-1, 8, 8) * 255 / 16
        assert np.corrcoef(small.ravel(), original.ravel())[0, 1] > 0.97
    assert train.images.max() == 255
    assert train.class_names == tuple("0123456789")
    assert not set(train.sample_ids.tolist()) & set(held_out.sample_ids.tolist())


def test_digits_are_divided_the_same_way_in_every_class_and_every_time():
    train, held_out = load("digits")
    share = held_out.labels.bincount() / (train.labels.bincount() + held_out.labels.bincount())
    assert (share - 0.2).abs().max() < 0.01
    assert load("digits")[0].fingerprint() == train.fingerprint()


def test_digits_at_their_own_size_are_exact():
    train, _ = load("digits", image_size=8)
    pixels = load_digits().images[train.sample_ids.numpy()]
    np.testing.assert_array_equal(train.images[:, 0].numpy(), np.round(pixels * 255 / 16))


# MNIST and its kin


@pytest.mark.parametrize("place", ["data/MNIST/raw", "data/mnist", "no-system-data/mnist"])
@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_is_read_where_it_lies(tmp_path, place, zipped):
    arrays = write_mnist(tmp_path / place, zipped=zipped)
    train, held_out = load("mnist")
    np.testing.assert_array_equal(train.images[:, 0].numpy(), arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(held_out.images[:, 0].numpy(), arrays["t10k-images-idx3-ubyte"])
    np.testing.assert_array_equal(train.labels.numpy(), arrays["train-labels-idx1-ubyte"])
    np.testing.assert_array_equal(held_out.labels.numpy(), arrays["t10k-labels-idx1-ubyte"])
    assert train.sample_ids.tolist() == list(range(12))
    assert held_out.sample_ids.tolist() == list(range(12, 17))


def test_the_data_root_can_be_given(tmp_path):
    write_mnist(tmp_path / "other" / "FashionMNIST" / "raw")
    train, _ = load("fashion-mnist", tmp_path / "other")
    assert train.class_names[9] == "Ankle boot"
    assert len(train) == 12


def test_images_and_labels_that_dont_belong_together(tmp_path):
    folder = tmp_path / "data" / "mnist"
    write_mnist(folder, train=12)
    labels = (folder / "train-labels-idx1-ubyte.gz").read_bytes()
    write_mnist(folder, train=13)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(labels)
    with pytest.raises(DataError, match="don't belong together"):
        load("mnist")


def test_another_size_is_averaged_over(tmp_path):
    arrays = write_mnist(tmp_path / "data" / "mnist")
    train, held_out = load("mnist", image_size=14)
    assert train.images.shape == (12, 1, 14, 14)
    assert held_out.images.shape == (5, 1, 14, 14)
    original = torch.from_numpy(arrays["train-images-idx3-ubyte"])[:, None].float()
    expected = F.interpolate(original, size=14, mode="bilinear", antialias=True)
    assert (train.images.float() - expected).abs().max() <= 0.501


def real_fashion_mnist() -> Path:
    """Where the real files are, or skip; a continuous integration run must have them."""
    folders = [downloads.SYSTEM_ROOT / "fashion-mnist", sources.default_root() / "FashionMNIST" / "raw"]
    found = next((f for f in folders if (f / "train-images-idx3-ubyte.gz").is_file()), None)
    if found is None:
        message = f"Fashion-MNIST isn't in {folders[0]} or {folders[1]}"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return found


def test_real_fashion_mnist():
    folder = real_fashion_mnist()
    train, held_out = load("fashion-mnist")
    assert train.images.shape == (60_000, 1, 28, 28)
    assert held_out.images.shape == (10_000, 1, 28, 28)
    assert train.labels.bincount().tolist() == [6000] * 10
    assert held_out.labels.bincount().tolist() == [1000] * 10
    content = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    assert held_out.images.numpy().tobytes() == content[16:]
    means = torch.stack([held_out.images[held_out.labels == c].float().mean() for c in range(10)])
    assert means.argmin() == 5  # sandals are the darkest, coats and shirts the brightest
    assert held_out.class_names[int(means.argmax())] in ("Coat", "Pullover")


# CIFAR and STL


def fake_cifar(root: Path, monkeypatch: pytest.MonkeyPatch, kind: type, key: str, names: str) -> np.ndarray:
    generator = np.random.default_rng(1)
    pixels = generator.integers(0, 256, (8, 3 * 32 * 32), dtype=np.uint8)
    folder = root / kind.base_folder
    parts = {"one": pixels[:3], "two": pixels[3:6], "held": pixels[6:]}
    sums = {
        name: write_pickle(folder / name, {"data": rows, key: list(range(len(rows)))})
        for name, rows in parts.items()
    }
    meta = write_pickle(folder / "meta", {names: [f"class {i}" for i in range(10)]})
    monkeypatch.setattr(kind, "train_list", [["one", sums["one"]], ["two", sums["two"]]])
    monkeypatch.setattr(kind, "test_list", [["held", sums["held"]]])
    monkeypatch.setattr(kind, "meta", {"filename": "meta", "key": names, "md5": meta})
    return pixels.reshape(-1, 3, 32, 32)


@pytest.mark.parametrize(
    ("name", "kind", "key", "names"),
    [
        ("cifar10", datasets.CIFAR10, "labels", "label_names"),
        ("cifar100", datasets.CIFAR100, "fine_labels", "fine_label_names"),
    ],
)
def test_cifar_is_read_where_it_lies(tmp_path, monkeypatch, name, kind, key, names):
    pixels = fake_cifar(tmp_path / "data", monkeypatch, kind, key, names)
    train, held_out = load(name)
    np.testing.assert_array_equal(train.images.numpy(), pixels[:6])
    np.testing.assert_array_equal(held_out.images.numpy(), pixels[6:])
    assert train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert held_out.sample_ids.tolist() == [6, 7]
    assert train.class_names[3] == "class 3"
    assert train.images.is_contiguous()


def test_stl10_trains_on_labelled_and_unlabelled_images(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "stl10_binary"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(2)
    arrays = {
        "train_X.bin": generator.integers(0, 256, (2, 3, 96, 96), dtype=np.uint8),
        "train_y.bin": np.array([1, 10], np.uint8),
        "unlabeled_X.bin": generator.integers(0, 256, (3, 3, 96, 96), dtype=np.uint8),
        "test_X.bin": generator.integers(0, 256, (2, 3, 96, 96), dtype=np.uint8),
        "test_y.bin": np.array([4, 5], np.uint8),
    }
    for name, array in arrays.items():
        (folder / name).write_bytes(array.tobytes())
    (folder / "class_names.txt").write_text("\n".join(f"class {i}" for i in range(10)))
    sums = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in arrays}
    for lists in ("train_list", "test_list"):
        files = [[name, sums[name]] for name, _ in getattr(datasets.STL10, lists)]
        monkeypatch.setattr(datasets.STL10, lists, files)
    train, held_out = load("stl10")
    assert train.labels.tolist() == [0, 9, -1, -1, -1]
    assert held_out.labels.tolist() == [3, 4]
    # the files hold columns first
    np.testing.assert_array_equal(train.images[0].numpy(), arrays["train_X.bin"][0].transpose(0, 2, 1))
    np.testing.assert_array_equal(train.images[4].numpy(), arrays["unlabeled_X.bin"][2].transpose(0, 2, 1))
    assert train.class_names[9] == "class 9"


# Downloads


@pytest.mark.parametrize(
    ("name", "file", "folder"),
    [
        ("mnist", "train-images-idx3-ubyte.gz", "MNIST/raw"),
        ("fashion-mnist", "t10k-labels-idx1-ubyte.gz", "FashionMNIST/raw"),
        ("cifar10", "cifar-10-python.tar.gz", ""),
        ("cifar100", "cifar-100-python.tar.gz", ""),
        ("stl10", "stl10_binary.tar.gz", ""),
    ],
)
def test_a_failed_download_says_which_files_to_put_where(tmp_path, name, file, folder):
    with pytest.raises(DataError) as caught:
        load(name)
    sentence = str(caught.value)
    assert sentence.startswith(f"{name} could not be downloaded (")
    assert "Name or service not known" in sentence
    assert file in sentence
    assert f"into {tmp_path / 'data' / folder} by hand" in sentence
    assert "\n" not in sentence


def test_a_place_that_cant_be_written_to_is_an_answer(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="could not be downloaded"):
        load("cifar10", tmp_path / "file" / "below")


def test_downloads_give_up_on_silent_connections_and_leave_the_setting_as_it_was(tmp_path, monkeypatch):
    seen = []

    def refuse(*_: object, **__: object) -> None:
        seen.append(socket.getdefaulttimeout())
        raise OSError("no route")

    monkeypatch.setattr(datasets.CIFAR10, "download", refuse)
    with pytest.raises(DataError, match="no route"):
        load("cifar10")
    assert seen == [downloads.TIMEOUT]
    assert socket.getdefaulttimeout() is None


# Names


def test_known_names_are_those_of_the_config():
    assert tuple(LOADERS) == config.DATASETS


@pytest.mark.parametrize(
    ("name", "near"),
    [("mnits", "'mnist'"), ("cifar-10", "'cifar10'"), ("fashion", "'fashion-mnist'"), ("Digits", "'digits'")],
)
def test_unknown_names_bring_the_nearest_ones(name, near):
    with pytest.raises(DataError, match="dataset must be one of digits, ") as caught:
        load(name)
    assert repr(name) in str(caught.value)
    assert "did you mean" in str(caught.value)
    assert near in str(caught.value)


def test_folders_come_by_their_path(tmp_path, monkeypatch):
    write_images(tmp_path / "mine", *(f"{i}.png" for i in range(6)))
    assert len(load(f"folder:{tmp_path / 'mine'}")[0]) == 4
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("folder:~/mine", image_size=8)[0].images.shape == (4, 3, 8, 8)
    monkeypatch.chdir(tmp_path)
    assert load("folder:mine")[0].name == "mine"


def test_default_root(monkeypatch, tmp_path):
    monkeypatch.delenv("MOCO_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sources.default_root() == tmp_path / ".cache" / "moco-lens"
