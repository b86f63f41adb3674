"""Streaming against the same folder in memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from moco_core.data import readahead, reading, survey
from moco_core.data.batches import batch_indices
from moco_core.data.folder import load_folder
from moco_core.data.images import DataError
from moco_core.data.listing import list_folder
from moco_core.data.sources import open_images
from moco_core.data.streaming import StreamedImages, stream_folder
from tests.data.files import write_images


@pytest.fixture
def root(tmp_path) -> Path:
    """Three classes of pictures of many sizes, some of them broken."""
    root = tmp_path / "pictures"
    for c, name in enumerate(("cat", "dog", "fox")):
        write_images(root, *(f"{name}/{i:02}.png" for i in range(12)), size=(9 + 5 * c, 14))
    (root / "cat" / "05.png").write_bytes(b"broken")
    (root / "fox" / "11.png").write_bytes(b"")
    return root


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def orders(count: int, steps: range) -> list[torch.Tensor]:
    return [batch_indices(count, 8, seed=0, step=step) for step in steps]


def test_a_streamed_set_is_the_set_in_memory(root, cache):
    for streamed, held in zip(stream_folder(root, 16, cache), load_folder(root, 16), strict=True):
        assert len(streamed) == len(held)
        assert streamed.labels.equal(held.labels)
        assert streamed.sample_ids.equal(held.sample_ids)
        assert (streamed.channels, streamed.image_size) == (held.channels, held.image_size)
        assert (streamed.class_names, streamed.name) == (held.class_names, held.name)
        assert streamed.skipped == held.skipped
        assert len(streamed.skipped) == 2
        assert streamed.fingerprint() == held.fingerprint()
        assert streamed.batch(torch.arange(len(held))).equal(held.images)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_names_that_are_no_utf8_stream_too(tmp_path, cache):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    write_images(tmp_path, *(f"{i}.png" for i in range(6)))
    folder.mkdir()
    for i in range(6):
        (tmp_path / f"{i}.png").rename(folder / os.fsdecode(b"%d\xff.png" % i))
    train, held_out = stream_folder(folder, 12, cache)
    in_memory, _ = load_folder(folder, 12)
    assert (len(train), len(held_out)) == (4, 2)
    assert train.fingerprint() == in_memory.fingerprint()


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_read_ahead_are_those_in_memory(root, cache, workers):
    streamed, held = stream_folder(root, 16, cache, workers)[0], load_folder(root, 16)[0]
    coming = orders(len(held), range(1, 21))
    streamed.expect(coming)
    for indices in coming:
        for _ in range(2):  # two views
            assert streamed.batch(indices).equal(held.batch(indices))


def test_other_requests_in_between_are_answered_and_disturb_nothing(root, cache):
    streamed, held = stream_folder(root, 16, cache, 1)[0], load_folder(root, 16)[0]
    coming = orders(len(held), range(5, 15))
    streamed.expect(iter(coming))
    for i, indices in enumerate(coming):
        assert streamed.batch(indices).equal(held.batch(indices))
        if i % 3 == 0:
            past = orders(len(held), range(1, 3))[i % 2]
            assert streamed.batch(past).equal(held.batch(past))
            assert streamed.subset(torch.tensor([3, 1])).images.equal(held.images[[3, 1]])
    assert streamed.batch(coming[0]).equal(held.batch(coming[0]))  # beyond the end


def test_what_was_announced_is_read_by_workers_alone(root, cache, monkeypatch):
    streamed = stream_folder(root, 16, cache, 1)[0]
    coming = orders(len(streamed), range(1, 9))
    streamed.expect(coming)
    monkeypatch.setattr(
        "moco_core.data.streaming.read_all", lambda *_, **__: pytest.fail("read in this process")
    )
    for indices in coming:
        streamed.batch(indices)


def test_reading_ahead_leaves_the_global_generator_alone(root, cache):
    streamed = stream_folder(root, 16, cache, 1)[0]
    before = torch.get_rng_state()
    streamed.expect(orders(len(streamed), range(1, 4)))
    streamed.batch(orders(len(streamed), range(1, 2))[0])
    assert torch.get_rng_state().equal(before)


def test_subset_is_an_image_set_in_memory(root, cache):
    streamed, held = stream_folder(root, 16, cache)[1], load_folder(root, 16)[1]
    rows = torch.tensor([2, 0])
    part, expected = streamed.subset(rows), held.subset(rows)
    assert part.images.equal(expected.images)
    assert part.labels.equal(expected.labels)
    assert part.sample_ids.equal(expected.sample_ids)
    assert part.class_names == expected.class_names


def test_to_sends_batches_elsewhere(root, cache):
    streamed = stream_folder(root, 16, cache)[0]
    moved = streamed.to("meta")
    assert moved.batch(torch.tensor([0, 1])).device.type == "meta"
    assert moved.labels.device.type == "meta"
    assert streamed.batch(torch.tensor([0, 1])).device.type == "cpu"


def test_grey_folders_stream_one_channel(tmp_path, cache):
    write_images(tmp_path / "grey", *(f"{i}.png" for i in range(8)), mode="L")
    train, held_out = stream_folder(tmp_path / "grey", 8, cache)
    assert train.batch(torch.tensor([0])).shape == (1, 1, 8, 8)
    assert train.fingerprint() == load_folder(tmp_path / "grey", 8)[0].fingerprint()
    write_images(tmp_path / "grey", "zz.png")  # a coloured one, in the other set or in this
    train, held_out = stream_folder(tmp_path / "grey", 8, cache)
    memory = load_folder(tmp_path / "grey", 8)
    assert (train.channels, held_out.channels) == (3, 3)
    assert [train.fingerprint(), held_out.fingerprint()] == [s.fingerprint() for s in memory]


# The first look


def test_the_first_look_is_remembered(root, cache, monkeypatch):
    first = stream_folder(root, 16, cache)[0]
    monkeypatch.setattr(survey, "read_all", lambda *_, **__: pytest.fail("read again"))
    again = stream_folder(root, 16, cache)[0]
    assert again.fingerprint() == first.fingerprint()
    assert again.skipped == first.skipped


@pytest.mark.parametrize("change", ["mended", "broken", "added", "removed", "size"])
def test_a_change_brings_another_look(root, cache, change):
    before = [part.fingerprint() for part in stream_folder(root, 16, cache)]
    size = 16
    if change == "mended":
        write_images(root, "cat/05.png")
    elif change == "broken":
        (root / "cat" / "01.png").write_bytes(b"broken")
    elif change == "added":
        write_images(root, *(f"dog/more{i}.png" for i in range(4)))
    elif change == "removed":
        for i in range(4):
            (root / "dog" / f"{i:02}.png").unlink()
    else:
        size = 8
    after = [part.fingerprint() for part in stream_folder(root, size, cache)]
    assert after == [part.fingerprint() for part in load_folder(root, size)]
    assert after != before


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"failures": [], "channels": 3, "fingerprints": ["", ""]}']
)
def test_a_damaged_memory_of_it_is_made_again(root, cache, content):
    expected = stream_folder(root, 16, cache)[0].fingerprint()
    (saved,) = cache.glob("survey-*.json")
    saved.write_text(content)
    assert stream_folder(root, 16, cache)[0].fingerprint() == expected
    assert json.loads(saved.read_text())["fingerprints"][0] == expected


def test_a_cache_that_cant_be_written_is_an_answer(root, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"can't be written to \(Not a directory\): set MOCO_DATA"):
        stream_folder(root, 16, tmp_path / "file" / "below")


def test_too_little_to_learn_from_is_said_as_in_memory(root, cache):
    write_images(root, "emu/1.png")
    (root / "emu" / "1.png").write_bytes(b"broken")
    with pytest.raises(DataError, match="classes without a readable image: emu") as streamed:
        stream_folder(root, 16, cache)
    with pytest.raises(DataError) as held:
        load_folder(root, 16)
    assert str(streamed.value) == str(held.value)


# What goes wrong on the way


def lose(streamed: StreamedImages, root: Path, row: int) -> Path:
    path = root / list_folder(root).files[int(streamed.sample_ids[row])]
    path.unlink()
    return path


@pytest.mark.parametrize("ahead", [False, True])
def test_a_file_that_has_gone_is_named(root, cache, ahead):
    streamed = stream_folder(root, 16, cache, 1)[0]
    path = lose(streamed, root, 3)
    indices = torch.tensor([0, 3, 5])
    if ahead:
        streamed.expect([indices])
    with pytest.raises(DataError) as caught:
        streamed.batch(indices)
    assert str(caught.value) == (
        f"{path} can no longer be read (No such file or directory): mend it, then resume the run"
    )


def start_reading_ahead(streamed: StreamedImages, batches: list[torch.Tensor]) -> psutil.Process:
    """Announce the batches; returns the one worker."""
    before = set(psutil.Process().children())
    streamed.expect(batches)
    (worker,) = set(psutil.Process().children()) - before
    return worker


def test_a_killed_worker_is_an_answer(root, cache):
    streamed = stream_folder(root, 16, cache, 1)[0]
    coming = orders(len(streamed), range(1, 40))
    worker = start_reading_ahead(streamed, coming)
    worker.kill()
    with pytest.raises(DataError, match="has ended, perhaps for lack of memory"):
        [streamed.batch(indices) for indices in coming]


def test_workers_end_when_other_batches_are_announced(root, cache):
    streamed = stream_folder(root, 16, cache, 1)[0]
    worker = start_reading_ahead(streamed, orders(len(streamed), range(1, 40)))
    streamed.expect([torch.tensor([0])])
    _, alive = psutil.wait_procs([worker], timeout=30)
    assert not alive


STOPPED_TRAINER = """
import signal, sys, torch
from pathlib import Path
from moco_core.data.batches import batch_indices
from moco_core.data.streaming import stream_folder

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
train = stream_folder(Path(sys.argv[1]), 16, Path(sys.argv[2]), 1)[0]
train.expect(batch_indices(len(train), 8, 0, step) for step in range(1, 10_000))
for step in range(1, 10_000):
    train.batch(batch_indices(len(train), 8, 0, step))
    if step == 1:
        print("reading", flush=True)
    if stopping:
        stopping.append(True)
    if len(stopping) > 30:  # thirty batches after the signal
        print("stopped in order")
        break
"""


def test_a_signal_to_the_group_is_left_to_the_trainer(root, cache):
    trainer = subprocess.Popen(
        [sys.executable, "-c", STOPPED_TRAINER, str(root), str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    assert trainer.stdout.readline() == "reading\n"
    os.killpg(trainer.pid, signal.SIGTERM)
    output, errors = trainer.communicate(timeout=120)
    assert (output, trainer.returncode) == ("stopped in order\n", 0), errors


def test_workers_dont_outlive_a_killed_trainer(root, cache):
    trainer = subprocess.Popen(
        [sys.executable, "-c", STOPPED_TRAINER, str(root), str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    assert trainer.stdout.readline() == "reading\n"
    workers = psutil.Process(trainer.pid).children()
    assert workers
    trainer.kill()
    trainer.communicate(timeout=60)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


def test_workers_share_the_cores_with_their_neighbours(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert readahead.default_workers() == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert readahead.default_workers() == 7
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "64")
    assert readahead.default_workers() == 1


def test_reading_ahead_is_bounded(tmp_path, monkeypatch):
    """The next block of files is begun only when this one has been used up."""
    write_images(tmp_path, *(f"{i:02}.png" for i in range(12)))
    begun = []

    def counted(listing, position, size):
        begun.append(position)
        return reading.Reading(np.zeros((3, size, size), np.uint8), False, "")

    monkeypatch.setattr(reading, "read_one", counted)
    readings = reading.read_all(list_folder(tmp_path), np.arange(12), 8, progress=False, block=4)
    for used in range(1, 13):
        next(readings)
        assert len(begun) <= -(-used // 4) * 4


# Choosing


def test_storage_is_chosen_by_size_and_can_be_set(root, tmp_path, monkeypatch):
    dataset = f"folder:{root}"
    data_root = tmp_path / "data"
    kinds = {
        storage: type(open_images(dataset, data_root, 16, storage)[0]).__name__
        for storage in ("auto", "memory", "stream")
    }
    assert kinds == {"auto": "ImageSet", "memory": "ImageSet", "stream": "StreamedImages"}
    needed = 36 * 3 * 16 * 16
    memory = type("Memory", (), {"available": 2 * needed - 2})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert isinstance(open_images(dataset, data_root, 16)[0], StreamedImages)


@pytest.mark.parametrize(
    ("dataset", "storage", "sentence"),
    [
        ("digits", "stream", "storage 'stream' takes folder:PATH; digits is always held in memory"),
        ("digits", "disk", "storage must be one of auto, memory, stream, got 'disk'"),
        ("folder:/nowhere/at/all", "stream", "there is no folder /nowhere/at/all"),
    ],
)
def test_storage_that_cant_be_had(tmp_path, dataset, storage, sentence):
    with pytest.raises(DataError, match=sentence):
        open_images(dataset, tmp_path, None, storage)


def test_large_pictures_stream_as_they_load(tmp_path, cache):
    root = tmp_path / "large"
    write_images(root, *(f"{i}.jpg" for i in range(5)), size=(300, 200))
    Image.new("RGB", (1, 1), (9, 8, 7)).save(root / "dot.png")
    train, _ = stream_folder(root, 32, cache)
    assert train.batch(torch.arange(len(train))).equal(load_folder(root, 32)[0].images)
