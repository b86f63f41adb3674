"""The processes that share a batch, as the methods see them; here one process that has it all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from torch import Tensor, nn

T = TypeVar("T")


class Group:
    """Process `rank` of `size`. The rows of a batch are dealt out evenly, in order of rank.

    Alone, as here, there is nothing to send: what comes in goes out. `training.distributed` joins several.
    """

    rank = 0
    size = 1

    def own(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch: B×… → B/size×…."""
        return batch

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes: B/size×… → B×…, the same everywhere. No gradient flows back."""
        return rows

    def gather_with_gradient(self, rows: Tensor) -> Tensor:
        """`gather`, through which each process's rows get the gradient that they have everywhere."""
        return rows

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a tensor over the processes."""
        return value

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its mean over the processes."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process; each waits here for all."""
        return flag

    def share(self, value: T) -> T:
        """What process 0 has, in all of them."""
        return value
