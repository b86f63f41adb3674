"""Thumbnails are what they were, and names are never markup."""

import base64
import io
from html.parser import HTMLParser

import numpy as np
from PIL import Image

from moco_core.dashboard.gallery import Card, card, data_uri, gallery_html, neighbour
from moco_core.dashboard.palette import RIGHT, WRONG
from moco_core.runs import EvalSet

EVIL = "<img src=x onerror=alert(1)>\"' & <b>bold</b>"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text += data


def parsed(html):
    reader = Tags()
    reader.feed(html)
    return reader


def test_samples_without_an_image_are_shown_by_name():
    nothing = np.zeros((2, 0, 0, 0), np.uint8)
    images = EvalSet(nothing, np.array([0, -1]), np.array([7, 8]), ("cat",), (EVIL, ""))
    assert [images.title(row) for row in (0, 1)] == [f"{EVIL} (cat)", "unlabelled #8"]
    found = parsed(gallery_html([[card(images, 0, "cosine 0.5", "#123456"), card(images, 1)]]))
    assert set(found.tags) <= {"div", "figure", "br", "span"}
    assert EVIL in found.text
    assert "cosine 0.5" in found.text
    assert any("#123456" in value for name, value in found.attributes if name == "style")
    assert any("line-clamp" in value for name, value in found.attributes if name == "style")
    assert ("title", f"{EVIL} (cat)") in found.attributes  # all of a name that is cut


def test_names_are_shown_as_they_are():
    images = EvalSet(np.zeros((2, 4, 4, 1), np.uint8), np.array([0, -1]), np.array([7, 8]), (EVIL,))
    found = parsed(gallery_html([[card(images, 0, f"cosine {EVIL}"), card(images, 1)]]))
    assert set(found.tags) <= {"div", "figure", "img", "figcaption", "br", "span"}
    assert found.tags.count("img") == 2
    assert EVIL in found.text
    assert "unlabelled #8" in found.text
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert ("title", f"{EVIL} #7") in found.attributes


def test_small_images_arrive_exactly():
    for channels in (1, 3):
        image = np.random.default_rng(0).integers(0, 256, (28, 28, channels), dtype=np.uint8)
        kind, _, content = data_uri(image).partition(",")
        assert kind == "data:image/png;base64"
        np.testing.assert_array_equal(
            np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))), image.squeeze()
        )


def test_large_images_are_compressed():
    image = np.full((64, 64, 3), 120, np.uint8)
    kind, _, content = data_uri(image).partition(",")
    assert kind == "data:image/jpeg;base64"
    found = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
    assert np.abs(found.astype(int) - 120).max() <= 3


def test_a_line_sets_its_first_card_apart():
    plain = Card(np.zeros((2, 2, 1), np.uint8), "a")
    assert "→" in gallery_html([[plain, plain]], apart=True)
    assert "→" not in gallery_html([[plain]], apart=True)
    assert "outline:3px solid #d55e00" in gallery_html([[Card(plain.image, "a", mark="#d55e00")]])


def test_neighbours_are_framed_by_class_where_both_are_known():
    images = EvalSet(np.zeros((4, 0, 0, 0), np.uint8), np.array([0, 0, 1, -1]), np.arange(4), ("a", "b"))
    assert [neighbour(images, 0, other, "").mark for other in (1, 2, 3)] == [RIGHT, WRONG, ""]
    assert neighbour(images, 3, 0, "").mark == neighbour(images, 3, 3, "").mark == ""
