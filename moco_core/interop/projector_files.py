"""The files that TensorBoard's embedding projector opens, from a log directory or dropped on its page.

Formats: https://github.com/tensorflow/tensorboard, tensorboard/plugins/projector (projector_config.proto).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from moco_core.runs import EvalSet

CONFIG, VECTORS, METADATA, SPRITE = "projector_config.pbtxt", "vectors.tsv", "metadata.tsv", "sprite.png"
FILES = (CONFIG, VECTORS, METADATA, SPRITE)
LARGEST_SPRITE = 8192  # pixels a side; graphics cards refuse larger textures
SMALLEST_THUMBNAIL = 8  # pixels; of more images than fit at this size no sprite is made


def write_projector(folder: Path, vectors: np.ndarray, images: EvalSet, name: str) -> None:
    """Write vectors (N×D) with their labels and, where they fit, images into an empty folder; `name` is theirs."""
    import pyarrow as pa
    from pyarrow import csv

    columns = [pa.array(column, pa.float32()) for column in vectors.T]
    plain = csv.WriteOptions(include_header=False, delimiter="\t")  # numbers read as they were written
    csv.write_csv(pa.table(columns, [str(i) for i in range(len(columns))]), folder / VECTORS, plain)
    (folder / METADATA).write_text(_metadata(images), encoding="utf-8")
    sheet = sprite(images.thumbnails) if images.pictured else None
    if sheet is not None:
        from PIL import Image

        picture, _ = sheet
        Image.fromarray(picture).save(folder / SPRITE)
    (folder / CONFIG).write_text(_config(name, None if sheet is None else sheet[1]), encoding="utf-8")


def sprite(thumbnails: np.ndarray) -> tuple[np.ndarray, tuple[int, int]] | None:
    """N thumbnails (N×H×W×C uint8) in one square grid, row by row, and the (width, height) of each in it.

    They are made smaller where the grid would be larger than the projector takes; None for too many.
    """
    count, height, width, channels = thumbnails.shape
    across = int(np.ceil(np.sqrt(count)))
    room = LARGEST_SPRITE // across
    if room < SMALLEST_THUMBNAIL:
        return None
    if max(height, width) > room:
        scale = room / max(height, width)
        width, height = max(1, round(width * scale)), max(1, round(height * scale))
        thumbnails = _smaller(thumbnails, width, height)
    grid = np.zeros((across * across, height, width, channels), np.uint8)
    grid[:count] = thumbnails
    rows = grid.reshape(across, across, height, width, channels).swapaxes(1, 2)
    sheet = rows.reshape(across * height, across * width, channels)
    return (sheet[..., 0] if channels == 1 else sheet[..., :3]), (width, height)


def _smaller(thumbnails: np.ndarray, width: int, height: int) -> np.ndarray:
    from PIL import Image

    count, channels = len(thumbnails), thumbnails.shape[-1]
    small = np.empty((count, height, width, channels), np.uint8)
    for place, image in zip(small, thumbnails, strict=True):
        picture = Image.fromarray(image[..., 0] if channels == 1 else image[..., :3])
        place[...] = np.asarray(picture.resize((width, height), Image.Resampling.BOX)).reshape(place.shape)
    return small


def _metadata(images: EvalSet) -> str:
    """A line a sample under a line of headings, which the projector expects where there are several columns."""
    headings = ["class", "label", "sample_id"]
    columns = [[images.name_of(label) for label in images.labels], images.labels, images.sample_ids]
    if images.names is not None:
        headings.insert(0, "name")
        columns.insert(0, images.names)
    rows = zip(*columns, strict=True)
    return "".join("\t".join(map(_cell, row)) + "\n" for row in [headings, *rows])


def _cell(value: object) -> str:
    """Text without the tabs and line breaks that would end a cell."""
    return re.sub(r"[\t\r\n]", " ", str(value))


def _config(name: str, side: tuple[int, int] | None) -> str:
    picture = ""
    if side is not None:
        width, height = side
        picture = (
            "  sprite {\n"
            f'    image_path: "{SPRITE}"\n'
            f"    single_image_dim: {width}\n"
            f"    single_image_dim: {height}\n"
            "  }\n"
        )
    return (
        "embeddings {\n"
        f"  tensor_name: {json.dumps(name)}\n"
        f'  tensor_path: "{VECTORS}"\n'
        f'  metadata_path: "{METADATA}"\n'
        f"{picture}"
        "}\n"
    )
