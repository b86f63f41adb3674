from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from moco_core.data.images import ImageSet


@pytest.fixture
def images() -> ImageSet:
    pixels = torch.randint(
        0, 256, (6, 3, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return ImageSet(pixels, torch.tensor([0, 1, 2, -1, 1, 0]), torch.arange(6) + 100, ("a", "b", "c"), "six")


def test_batch_takes_the_rows_asked_for(images):
    indices = torch.tensor([4, 0, 4])
    assert images.batch(indices).equal(images.images[indices])
    assert images.batch(indices).dtype == torch.uint8


def test_subset_keeps_images_labels_and_ids_together(images):
    part = images.subset(torch.tensor([5, 3]))
    assert part.images.equal(images.images[[5, 3]])
    assert part.labels.tolist() == [0, -1]
    assert part.sample_ids.tolist() == [105, 103]
    assert part.class_names == images.class_names
    assert len(part) == 2


def test_thumbnails_are_the_pixels_with_channels_last(images):
    thumbnails = images.thumbnails()
    assert thumbnails.shape == (6, 4, 5, 3)
    assert thumbnails.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(thumbnails[2, 1, 3], images.images[2, :, 1, 3].numpy())


def test_fingerprint_is_the_digest_of_shape_labels_and_pixels(images):
    content = b"(6, 3, 4, 5)" + images.labels.numpy().tobytes() + images.images.numpy().tobytes()
    assert images.fingerprint() == hashlib.sha256(content).hexdigest()


def test_fingerprint_sees_one_changed_pixel_label_or_shape(images):
    pixels = images.images.clone()
    pixels[3, 1, 2, 2] ^= 1
    labels = images.labels.clone()
    labels[0] = 2
    changed = [
        dataclasses.replace(images, images=pixels),
        dataclasses.replace(images, labels=labels),
        dataclasses.replace(images, images=images.images.reshape(6, 3, 5, 4)),
    ]
    assert len({images.fingerprint(), *(c.fingerprint() for c in changed)}) == 4


def test_fingerprint_doesnt_see_the_memory_layout(images):
    other = dataclasses.replace(images, images=images.images.to(memory_format=torch.channels_last))
    assert other.fingerprint() == images.fingerprint()


def test_to_moves_every_tensor(images):
    moved = images.to("meta")
    assert {t.device.type for t in (moved.images, moved.labels, moved.sample_ids)} == {"meta"}


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        (
            "images",
            torch.zeros(6, 3, 4, 5),
            r"images must be uint8 N×C×H×W, got torch.float32 \(6, 3, 4, 5\)",
        ),
        ("images", torch.zeros(6, 4, 5, dtype=torch.uint8), "images must be uint8 N×C×H×W"),
        (
            "labels",
            torch.zeros(5, dtype=torch.int64),
            r"labels must be 6 int64 values, got torch.int64 \(5,\)",
        ),
        ("sample_ids", torch.zeros(6), "sample_ids must be 6 int64 values, got torch.float32"),
    ],
)
def test_what_doesnt_fit_together_is_refused(images, field, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(images, **{field: value})
