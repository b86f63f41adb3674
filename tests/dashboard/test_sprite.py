"""Every thumbnail lies where the browser looks for it, and the whole stays small."""

import io

import numpy as np
import pytest
from PIL import Image

from moco_core.dashboard.sprite import BLOCK, sprite


def tile(sheet, i):
    x, y = i % sheet.across * sheet.side, i // sheet.across * sheet.side
    picture = np.asarray(Image.open(io.BytesIO(sheet.data)))
    return picture[y : y + sheet.side, x : x + sheet.side]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_small_sets_are_kept_exactly(count, channels):
    images = np.random.default_rng(0).integers(0, 256, (count, 8, 8, channels), dtype=np.uint8)
    sheet = sprite(images)
    assert sheet.mime == "image/png"
    assert sheet.side == 8
    for i in {0, count // 2, count - 1}:
        np.testing.assert_array_equal(tile(sheet, i), images[i].squeeze(-1) if channels == 1 else images[i])


def test_large_sets_are_scaled_down_and_do_not_run_into_each_other():
    images = np.zeros((9000, 40, 40, 3), np.uint8)
    images[1::2] = 255
    sheet = sprite(images)
    assert sheet.mime == "image/jpeg"
    assert sheet.side % BLOCK == 0
    for i in (0, 1, 4321, 8998, 8999):
        assert np.abs(tile(sheet, i).astype(int) - 255 * (i % 2)).max() <= 3


def test_fifty_thousand_thumbnails_are_sent_in_sixteen_megapixels():
    sheet = sprite(np.zeros((50_000, 28, 28, 1), np.uint8))
    assert sheet.side == 16
    assert (sheet.side * sheet.across) ** 2 < 2**24


def test_oblong_images_keep_their_shape():
    images = np.full((3, 4, 8, 1), 200, np.uint8)
    sheet = sprite(images)
    np.testing.assert_array_equal(tile(sheet, 2)[2:6], 200)
    np.testing.assert_array_equal(tile(sheet, 2)[:2], 0)
