"""Every view that a run ever trained on, made again from (seed, step, view) alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from moco_core.data.augment import Preset, augment
from moco_core.data.batches import batch_indices
from moco_core.data.images import Images


@dataclass(frozen=True)
class Views:
    """The training images, the order they are met in, and their augmentation."""

    images: Images
    preset: Preset
    batch_size: int
    seed: int

    def batch(self, step: int) -> Tensor:
        """Positions in the training set of the batch of `step`, B, on the CPU."""
        return batch_indices(len(self.images), self.batch_size, self.seed, step)

    def view(self, indices: Tensor, step: int, view: int) -> Tensor:
        """View 0 (query) or 1 (key) of the images at `indices`, B×C×H×W: the same pixels at every call."""
        return augment(self.images.batch(indices), preset=self.preset, seed=self.seed, step=step, view=view)
