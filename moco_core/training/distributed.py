"""Several processes that train one run together, as `torchrun` starts them.

Each has all images and a copy of both encoders and of the dictionary, and takes its rows of every batch. What
travels is the keys, from all to all, the gradients, averaged in one message after the backward pass, and at a
snapshot the embeddings of the evaluation images, of which each encodes a part. No wrapper stands between the method
and its encoders, one process alone runs the same code, and summing in a fixed order keeps resumed runs bit for bit.
Process 0 alone writes; `Onlooker` is the run as the others see it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from moco_core.contrast.group import Group
from moco_core.runs import RunWriter
from moco_core.runs.schema import RunError
from moco_core.runs.writer import LOCK_FILE
from moco_core.training.device import memory_ran_out

PATIENCE = timedelta(minutes=30)  # the longest wait for another process, which may be taking a snapshot
MOURNING_SECONDS = 5.0  # within which a process that has died lets go of its run
T = TypeVar("T")
FAILURES, REASON = "failures", "reason"  # keys of the store that the processes share


class PeerLost(RunError):
    """Another process of the run has ended, so this one can't go on."""


class Processes(Group):
    """This process among those that train a run. Every call is made by all of them, in the same order.

    Tensors on the CPU travel by gloo, those on GPUs by NCCL. A call raises `PeerLost`, with the reason where
    one was left, as soon as another process is gone, and at the latest after `PATIENCE`.
    """

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._store = store

    def own(self, batch: Tensor) -> Tensor:
        """This process's rows of a batch: B×… → B/size×…."""
        share = len(batch) // self.size
        return batch[self.rank * share : (self.rank + 1) * share]

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes: B/size×… → B×…, the same everywhere. No gradient flows back."""
        rows = rows.detach().contiguous()
        whole = rows.new_empty(self.size * len(rows), *rows.shape[1:])
        self._together(dist.all_gather, list(whole.chunk(self.size)), rows)
        return whole

    def gather_with_gradient(self, rows: Tensor) -> Tensor:
        """`gather`, through which each process's rows get the gradient that they have everywhere."""
        return _Gather.apply(rows, self)

    def sum(self, value: Tensor) -> Tensor:
        """The sum of a tensor over the processes."""
        total = value.detach().clone(memory_format=torch.contiguous_format)
        self._together(dist.all_reduce, total)
        return total

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a tensor over the processes."""
        return self.sum(value) / self.size

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its mean over the processes."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.mean(torch.cat([g.flatten() for g in gradients]))
        parts = flat.split([g.numel() for g in gradients])
        torch._foreach_copy_(
            gradients, [part.view(g.shape) for part, g in zip(parts, gradients, strict=True)]
        )

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process; each waits here for all."""
        return bool(self.sum(torch.tensor(int(flag))))

    def share(self, value: T) -> T:
        """What process 0 has, in all of them."""
        box = [value]
        self._together(dist.broadcast_object_list, box, src=0, device=torch.device("cpu"))
        return box[0]

    def last_words(self, reason: str) -> bool:
        """Tell the others why this process ends; whether it is the first to end, and speaks for them all."""
        try:
            first = self._store.add(FAILURES, 1) == 1
            if first:
                self._store.set(REASON, reason)
        except RuntimeError:  # whoever kept the store is gone
            return True
        return first

    def _together(self, operation: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        try:
            operation(*arguments, **named)
        except RuntimeError as error:
            if memory_ran_out(error):
                raise
            raise PeerLost(self._reason()) from error

    def _reason(self) -> str:
        try:
            if self._store.check([REASON]):
                return self._store.get(REASON).decode()
        except RuntimeError:  # whoever kept the store is gone
            pass
        return (
            f"one of the {self.size} processes of this run has ended or no longer answers, perhaps for lack of memory: "
            "resume the run to go on from its last checkpoint"
        )


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Processes) -> Tensor:
        ctx.group = group
        return group.gather(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.group.own(ctx.group.sum(gradients[0])), None


class Onlooker(RunWriter):
    """A run as the processes see it that don't write it: everything is left to process 0."""

    def heir(self) -> RunWriter:
        """A writer of the run once process 0 has died and left it `running`; else this onlooker."""
        deadline = time.monotonic() + MOURNING_SECONDS
        with (self.path / LOCK_FILE).open("a") as lock:
            while time.monotonic() < deadline:
                writer = RunWriter(self.path)
                if writer.status.state != "running":  # process 0 has recorded how the run ended
                    break
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return writer
                except BlockingIOError:
                    time.sleep(0.1)
        return self

    @contextmanager
    def training(self) -> Iterator[None]:
        """Nothing to hold."""
        yield

    def describe(self, **fields: Any) -> None:
        """Left to process 0, as all that follows."""

    def set_status(self, **changes: Any) -> None: ...

    def append_history(self, records: Sequence[Mapping[str, float]]) -> None: ...

    def truncate_history(self, step: int) -> None: ...

    def write_eval_set(self, arrays: Any, class_names: Sequence[str]) -> None: ...

    def write_step(self, step: int, files: Any, metrics: Any) -> None: ...

    def drop_weights(self, before: int) -> None: ...

    def write_resume(self, step: int, arrays: Any) -> None: ...


def several() -> bool:
    """Whether `torchrun` started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


@contextmanager
def joined() -> Iterator[Group]:
    """The group that this process belongs to: those that `torchrun` started, or this one alone.

    Of several that fail, the first raises its error and the others exit with code 1 and nothing more to say.
    """
    if not several():
        yield Group()
        return
    store, rank, size = next(iter(dist.rendezvous("env://", timeout=PATIENCE)))
    backends = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backends, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    group = Processes(store, rank, size)
    try:
        yield group
        group.any(False)  # none leaves while process 0 still writes
    except Exception as error:
        lost = isinstance(error, PeerLost)
        if group.last_words(str(error) if lost else f"process {rank} of {size}: {error}"):
            raise
        raise SystemExit(1) from error
    dist.destroy_process_group()
