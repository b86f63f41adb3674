"""An encoder from elsewhere over a folder of images: a run like any other.

Torch is imported here, so nothing that a page imports may import this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from moco_core.config import ConfigError, some
from moco_core.data.augment import LUMA, MOCO_V2, SECOND_VIEW, Preset, augment, plain, preset_of
from moco_core.data.images import DataError
from moco_core.data.listing import Listing, list_folder
from moco_core.data.reading import BLOCK, read_all
from moco_core.data.sources import resized
from moco_core.data.split import stratified_rows
from moco_core.interop.encoder import Loaded, load_encoder
from moco_core.interop.imported import Vectors, write_imported
from moco_core.interop.problem import VectorsError
from moco_core.interop.weights import read_weights
from moco_core.runs import Run, schema

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
THUMBNAIL = 64  # pixels a side, at most
READ_AHEAD = 2**28  # bytes of pictures that are held before they are encoded
ENDINGS = (".tar", ".pth", ".pt", ".ckpt", ".bin", ".safetensors")


@dataclass(frozen=True)
class Preparation:
    """How images are made ready for an encoder: resized, cut, scaled to [0, 1], normalised."""

    image_size: int = 224  # pixels a side of what the encoder sees
    crop: float = 224 / 256  # its share of the side of the resized image, of which it is the centre
    mean: tuple[float, ...] = IMAGENET_MEAN  # by channel
    std: tuple[float, ...] = IMAGENET_STD
    preset: Preset = MOCO_V2  # of the second view

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a size or a normalisation that can't be used."""
        if not 8 <= self.image_size <= 1024:
            raise ConfigError(f"image_size must be at least 8 and at most 1024 pixels, got {self.image_size}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, 3) or not np.isfinite(values).all():
                raise ConfigError(f"{name} must be 1 or 3 finite numbers, one a channel; got {values}")
        if min(self.std) <= 0:
            raise ConfigError(f"std must be above 0, got {self.std}")

    @property
    def read_size(self) -> int:
        """Pixels a side of the resized image."""
        return round(self.image_size / self.crop)

    def cut(self, images: Tensor, channels: int) -> Tensor:
        """The centres of images as they were read: uint8 B×3×R×R → B×C×S×S, grey by luma where C is 1."""
        start = round((self.read_size - self.image_size) / 2)
        centre = images[..., start : start + self.image_size, start : start + self.image_size]
        if channels == 3:
            return centre
        weights = torch.tensor(LUMA, dtype=torch.float32, device=images.device)[:, None, None]
        return (centre * weights).sum(dim=1, keepdim=True).round().to(torch.uint8)

    def normalised(self, view: Tensor) -> Tensor:
        """What the encoder sees of B×C×S×S values in [−1, 1]."""
        mean, std = (torch.tensor(v, device=view.device)[:, None, None] for v in (self.mean, self.std))
        return ((view + 1) / 2 - mean) / std


class Seen(NamedTuple):
    """What an encoder made of N images."""

    rows: np.ndarray  # N, positions in the listing
    features: np.ndarray  # N×F
    projections: np.ndarray  # N×D
    second_view: np.ndarray  # N×D
    thumbnails: np.ndarray  # N×H×W×C uint8
    failures: list[str]  # "path: reason" of files that can't be read


def embed_folder(
    root: Path,
    weights: Path,
    images: Path,
    *,
    arch: str = "",
    prefix: str = "",
    image_size: int = 0,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    limit: int = 10_000,
    batch_size: int = 64,
    seed: int = 0,
    name: str = "",
    device: torch.device | None = None,
) -> Path:
    """Embed at most `limit` images of a folder, the same share of every class, and write them as a run.

    Returns the run directory below `root`. Weights of a run that was trained here bring their architecture and
    the preparation of images along; others get ImageNet's. The second view of each image is augmented as MoCo v2
    does, from `seed`. Raises `ConfigError`, `VectorsError` (`WeightsError` among them) and `OSError` with what to
    change, before anything is written.
    """
    if limit < 2 or batch_size < 1:
        raise ConfigError(f"limit must be at least 2 and batch_size at least 1, got {limit} and {batch_size}")
    _must_be_writable(root)
    try:
        listing = list_folder(Path(os.path.expanduser(images)))
    except DataError as error:
        raise VectorsError(str(error)) from error
    run = _run_of(weights)
    preparation = _changed(Preparation() if run is None else _preparation_of(run), image_size, mean, std)
    file = read_weights(Path(os.path.expanduser(weights)))
    encoder = load_encoder(file, arch or (run.config.encoder if run else ""), prefix, preparation.image_size)
    if encoder.channels == 1 and max(len(preparation.mean), len(preparation.std)) > 1:
        raise ConfigError("this encoder takes grey images: --mean and --std must be one number each")
    print(encoder.sentence, file=sys.stderr)
    rows = np.flatnonzero(stratified_rows(listing.labels, limit, seed))
    seen = _encode(encoder.to(device or torch.device("cpu")), listing, rows, preparation, batch_size, seed)
    left_out = [*listing.unreadable, *seen.failures]
    if left_out:
        files = f"{len(left_out):,} file{'' if len(left_out) == 1 else 's'}"
        print(f"warning: left out, as unreadable: {files} ({some(left_out, '; ')})", file=sys.stderr)
    vectors = Vectors(
        values=seen.projections,
        features=None if encoder.head is None else seen.features,
        second_view=seen.second_view,
        labels=listing.labels[seen.rows],
        class_names=listing.class_names,
        sample_ids=seen.rows,
        names=tuple(listing.files[row] for row in seen.rows),
        thumbnails=seen.thumbnails,
    )
    source = {
        "kind": "embed",
        "file": file.path.name,
        "sha256": file.sha256,
        "format": file.format,
        **encoder.facts,
        "images": str(listing.root),
        "images_there": len(listing.files),
        "left_out": len(left_out),
        "image_size": preparation.image_size,
        "mean": list(preparation.mean),
        "std": list(preparation.std),
        "seed": seed,
    }
    called = name or f"{run.name if run else _stem(weights)} on {listing.root.name}"
    return write_imported(root, vectors, name=called, source=source)


def _must_be_writable(root: Path) -> None:
    """Raise `VectorsError` where no run can be made: embedding may take hours, so that must not come out last."""
    place = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise VectorsError(f"{place} is no folder that can be written to: choose another with --runs")


def _stem(weights: Path) -> str:
    """A file's name without the endings of checkpoints."""
    while weights.suffix in ENDINGS:
        weights = weights.with_suffix("")
    return weights.name


def _run_of(weights: Path) -> Run | None:
    """The run that a file of weights is part of, if it was trained here."""
    path = Path(os.path.realpath(os.path.expanduser(weights)))
    run = path.parent.parent
    if path.name != schema.WEIGHTS_FILE or not (run / schema.RUN_FILE).is_file():
        return None
    return Run(run)


def _preparation_of(run: Run) -> Preparation:
    """As the run's own evaluation and views have it."""
    return Preparation(
        image_size=run.eval_set.thumbnails.shape[1],
        crop=1,
        mean=(0.5,),
        std=(0.5,),
        preset=preset_of(run.config),
    )


def _changed(
    preparation: Preparation, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> Preparation:
    given = {"image_size": image_size, "mean": tuple(mean), "std": tuple(std)}
    return replace(preparation, **{name: value for name, value in given.items() if value})  # type: ignore[arg-type]


@torch.inference_mode()
def _encode(
    encoder: Loaded, listing: Listing, rows: np.ndarray, preparation: Preparation, batch_size: int, seed: int
) -> Seen:
    device = next(encoder.backbone.parameters()).device
    numbers: list[int] = []
    seen: list[tuple[Tensor, ...]] = []
    failures: list[str] = []
    with tqdm(
        total=len(rows), desc=f"embedding {listing.root.name}", unit=" images", dynamic_ncols=True
    ) as bar:
        for batch, pixels in _batches(listing, rows, preparation.read_size, batch_size, failures):
            images = preparation.cut(pixels.to(device), encoder.channels)
            augmented = augment(
                images, preset=preparation.preset, seed=seed, step=0, view=SECOND_VIEW, offset=len(numbers)
            )
            feature, projection = encoder(preparation.normalised(plain(images)))
            _, again = encoder(preparation.normalised(augmented))
            small = resized(images, min(THUMBNAIL, preparation.image_size)).permute(0, 2, 3, 1)
            seen.append(tuple(part.cpu() for part in (feature, projection, again, small)))
            numbers += batch
            bar.update(len(numbers) + len(failures) - bar.n)
    if len(numbers) < 2:
        raise VectorsError(
            f"{listing.root} must hold at least 2 readable images, got {len(numbers)} ({some(failures, '; ')})"
        )
    features, projections, second_view, thumbnails = (
        torch.cat(parts).numpy() for parts in zip(*seen, strict=True)
    )
    return Seen(np.array(numbers), features, projections, second_view, thumbnails, failures)


def _batches(
    listing: Listing, rows: np.ndarray, size: int, batch_size: int, failures: list[str]
) -> Iterator[tuple[list[int], Tensor]]:
    """Positions and pixels (uint8 B×3×size×size) of the images that can be read; adds to the failures."""
    numbers: list[int] = []
    pixels: list[np.ndarray] = []
    ahead = max(batch_size, min(BLOCK, READ_AHEAD // (3 * size**2)))
    readings = read_all(listing, rows, size, progress=False, block=ahead)
    for row, reading in zip(rows.tolist(), readings, strict=True):
        if reading.pixels is None:
            failures.append(f"{listing.files[row]}: {reading.reason}")
            continue
        numbers.append(row)
        pixels.append(reading.pixels)
        if len(numbers) == batch_size:
            yield numbers, torch.from_numpy(np.stack(pixels))
            numbers, pixels = [], []
    if numbers:
        yield numbers, torch.from_numpy(np.stack(pixels))
