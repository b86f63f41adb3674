"""Who trains in the training benchmark: our loop in three ways, the bare network, and lightly's recipe.

Each is a process that runs a block of steps whenever it is its turn, and answers with what it took.
"""

from __future__ import annotations

import copy
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor

from moco_core.config import TrainConfig
from moco_core.data.images import ImageSet
from moco_core.nets.encoder import Encoder, build_encoder
from moco_core.runs import RunWriter
from moco_core.training.device import keep_freed_memory
from moco_core.training.distributed import Onlooker, joined
from moco_core.training.loop import train
from moco_core.training.setup import Setup, prepare

IMAGES = 20_000
FILES = 5_000  # of them, in a folder


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
        """A run of as many blocks, one more to warm up; what snapshots cost is measured apart."""
        return TrainConfig(
            encoder=self.encoder,
            batch_size=self.batch,
            steps=self.block * (self.rounds + 1),
            snapshots=2,
            bank_size=100,
            drift_share=0.0,
        )

    def network(self) -> Encoder:
        """The encoder, as a run has it."""
        config = self.config
        return build_encoder(self.encoder, self.channels, self.side, config.dim, config.batch_norm)


Contestant = Callable[[Case, Connection], None]


def answer(turn: Connection, began: float) -> None:
    """Send the seconds of a block, and the most memory that this process ever held, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    turn.send((time.perf_counter() - began, peak))


def take_turns(block: Callable[[], None], turn: Connection) -> None:
    """Run a block whenever it is this contestant's turn, until the other end closes."""
    with suppress(EOFError):
        while turn.recv():
            began = time.perf_counter()
            block()
            answer(turn, began)


def ours(case: Case, turn: Connection) -> None:
    """The real loop, images in memory."""
    images = random_images(IMAGES, case)
    with tempfile.TemporaryDirectory() as root:
        setup = Setup(case.config, torch.device("cpu"), images, images.subset(torch.arange(100)), ())
        loop_in_blocks(case, setup, RunWriter.create(Path(root), case.config), turn)


def streaming(case: Case, turn: Connection) -> None:
    """The real loop, images read from files again and again."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder) / "images", case)
        settings: dict[str, object] = {"dataset": f"folder:{folder}/images", "image_size": case.side}
        settings |= {"storage": "stream", "eval_size": 100}
        config = TrainConfig(**case.config.to_dict() | settings)
        loop_in_blocks(case, prepare(config), RunWriter.create(Path(folder) / "runs", config), turn)


def two_processes(case: Case, turn: Connection) -> None:
    """The real loop in two processes that share each batch, with half of the cores each."""
    with tempfile.TemporaryDirectory() as root:
        run = RunWriter.create(Path(root), case.config)
        other = get_context("spawn").Process(target=one_of_two, args=(1, case, run.path, None))
        other.start()
        one_of_two(0, case, run.path, turn)
        other.join()


def one_of_two(rank: int, case: Case, path: Path, turn: Connection | None) -> None:
    """Process `rank` of the two; process 0 has the turns, the other follows."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29611"}
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))
    images = random_images(IMAGES, case)
    with joined() as group:
        held_out = images.subset(torch.arange(100))
        setup = Setup(case.config, torch.device("cpu"), images, held_out, (), group)
        if turn is None:
            train(Onlooker(path), setup)
        else:
            loop_in_blocks(case, setup, RunWriter(path), turn)


def loop_in_blocks(case: Case, setup: Setup, run: RunWriter, turn: Connection) -> None:
    """Train; after each block the loop waits for its next turn."""
    turn.recv()
    began = time.perf_counter()

    def between_blocks(step: int, record: object) -> None:
        nonlocal began
        if step % case.block == 0:
            answer(turn, began)
            with suppress(EOFError):
                turn.recv()
            began = time.perf_counter()

    train(run, setup, on_step=between_blocks)


def bare(case: Case, turn: Connection) -> None:
    """The network's own work on tensors that lie ready."""
    keep_freed_memory()
    query = case.network().to(memory_format=torch.channels_last).train()
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
    """lightly's recipe with PyTorch's default of loading in the training process."""
    lightly_recipe(case, turn, workers=0)


def lightly_2workers(case: Case, turn: Connection) -> None:
    """lightly's recipe with two processes that load."""
    lightly_recipe(case, turn, workers=2)


def lightly_recipe(case: Case, turn: Connection, workers: int) -> None:
    """lightly's transform, a DataLoader, lightly's loss with its memory bank, its momentum update."""
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
    parallel = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    loader = torch.utils.data.DataLoader(
        Pictures(), batch_size=case.batch, shuffle=True, drop_last=True, num_workers=workers, **parallel
    )
    query = case.network().train()
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


def random_images(count: int, case: Case) -> ImageSet:
    """Random bytes in ten classes: speed does not depend on what images show."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, case.channels, case.side, case.side)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 10
    return ImageSet(pixels, labels, torch.arange(count), tuple("0123456789"), "random", ())


def write_files(folder: Path, case: Case) -> None:
    """Random images as PNG files, a sub-folder a class."""
    from torchvision.transforms.functional import to_pil_image

    images = random_images(FILES, case)
    for number, (image, label) in enumerate(zip(images.images, images.labels.tolist(), strict=True)):
        path = folder / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        to_pil_image(image).save(path)
