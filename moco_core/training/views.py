"""Every view that a run ever trained on, made again from (seed, step, view) alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from moco_core.contrast.group import Group
from moco_core.data.augment import Preset, augment_views
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

    def pair(self, indices: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Views 0 (query) and 1 (key) of a batch: of the images at `indices` (B), this process's B/size×C×H×W each.

        The pixels are the same at every call, whoever makes them.
        """
        view_q, view_k = self._views(indices, step, (0, 1))
        return view_q, view_k

    def view(self, indices: Tensor, step: int, view: int) -> Tensor:
        """One of the two alone."""
        return self._views(indices, step, (view,))[0]

    def expect(self, steps: Iterable[int]) -> None:
        """Announce the steps whose views will be asked for, so that their images can be read ahead."""
        self.images.expect(self._own_batches(steps))

    def _views(self, indices: Tensor, step: int, views: tuple[int, ...]) -> tuple[Tensor, ...]:
        own = self.group.own(indices)
        offset = self.group.rank * len(own)
        images = self.images.batch(own)
        return augment_views(
            images, preset=self.preset, seed=self.seed, step=step, views=views, offset=offset
        )

    def _own_batches(self, steps: Iterable[int]) -> Iterator[Tensor]:
        return (self.group.own(self.batch(step)) for step in steps)
