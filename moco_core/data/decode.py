"""One image → one small square picture, or the reason why not."""

from __future__ import annotations

import io
import stat
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
NOT_DATA = ("__MACOSX",)
FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "WEBP", "TIFF", "PPM")  # others may start programs
GREY_MODES = ("1", "L", "LA", "I;16", "I;16L", "I;16B", "I;16N", "I")
UPRIGHT = {  # EXIF orientation → what undoes it
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LARGE = 16_000_000  # pixels; pictures beyond are decoded one at a time, to bound memory
_one_large = threading.Lock()

# What Pillow's decoders raise on damaged files.
DAMAGE = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    IndexError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
)


class DecodeError(ValueError):
    """A file can't be read as an image; the message is the reason alone."""


def is_data(name: str) -> bool:
    """Whether a file or folder is one that people mean: not hidden, and not added by a system."""
    return not name.startswith(".") and name not in NOT_DATA


def decode(picture: Path | bytes, size: int, *, whole: bool = False) -> tuple[np.ndarray, bool]:
    """A picture's centre square as uint8 size×size×3, upright, and whether it holds greys alone.

    `picture` is a file's path or its content. With `whole` all of it is shown, between black bars. Of an animation,
    the first frame; what is transparent is white. Raises `DecodeError` for what is damaged, unreadable, no image, of
    32-bit pixels, or larger than Pillow's limit for decompression bombs.
    """
    file = io.BytesIO(picture) if isinstance(picture, bytes) else picture
    try:
        if isinstance(file, Path) and not stat.S_ISREG(file.stat().st_mode):
            raise DecodeError("not a file")  # reading a pipe would wait for whoever writes to it
        with Image.open(file, formats=FORMATS) as image:
            if image.width * image.height <= LARGE:
                return _square(image, size, whole)
            with _one_large:
                return _square(image, size, whole)
    except UnidentifiedImageError as error:
        raise DecodeError("not an image") from error
    except Image.DecompressionBombError as error:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise DecodeError(f"more than {limit:,} pixels, which may be a decompression bomb") from error
    except DAMAGE as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DecodeError(" ".join(reason.split())[:120]) from error


def _square(image: Image.Image, size: int, whole: bool) -> tuple[np.ndarray, bool]:
    image.draft(None, (2 * size, 2 * size))  # JPEG: decode at the coarsest scale that is still fine enough
    image.load()
    grey = image.mode in GREY_MODES
    turn = UPRIGHT.get(_orientation(image))
    full: Image.Image = image
    if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PPM"):  # which Pillow has scaled
        full = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise DecodeError("32-bit pixels, whose range is unknown")
    elif image.mode in ("1", "P") or image.has_transparency_data:
        full = image.convert("RGBA")  # names of colours can't be averaged
    if whole:
        width, height = (max(1, round(size * side / max(full.size))) for side in full.size)
        fitted = _on_white(full.resize((width, height), Image.Resampling.BOX))
        small = ImageOps.pad(fitted, (size, size))
    else:
        side = min(full.size)
        left, top = (full.width - side) // 2, (full.height - side) // 2
        box = (left, top, left + side, top + side)
        small = _on_white(full.resize((size, size), Image.Resampling.BILINEAR, box=box))
    return np.asarray(small if turn is None else small.transpose(turn)), grey


def _on_white(image: Image.Image) -> Image.Image:
    """As pages and viewers show it: drawings in black on nothing would else be black on black."""
    if image.mode != "RGBA":
        return image.convert("RGB")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _orientation(image: Image.Image) -> int:
    """How the camera was held (EXIF); a file whose pixels are sound may have damaged notes."""
    try:
        return image.getexif().get(ExifTags.Base.Orientation, 1)
    except DAMAGE:
        return 1
