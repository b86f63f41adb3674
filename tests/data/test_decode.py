from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image

from moco_core.data.decode import DecodeError, decode

COLOUR = (200, 100, 50)


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def quarters(width: int = 40, height: int = 40) -> Image.Image:
    """Red top left, green top right, blue bottom left, white bottom right."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2] = 255, 0, 0
    pixels[: height // 2, width // 2 :] = 0, 255, 0
    pixels[height // 2 :, : width // 2] = 0, 0, 255
    pixels[height // 2 :, width // 2 :] = 255, 255, 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "webp", "tiff", "ppm"])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "CMYK", "P", "L", "LA", "1", "LAB", "YCbCr"])
def test_every_mode_of_every_format(tmp_path, suffix, mode):
    path = tmp_path / f"image.{suffix}"
    try:
        saved(Image.new("RGB", (12, 10), COLOUR).convert(mode), path)
    except (OSError, ValueError):
        return  # the format has no such mode
    with Image.open(path) as stored:
        expected = np.asarray(stored.convert("RGBA").convert("RGB")).mean(axis=(0, 1))
        stored_grey = stored.mode in ("L", "LA", "1")
    pixels, grey = decode(path, 8)
    assert pixels.shape == (8, 8, 3)
    assert pixels.dtype == np.uint8
    assert grey == stored_grey
    difference = np.abs(pixels.mean(axis=(0, 1)) - expected).max()
    assert difference < (40 if mode == "1" else 3)  # dithered to black and white


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_come_out_upright(tmp_path, suffix, orientation):
    """Stored the way that a camera held askew stores it, shown as it was seen."""
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,  # shown by turning it clockwise
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    upright = quarters(60, 40)
    stored = upright.transpose(undo[orientation]) if orientation in undo else upright
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    path = saved(stored, tmp_path / f"image.{suffix}", exif=exif)
    pixels, _ = decode(path, 16)
    expected = np.asarray(quarters(16, 16)).astype(int)
    for corner in ((3, 3), (3, 12), (12, 3), (12, 12)):
        assert np.abs(pixels[corner].astype(int) - expected[corner]).max() < 25


def test_the_middle_square_is_kept(tmp_path):
    pixels = np.zeros((30, 90, 3), np.uint8)
    pixels[:, 30:60] = 255
    square, _ = decode(saved(Image.fromarray(pixels), tmp_path / "wide.png"), 10)
    assert (square[:, 1:-1] == 255).all()  # the outermost blend with what lies beyond
    square, _ = decode(saved(Image.fromarray(pixels.transpose(1, 0, 2)), tmp_path / "high.png"), 10)
    assert (square[1:-1] == 255).all()


def test_shrinking_averages(tmp_path):
    checks = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    pixels, grey = decode(saved(Image.fromarray(checks), tmp_path / "checks.png"), 8)
    assert grey
    assert np.abs(pixels.astype(int) - 127).max() <= 2


@pytest.mark.parametrize("size", [8, 50, 200])
def test_coarse_jpeg_decoding_shows_the_same_picture(tmp_path, size):
    generator = np.random.default_rng(0)
    rough = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    large = rough.resize((1600, 1200), Image.Resampling.BICUBIC)
    pixels, _ = decode(saved(large, tmp_path / "large.jpg", quality=95), size)
    exact = large.crop((200, 0, 1400, 1200)).resize((size, size), Image.Resampling.BILINEAR)
    assert np.abs(pixels.astype(int) - np.asarray(exact).astype(int)).mean() < 4


def test_one_pixel_fills_the_square(tmp_path):
    pixels, _ = decode(saved(Image.new("RGB", (1, 1), COLOUR), tmp_path / "dot.png"), 32)
    assert (pixels == COLOUR).all()


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (90, 30), (30, 90)])
def test_of_a_picture_that_is_shown_whole_something_is_seen(tmp_path, size):
    pixels, _ = decode(saved(Image.new("RGB", size, COLOUR), tmp_path / "strip.png"), 30, whole=True)
    seen = (pixels == COLOUR).all(2)
    assert seen.sum() == 30 * max(1, 30 * min(size) // max(size))
    assert (pixels[~seen] == 0).all()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("mode", ["L", "1"])
def test_a_hundred_megapixels_are_read(tmp_path, mode):
    path = saved(Image.new(mode, (10_000, 10_000), 255), tmp_path / "huge.png", compress_level=1)
    pixels, grey = decode(path, 32)
    assert grey
    assert (pixels == 255).all()


def test_a_decompression_bomb_is_refused_by_its_header(tmp_path):
    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    path = tmp_path / "bomb.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + body)
    with pytest.raises(DecodeError, match="more than 178,956,970 pixels, which may be a decompression bomb"):
        decode(path, 32)


def test_the_first_frame_of_an_animation_is_taken(tmp_path):
    frames = [Image.new("RGB", (10, 10), c) for c in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    path = saved(frames[0], tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    pixels, _ = decode(path, 8)
    assert (pixels == (255, 0, 0)).all()


def test_sixteen_bit_greys_are_scaled_not_cut(tmp_path):
    ramp = np.linspace(0, 65535, 32 * 32).astype(np.uint16).reshape(32, 32)
    pixels, grey = decode(saved(Image.fromarray(ramp), tmp_path / "deep.png"), 32)
    assert grey
    np.testing.assert_array_equal(pixels[:, :, 0], ramp >> 8)


@pytest.mark.parametrize("highest", [1023, 65535])
def test_greys_of_more_than_eight_bits_in_a_pgm_are_scaled_by_its_header(tmp_path, highest):
    ramp = np.linspace(0, highest, 32 * 32).round().astype(">u2")
    path = tmp_path / "deep.pgm"
    path.write_bytes(b"P5 32 32 %d\n" % highest + ramp.tobytes())
    pixels, grey = decode(path, 32)
    assert grey
    np.testing.assert_allclose(pixels[:, :, 0].ravel(), ramp / highest * 255, atol=1)


def test_palette_transparency_doesnt_disturb(tmp_path):
    image = Image.new("RGB", (8, 8), COLOUR).quantize(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixels, _ = decode(saved(image, tmp_path / "solid.png", transparency=bytes([255, 128, 0])), 8)
    assert (pixels == COLOUR).all()


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "RGB"])
def test_what_is_transparent_is_white(tmp_path, mode, whole):
    """A black bar on nothing, the way that icons and drawings are kept; all of it is black by its colours alone."""
    bar = np.zeros((40, 40), np.uint8)
    bar[:, 20:] = 255  # seen
    path = tmp_path / "bar.png"
    if mode in ("RGBA", "LA"):
        image = Image.fromarray(np.zeros((40, 40), np.uint8)).convert(mode)
        image.putalpha(Image.fromarray(bar))
        image.save(path)
    else:  # one colour stands for nothing: 7, which is nearly black
        image = Image.fromarray(np.where(bar, 0, 7).astype(np.uint8)).convert(mode)
        image.save(path, transparency=(7, 7, 7) if mode == "RGB" else 7)
    pixels, grey = decode(path, 20, whole=whole)
    assert grey == (mode in ("L", "LA"))
    assert (pixels[:, :9] == 255).all()
    assert (pixels[:, 11:] == 0).all()


def broken(tmp_path: Path) -> dict[str, Path]:
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(whole, "JPEG")
    content = whole.getvalue()
    files = {
        "empty.png": b"",
        "text.jpg": b"not a picture at all",
        "half.jpg": content[: len(content) // 2],
        "start.jpg": content[:20],
        "script.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n",
    }
    for name, bad in files.items():
        (tmp_path / name).write_bytes(bad)
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    os.symlink("/dev/zero", tmp_path / "device.png")
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling.png")
    os.symlink(tmp_path / "loop.png", tmp_path / "loop.png")
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(tmp_path / "float.tiff")
    return {p.name: p for p in tmp_path.iterdir()}


@pytest.mark.timeout(20)  # seconds: a pipe that nobody writes to must not be waited for
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty.png", "not an image"),
        ("text.jpg", "not an image"),
        ("half.jpg", "truncated"),
        ("start.jpg", "not an image|truncated"),
        ("script.png", "not an image"),
        ("folder.png", "not a file"),
        ("pipe.png", "not a file"),
        ("device.png", "not a file"),
        ("dangling.png", "No such file or directory"),
        ("loop.png", "Too many levels of symbolic links"),
        ("float.tiff", "32-bit pixels"),
    ],
)
def test_files_that_cant_be_read_say_why(tmp_path, name, reason):
    path = broken(tmp_path)[name]
    with pytest.raises(DecodeError, match=reason) as caught:
        decode(path, 16)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_file_without_permission_says_so(tmp_path, monkeypatch):
    path = saved(Image.new("L", (4, 4)), tmp_path / "locked.png")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)  # the superuser, who may run the tests, can read everything
    with pytest.raises(DecodeError, match=r"^Permission denied$"):
        decode(path, 8)


def _samples() -> dict[str, bytes]:
    image = Image.effect_noise((24, 20), 60).convert("RGB")
    samples = {}
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
        buffer = io.BytesIO()
        image.save(buffer, kind)
        samples[kind] = buffer.getvalue()
    return samples


SAMPLES = _samples()


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_damage_of_any_kind_is_an_answer_not_a_crash(tmp_path, monkeypatch, kind, data):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)  # damaged headers claim large pictures
    content = bytearray(SAMPLES[kind])
    # headers are where damage has consequences
    for _ in range(data.draw(st.integers(1, 6))):
        end = data.draw(st.sampled_from([40, 200, len(content)]))
        content[data.draw(st.integers(0, min(end, len(content)) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(content), len(content) - 1, len(content) // 2, 30]))
    path = tmp_path / "damaged"
    path.write_bytes(bytes(content[:cut]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answer = decode(path, 8)[0].shape
        except DecodeError as error:
            answer = str(error)
    assert answer == (8, 8, 3) or (isinstance(answer, str) and answer)
