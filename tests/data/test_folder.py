"""Folders of one's own, well formed and not."""

from __future__ import annotations

import os
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from moco_core.data import folder as folder_module
from moco_core.data.folder import load_folder
from moco_core.data.images import DataError
from moco_core.data.listing import list_folder
from tests.data.files import write_images


def classes(root: Path, count: int = 10, names: tuple[str, ...] = ("cat", "dog")) -> Path:
    write_images(root, *(f"{name}/{i:02}.png" for name in names for i in range(count)))
    return root


def refusal(root: Path, size: int | None = None) -> str:
    with pytest.raises(DataError) as caught:
        load_folder(root, size)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


# What is read


def test_a_class_per_sub_folder(tmp_path):
    train, held_out = load_folder(classes(tmp_path), None)
    assert train.class_names == held_out.class_names == ("cat", "dog")
    assert train.images.shape == (16, 3, 32, 32)
    assert held_out.images.shape == (4, 3, 32, 32)
    assert held_out.labels.bincount().tolist() == [2, 2]
    ids = torch.cat([train.sample_ids, held_out.sample_ids])
    assert ids.sort().values.tolist() == list(range(20))
    for part in (train, held_out):
        assert part.labels.equal((part.sample_ids >= 10).long())
        assert part.skipped == ()
        assert part.name == tmp_path.name


def test_pixels_belong_to_the_file_that_the_id_names(tmp_path):
    classes(tmp_path)
    files = list_folder(tmp_path).files
    assert files == tuple(sorted(files))
    for part in load_folder(tmp_path, 12):
        for image, i in zip(part.images, part.sample_ids.tolist(), strict=True):
            expected = np.asarray(Image.open(tmp_path / files[i])).transpose(2, 0, 1)
            np.testing.assert_array_equal(image.numpy(), expected)


def test_reading_again_gives_the_same_sets(tmp_path):
    first, second = load_folder(classes(tmp_path), 16), load_folder(tmp_path, 16)
    assert [s.fingerprint() for s in first] == [s.fingerprint() for s in second]
    assert first[0].fingerprint() != load_folder(tmp_path, 8)[0].fingerprint()


def test_a_flat_folder_has_no_labels(tmp_path):
    write_images(tmp_path, *(f"{i}.png" for i in range(10)))
    train, held_out = load_folder(tmp_path, 8)
    assert (len(train), len(held_out)) == (8, 2)
    assert train.class_names == ()
    assert (torch.cat([train.labels, held_out.labels]) == -1).all()


def test_images_outside_the_classes_are_unlabelled(tmp_path):
    write_images(classes(tmp_path), *(f"{i}.png" for i in range(10)))
    train, held_out = load_folder(tmp_path, 8)
    labels = torch.cat([train.labels, held_out.labels])
    assert (labels + 1).bincount().tolist() == [10, 10, 10]


def test_images_deep_in_a_class_belong_to_it(tmp_path):
    write_images(classes(tmp_path), "cat/tabby/old/1.PNG", "cat/tabby/2.JPEG")
    listing = list_folder(tmp_path)
    assert listing.class_names == ("cat", "dog")
    assert {f: int(y) for f, y in zip(listing.files, listing.labels, strict=True)}["cat/tabby/old/1.PNG"] == 0


@pytest.mark.parametrize("name", ["val", "valid", "validation", "test"])
def test_a_given_division_is_kept(tmp_path, name):
    classes(tmp_path / "train", 6)
    classes(tmp_path / name, 3, ("dog", "fox"))
    write_images(tmp_path, "extra/1.png", "loose.png")
    train, held_out = load_folder(tmp_path, 8)
    assert (len(train), len(held_out)) == (12, 6)
    assert train.class_names == ("cat", "dog", "fox")
    assert train.labels.bincount().tolist() == [6, 6]
    assert held_out.labels.bincount().tolist() == [0, 3, 3]


def test_validation_comes_before_test(tmp_path):
    for name, count in (("train", 4), ("val", 2), ("test", 3)):
        classes(tmp_path / name, count)
    assert len(load_folder(tmp_path, 8)[1]) == 4


def test_a_flat_division_has_no_labels(tmp_path):
    for name in ("train", "test"):
        write_images(tmp_path / name, *(f"{i}.png" for i in range(3)))
    train, held_out = load_folder(tmp_path, 8)
    assert (len(train), len(held_out)) == (3, 3)
    assert train.class_names == ()


def test_grey_folders_have_one_channel_mixed_ones_three(tmp_path):
    names = [f"{i}.png" for i in range(6)]
    write_images(tmp_path / "grey", *names, mode="L")
    write_images(tmp_path / "mixed", *names, mode="L")
    write_images(tmp_path / "mixed", "9.png", mode="RGBA")
    assert load_folder(tmp_path / "grey", 8)[0].channels == 1
    train, held_out = load_folder(tmp_path / "mixed", 8)
    assert (train.channels, held_out.channels) == (3, 3)


def test_hidden_and_foreign_files_are_left_out(tmp_path):
    classes(tmp_path)
    write_images(tmp_path, ".thumbnails/1.png", "cat/.hidden.png", "__MACOSX/1.png")
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "README.md").write_text("nor this")
    assert len(list_folder(tmp_path).files) == 20


def test_links_are_followed_once_and_never_upwards(tmp_path):
    classes(tmp_path / "data")
    write_images(tmp_path / "elsewhere", "a.png", "b.png")
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "fox")
    os.symlink(tmp_path / "data" / "cat", tmp_path / "data" / "cat" / "again")
    os.symlink(tmp_path, tmp_path / "data" / "dog" / "up")
    os.symlink(tmp_path / "data" / "circle", tmp_path / "data" / "circle")
    listing = list_folder(tmp_path / "data")
    assert listing.class_names == ("cat", "dog", "fox")
    assert len(listing.files) == 22


def test_a_root_that_is_itself_a_link(tmp_path):
    classes(tmp_path / "data")
    os.symlink(tmp_path / "data", tmp_path / "link")
    assert len(load_folder(tmp_path / "link", 8)[0]) == 16


# Damage


def test_broken_images_are_counted_named_and_skipped(tmp_path):
    classes(tmp_path)
    (tmp_path / "cat" / "03.png").write_bytes(b"broken")
    (tmp_path / "dog" / "zz.jpg").write_bytes(b"")
    os.symlink(tmp_path / "gone", tmp_path / "dog" / "lost.png")
    train, held_out = load_folder(tmp_path, 8)
    assert len(train) + len(held_out) == 19
    assert sorted(train.skipped) == [
        "cat/03.png: not an image",
        "dog/lost.png: No such file or directory",
        "dog/zz.jpg: not an image",
    ]
    assert held_out.skipped == train.skipped
    ids = torch.cat([train.sample_ids, held_out.sample_ids]).tolist()
    assert list_folder(tmp_path).files.index("cat/03.png") not in ids


def test_skipping_moves_no_other_image_to_the_other_set(tmp_path):
    classes(tmp_path)
    before = {int(i) for i in load_folder(tmp_path, 8)[0].sample_ids}
    files = list_folder(tmp_path).files
    (tmp_path / files[3]).write_bytes(b"broken")
    after = {int(i) for i in load_folder(tmp_path, 8)[0].sample_ids}
    assert after == before - {3}


def test_a_folder_without_permission_is_named_and_skipped(tmp_path, monkeypatch):
    classes(tmp_path, names=("cat", "dog", "fox"))
    scandir = os.scandir

    def guarded(path: str) -> object:
        if Path(path).name == "fox":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)  # the superuser, who may run the tests, can list everything
    train, _ = load_folder(tmp_path, 8)
    assert train.skipped == ("fox: Permission denied",)
    assert train.class_names == ("cat", "dog")


def test_nothing_to_read(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    (tmp_path / "file.png").write_bytes(b"")
    assert refusal(tmp_path / "nowhere") == f"there is no folder {tmp_path / 'nowhere'}"
    assert refusal(tmp_path / "file.png") == f"{tmp_path / 'file.png'} is not a folder"
    for name in ("empty", "texts"):
        assert f"{tmp_path / name} holds no images; accepted are .jpg" in refusal(tmp_path / name)


def test_an_empty_class_is_named(tmp_path):
    classes(tmp_path)
    (tmp_path / "emu").mkdir()
    (tmp_path / "gnu").mkdir()
    (tmp_path / "gnu" / "list.csv").write_text("1,2")
    assert "each is a class: fill or remove emu, gnu" in refusal(tmp_path)


def test_an_empty_class_of_a_given_division_is_named(tmp_path):
    classes(tmp_path / "train")
    classes(tmp_path / "val")
    (tmp_path / "train" / "emu").mkdir()
    assert "train/emu" in refusal(tmp_path)


def test_a_division_with_an_empty_half(tmp_path):
    classes(tmp_path / "train")
    (tmp_path / "val").mkdir()
    assert "must hold at least 2 readable held-out images, got 0" in refusal(tmp_path)


def test_a_class_whose_images_are_all_broken_is_named(tmp_path):
    classes(tmp_path)
    write_images(tmp_path, "emu/1.png")
    (tmp_path / "emu" / "1.png").write_bytes(b"broken")
    sentence = refusal(tmp_path)
    assert "classes without a readable image: emu" in sentence
    assert "emu/1.png: not an image" in sentence


def test_too_few_images(tmp_path):
    write_images(tmp_path, "1.png", "2.png", "3.png")
    assert "must hold at least 4 images, got 3" in refusal(tmp_path)
    write_images(tmp_path, "4.png")
    train, held_out = load_folder(tmp_path, 8)
    assert (len(train), len(held_out)) == (2, 2)
    (tmp_path / "4.png").write_bytes(b"broken")
    assert "readable" in refusal(tmp_path)
    assert "4.png: not an image" in refusal(tmp_path)


def test_long_lists_of_names_are_cut(tmp_path):
    write_images(tmp_path, "readable.png")
    for i in range(40):
        (tmp_path / f"{i:02}.png").write_bytes(b"broken")
    sentence = refusal(tmp_path)
    assert "unreadable" in sentence
    assert len(sentence) < 400 + len(str(tmp_path))


def test_images_that_dont_fit_into_memory(tmp_path, monkeypatch):
    classes(tmp_path)
    Memory = namedtuple("Memory", "available")
    monkeypatch.setattr(folder_module.psutil, "virtual_memory", lambda: Memory(available=10_000))
    sentence = refusal(tmp_path, 64)
    assert "20 images" in sentence
    assert "choose an image_size below 64" in sentence
