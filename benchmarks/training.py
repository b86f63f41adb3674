"""Pairs a second of the training loop, beside the bare network and beside lightly's MoCo recipe.

The bare limit is forward and backward of the query encoder plus forward of the key encoder on ready-made
tensors: no augmentation, no loss, no queue, no optimizer. It runs in blocks between blocks of the real loop
(logging and heartbeat included), so that both meet the same machine; lightly's blocks do too. The images are
random bytes: speed does not depend on what they show.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.report import parse_args, report
from moco_core.config import TrainConfig
from moco_core.data.images import ImageSet
from moco_core.nets.encoder import build_encoder
from moco_core.runs import RunWriter
from moco_core.training.loop import train
from moco_core.training.setup import Setup

IMAGES = 20_000
Block = Callable[[], None]


@dataclass
class Case:
    """One encoder at one image shape."""

    encoder: str
    channels: int
    side: int
    batch: int
    block: int  # steps a block
    rounds: int  # blocks of each contestant
    rates: dict[str, list[float]] = field(default_factory=dict)  # contestant → pairs/s of each block


def main() -> None:
    """Measure and report."""
    args = parse_args(__doc__)
    cases = [Case("small-cnn", 1, 28, 128, 10, 3 if args.quick else 20)]
    if not args.quick:
        cases.append(Case("resnet18", 3, 32, 128, 2, 4))
    ratios, targets, figures = {}, {}, {}
    for case in cases:
        measure(case)
        median = {name: statistics.median(rates) for name, rates in case.rates.items()}
        for peer in ("bare", "lightly"):
            ratios[f"ours/{peer}/{case.encoder}"] = median["ours"] / median[peer]
        figures |= {f"pairs/s {name} {case.encoder}": rate for name, rate in median.items()}
    targets = {"ours/bare/small-cnn": (">=", 0.9), "ours/lightly/small-cnn": (">=", 2.0)}
    if not args.quick:
        ratios["snapshots/run"] = snapshot_share()
    report("training", ratios, targets, figures, args.json)


def measure(case: Case) -> None:
    """Run the real loop; between its blocks, give each peer a block of as many steps."""
    config = TrainConfig(
        encoder=case.encoder,
        batch_size=case.batch,
        queue_size=4096,
        steps=case.block * (case.rounds + 1),
        snapshots=2,
    )
    images = random_images(IMAGES, case)
    setup = Setup(config, torch.device("cpu"), images, images.subset(torch.arange(100)), ())
    peers = {"bare": bare(case, config), "lightly": lightly(case, config, images)}
    for block in peers.values():
        block()  # warm-up
    case.rates = {name: [] for name in ("ours", *peers)}
    began = time.perf_counter()

    def between_blocks(step: int, record: object) -> None:
        nonlocal began
        if step % case.block:
            return
        if step > case.block:  # the first block warms up
            case.rates["ours"].append(case.block * case.batch / (time.perf_counter() - began))
            for name, block in peers.items():
                began = time.perf_counter()
                block()
                case.rates[name].append(case.block * case.batch / (time.perf_counter() - began))
                time.sleep(1.0 if name == "lightly" else 0)  # its workers fill their queues, then rest
        began = time.perf_counter()

    with tempfile.TemporaryDirectory() as root:
        train(RunWriter.create(Path(root), config), setup, on_step=between_blocks)


def bare(case: Case, config: TrainConfig) -> Block:
    """The network's own work on tensors that lie ready."""
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

    return block


def lightly(case: Case, config: TrainConfig, images: ImageSet) -> Block:
    """lightly's recipe: its transform, a DataLoader with two workers, its loss with memory bank, its update."""
    from lightly.loss import NTXentLoss
    from lightly.models.utils import update_momentum
    from lightly.transforms import MoCoV2Transform
    from torchvision.transforms.functional import to_pil_image

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

    return block


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
