"""Every view that a run ever trained on, made again from (seed, step, view) alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from moco_core.contrast.group import Group
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
    group: Group = field(default_factory=Group)

    def batch(self, step: int) -> Tensor:
        """Positions in the training set of the batch of `step`, B, on the CPU."""
        return batch_indices(len(self.images), self.batch_size, self.seed, step)

    def view(self, indices: Tensor, step: int, view: int) -> Tensor:
        """View 0 (query) or 1 (key) of a batch: of the images at `indices` (B), this process's B/size×C×H×W.

        The pixels are the same at every call, whoever makes them.
        """
        own = self.group.own(indices)
        offset = self.group.rank * len(own)
        images = self.images.batch(own)
        return augment(images, preset=self.preset, seed=self.seed, step=step, view=view, offset=offset)

    def expect(self, steps: Iterable[int]) -> None:
        """Announce the steps whose views will be asked for, so that their images can be read ahead."""
        self.images.expect(self._own_batches(steps))

    def _own_batches(self, steps: Iterable[int]) -> Iterator[Tensor]:
        return (self.group.own(self.batch(step)) for step in steps)
