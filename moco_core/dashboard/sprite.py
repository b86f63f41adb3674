"""All thumbnails in one picture, small enough to send at once."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np

PIXELS = 2**24  # of the whole picture: 50,000 thumbnails get 16 pixels a side, 2,000 keep up to 64
LARGEST = 64  # side of a thumbnail
BLOCK = 8  # JPEG compresses blocks of this side: thumbnails that fill whole blocks don't run into each other
LOSSLESS = 2**21  # pixels up to which the picture is sent as PNG


@dataclass(frozen=True)
class Sprite:
    """Thumbnail i lies in column `i % across` and row `i // across` of a grid of squares of `side` pixels."""

    data: bytes
    mime: str
    side: int
    across: int


NO_SPRITE = Sprite(b"", "", 0, 1)  # of samples that are no images


def sprite(thumbnails: np.ndarray) -> Sprite:
    """One picture of N thumbnails (N×H×W×C uint8, C 1 or 3): as they are, or scaled to whole JPEG blocks."""
    from PIL import Image, ImageOps

    count, height, width, channels = thumbnails.shape
    lossless = count * height * width <= LOSSLESS
    side = max(height, width)
    if not lossless:
        room = math.isqrt(PIXELS // max(count, 1))
        side = max(BLOCK, min(room, LARGEST, -(-side // BLOCK) * BLOCK) // BLOCK * BLOCK)
    across = max(1, math.isqrt(max(count, 1) - 1) + 1)
    down = -(-count // across)
    mode = "L" if channels == 1 else "RGB"
    sheet = Image.new(mode, (across * side, max(down, 1) * side))
    for i, image in enumerate(thumbnails):
        picture = Image.fromarray(image[..., 0] if channels == 1 else image[..., :3])
        if picture.size != (side, side):
            picture = ImageOps.pad(picture, (side, side), Image.Resampling.BOX)
        sheet.paste(picture, (i % across * side, i // across * side))
    buffer = io.BytesIO()
    if lossless:
        sheet.save(buffer, "png")
    else:
        sheet.save(buffer, "jpeg", quality=75, subsampling=0)
    return Sprite(buffer.getvalue(), "image/png" if lossless else "image/jpeg", side, across)
