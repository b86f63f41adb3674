"""ImageSet: images held in memory as bytes, with their labels and where they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class DataError(ValueError):
    """A data set can't be read; the message says why and what to do, in one sentence."""


class Images(Protocol):
    """What training asks of a set of N images, wherever they are."""

    @property
    def labels(self) -> Tensor: ...  # N, int64, −1 where unknown

    @property
    def sample_ids(self) -> Tensor: ...  # N, int64

    @property
    def class_names(self) -> tuple[str, ...]: ...

    @property
    def name(self) -> str: ...

    @property
    def skipped(self) -> tuple[str, ...]: ...

    @property
    def channels(self) -> int: ...

    @property
    def image_size(self) -> int: ...

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Tensor: ...

    def expect(self, batches: Iterable[Tensor]) -> None: ...

    def subset(self, rows: Tensor) -> ImageSet: ...

    def to(self, device: torch.device | str) -> Images: ...

    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class ImageSet:
    """N images of one size; an image is known by its position 0 … N−1 here and by its id in the source."""

    images: Tensor  # N×C×H×W, uint8
    labels: Tensor  # N, int64, −1 where unknown
    sample_ids: Tensor  # N, int64: unique over training and held-out images
    class_names: tuple[str, ...]
    name: str
    skipped: tuple[str, ...] = ()  # "path: reason" of every file that couldn't be read

    def __post_init__(self) -> None:
        """Raise `ValueError` when shapes or types don't fit together."""
        if self.images.ndim != 4 or self.images.dtype != torch.uint8:
            raise ValueError(
                f"images must be uint8 N×C×H×W, got {self.images.dtype} {tuple(self.images.shape)}"
            )
        for field in ("labels", "sample_ids"):
            value: Tensor = getattr(self, field)
            if value.shape != (len(self.images),) or value.dtype != torch.int64:
                raise ValueError(
                    f"{field} must be {len(self.images)} int64 values, got {value.dtype} {tuple(value.shape)}"
                )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def channels(self) -> int:
        """C."""
        return self.images.shape[1]

    @property
    def image_size(self) -> int:
        """H, the height in pixels."""
        return self.images.shape[2]

    def batch(self, indices: Tensor) -> Tensor:
        """The images at positions `indices` (B, on any device) as uint8 B×C×H×W on the set's device."""
        return self.images.index_select(0, indices.to(self.images.device, non_blocking=True))

    def to(self, device: torch.device | str) -> ImageSet:
        """The same set with its tensors on `device`."""
        return replace(
            self,
            images=self.images.to(device),
            labels=self.labels.to(device),
            sample_ids=self.sample_ids.to(device),
        )

    def subset(self, rows: Tensor) -> ImageSet:
        """The images at positions `rows`, in that order."""
        rows = rows.to(self.images.device)
        return replace(
            self,
            images=self.images[rows],
            labels=self.labels[rows],
            sample_ids=self.sample_ids[rows],
        )

    def fingerprint(self) -> str:
        """SHA-256 over shape, labels and pixels, as hexadecimal: the same on every machine."""
        digest = begin_fingerprint(tuple(self.images.shape), self.labels.cpu().numpy())
        for block in self.images.split(4096):
            digest.update(block.cpu().contiguous().numpy())
        return digest.hexdigest()

    def expect(self, batches: Iterable[Tensor]) -> None:
        """What `batch` will be asked for, in order; nothing to prepare, as all images are here."""

    def thumbnails(self) -> np.ndarray:
        """The images as uint8 N×H×W×C."""
        return np.ascontiguousarray(self.images.permute(0, 2, 3, 1).cpu().numpy())


def begin_fingerprint(shape: tuple[int, ...], labels: np.ndarray) -> hashlib._Hash:
    """The digest of a set of images, to be updated with its pixels (N×C×H×W, in order)."""
    digest = hashlib.sha256(repr(shape).encode())
    digest.update(labels.astype("<i8").tobytes())
    return digest
