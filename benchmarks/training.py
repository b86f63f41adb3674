"""Pairs a second of the training loop, beside the bare network and beside lightly's MoCo recipe.

The bare limit is forward and backward of the query encoder plus forward of the key encoder on ready-made
tensors: no augmentation, no loss, no queue, no optimizer. Each contestant has a process of its own and they
take turns, a block of steps each, so that all meet the same machine; ours runs the real loop, logging and
heartbeat included. Ours and the bare network keep freed memory (`keep_freed_memory`), lightly runs as it
comes. The images are random bytes: speed does not depend on what they show.
"""

from __future__ import annotations

import copy
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.report import parse_args, report
from moco_core.config import TrainConfig
from moco_core.data.images import ImageSet
from moco_core.nets.encoder import build_encoder
from moco_core.runs import RunWriter
from moco_core.training.device import keep_freed_memory
from moco_core.training.loop import train
from moco_core.training.setup import Setup

IMAGES = 20_000
SETTLE_SECONDS = 0.5  # lightly's workers fill their queues after a block, then rest
Block = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """One encoder at one image shape."""

    encoder: str
    channels: int
    side: int
    batch: int
    block: int  # steps a block
    rounds: int  # blocks of each contestant

    @property
    def config(self) -> TrainConfig:
        """A run of as many blocks, one more to warm up; all else as by default."""
        return TrainConfig(
            encoder=self.encoder,
            batch_size=self.batch,
            steps=self.block * (self.rounds + 1),
            snapshots=2,
        )


def main() -> None:
    """Measure and report."""
    args = parse_args(__doc__)
    cases = [Case("small-cnn", 1, 28, 128, 10, 6 if args.quick else 20)]
    if not args.quick:
        cases.append(Case("resnet18", 3, 32, 128, 2, 4))
    ratios, figures = {}, {}
    for case in cases:
        rates = measure(case)
        for peer in ("bare", "lightly"):
            pairs = zip(
                rates["ours"], rates[peer], strict=True
            )  # of the same round: the machine's pace drifts
            ratios[f"ours/{peer}/{case.encoder}"] = statistics.median(own / other for own, other in pairs)
        figures |= {f"pairs/s {name} {case.encoder}": statistics.median(of) for name, of in rates.items()}
    targets = {"ours/bare/small-cnn": (">=", 0.9), "ours/lightly/small-cnn": (">=", 2.0)}
    if not args.quick:
        ratios["snapshots/run"] = snapshot_share()
    report("training", ratios, targets, figures, args.json)


def measure(case: Case) -> dict[str, list[float]]:
    """Contestant → pairs/s of its block in each round."""
    spawn = multiprocessing.get_context("spawn")
    turns, processes = {}, []
    for contestant in (ours, bare, lightly):
        turns[contestant.__name__], theirs = spawn.Pipe()
        processes.append(spawn.Process(target=contestant, args=(case, theirs)))
        processes[-1].start()
        theirs.close()
    rates: dict[str, list[float]] = {name: [] for name in turns}
    order = list(turns)
    try:
        for _ in range(case.rounds + 1):
            for name in order:
                turns[name].send("go")
                rates[name].append(case.block * case.batch / turns[name].recv())
                time.sleep(SETTLE_SECONDS if name == "lightly" else 0)
            order.reverse()  # nobody is always the one that follows another
    finally:
        for turn in turns.values():
            turn.close()
        for process in processes:
            process.join()
    return {name: of[1:] for name, of in rates.items()}  # the first block warms up


def take_turns(block: Block, turn: Connection) -> None:
    """Run a block whenever it is this contestant's turn and send its seconds, until the other end closes."""
    with suppress(EOFError):
        while turn.recv():
            began = time.perf_counter()
            block()
            turn.send(time.perf_counter() - began)


def ours(case: Case, turn: Connection) -> None:
    """The real loop; it waits for its turn after each block."""
    images = random_images(IMAGES, case)
    setup = Setup(case.config, torch.device("cpu"), images, images.subset(torch.arange(100)), ())
    began = 0.0

    def between_blocks(step: int, record: object) -> None:
        nonlocal began
        if step % case.block == 0:
            turn.send(time.perf_counter() - began)
            with suppress(EOFError):
                turn.recv()
            began = time.perf_counter()

    with tempfile.TemporaryDirectory() as root:
        turn.recv()
        began = time.perf_counter()
        train(RunWriter.create(Path(root), case.config), setup, on_step=between_blocks)


def bare(case: Case, turn: Connection) -> None:
    """The network's own work on tensors that lie ready."""
    keep_freed_memory()
    config = case.config
    query = build_encoder(case.encoder, case.channels, case.side, config.dim, config.batch_norm)
    query = query.to(memory_format=torch.channels_last).train()
    key = copy.deepcopy(query).requires_grad_(False)
    view = torch.randn(case.batch, case.channels, case.side, case.side).to(memory_format=torch.channels_last)

    def block() -> None:
        for _ in range(case.block):
            query.zero_grad(set_to_none=True)
            with torch.no_grad():
                key(view)
            query(view)[1].sum().backward()

    take_turns(block, turn)


def lightly(case: Case, turn: Connection) -> None:
    """lightly's recipe: its transform, a DataLoader with two workers, its loss with memory bank, its update."""
    from lightly.loss import NTXentLoss
    from lightly.models.utils import update_momentum
    from lightly.transforms import MoCoV2Transform
    from torchvision.transforms.functional import to_pil_image

    config, images = case.config, random_images(IMAGES, case)

    class Pictures(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> list[Tensor]:
            return transform(to_pil_image(images.images[index]).convert("RGB"))

    transform = MoCoV2Transform(input_size=case.side, gaussian_blur=0.0, cj_strength=0.5)
    loader = torch.utils.data.DataLoader(
        Pictures(),
        batch_size=case.batch,
        shuffle=True,
        drop_last=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",  # its workers' set is local to this function
    )
    query = build_encoder(case.encoder, case.channels, case.side, config.dim, config.batch_norm).train()
    key = copy.deepcopy(query).requires_grad_(False)
    loss = NTXentLoss(temperature=config.temperature, memory_bank_size=(config.queue_size, config.dim))
    optimizer = torch.optim.SGD(
        query.parameters(), lr=config.lr, momentum=0.9, weight_decay=config.weight_decay
    )
    batches = forever(loader)

    def block() -> None:
        for _ in range(case.block):
            view_q, view_k = next(batches)
            view_q, view_k = view_q[:, : case.channels], view_k[:, : case.channels]
            update_momentum(query, key, config.momentum)
            q = query(view_q)[1]
            with torch.no_grad():
                k = key(view_k)[1]
            optimizer.zero_grad()
            loss(q, k).backward()
            optimizer.step()

    take_turns(block, turn)


def forever(loader: torch.utils.data.DataLoader) -> Iterator[list[Tensor]]:
    """The loader's batches, epoch after epoch."""
    while True:
        yield from loader


def snapshot_share() -> float:
    """Share of a default run's time that its snapshots take (digits, 400 steps)."""
    from moco_core.training.setup import prepare

    with tempfile.TemporaryDirectory() as root:
        run = RunWriter.create(Path(root), TrainConfig())
        train(run, prepare(TrainConfig()))
        return run.seconds["snapshots"] / run.seconds["run"]


def random_images(count: int, case: Case) -> ImageSet:
    """Random bytes in ten classes."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, case.channels, case.side, case.side)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 10
    return ImageSet(pixels, labels, torch.arange(count), tuple("0123456789"), "random", ())


if __name__ == "__main__":
    main()
