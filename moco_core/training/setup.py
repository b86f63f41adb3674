"""Everything that can go wrong before a run begins goes wrong here, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from moco_core.analysis.checks import evenly
from moco_core.caveats import caveats
from moco_core.config import ConfigError, TrainConfig, some
from moco_core.contrast.group import Group
from moco_core.contrast.in_batch import InBatch
from moco_core.contrast.memory_bank import MemoryBank
from moco_core.contrast.method import Method
from moco_core.contrast.moco import MoCo
from moco_core.contrast.symmetric import SymmetricMoCo
from moco_core.data import sources
from moco_core.data.augment import preset_of
from moco_core.data.images import Images, ImageSet
from moco_core.nets.encoder import build_encoder
from moco_core.nets.norm import GROUPS
from moco_core.training.device import pick_device
from moco_core.training.optimizer import lars
from moco_core.training.tensorboard import summary_writer
from moco_core.training.views import Views

SMALLEST_IMAGE = 8
DARKEST = 32  # of 255: no pixel of pictures that use a sixteenth of their range comes near it


@dataclass(frozen=True)
class Setup:
    """A config's device and images, checked against each other."""

    config: TrainConfig
    device: torch.device
    train: Images
    held_out: ImageSet
    warnings: tuple[str, ...]
    group: Group = field(default_factory=Group)

    @property
    def views(self) -> Views:
        """The training views of this run."""
        config = self.config
        return Views(self.train, preset_of(config), config.batch_size, config.seed, self.group)

    def method(self) -> Method:
        """Freshly initialised encoders with the config's source of negatives, on the device."""
        config = self.config
        channels, size = self.train.channels, self.train.image_size
        torch.manual_seed(config.seed)
        encoder = build_encoder(
            config.encoder,
            channels,
            size,
            config.dim,
            batch_norm=self.batch_norm,
            precision=config.precision,
            head=config.head,
        )
        encoder = encoder.to(self.device).to(memory_format=torch.channels_last)
        if config.method == "in-batch":
            return InBatch(encoder, temperature=config.temperature, group=self.group)
        if config.method == "memory-bank":
            return MemoryBank(
                encoder,
                samples=len(self.train),
                dim=config.dim,
                draws=config.queue_size,
                temperature=config.temperature,
                seed=config.seed,
                group=self.group,
            )
        kind = SymmetricMoCo if config.symmetric else MoCo
        return kind(
            encoder,
            dim=config.dim,
            queue_size=config.queue_size,
            momentum=config.momentum,
            temperature=config.temperature,
            shuffle_seed=config.seed if config.batch_norm == "split" else None,
            group=self.group,
        )

    @property
    def batch_norm(self) -> str:
        """The kind that the encoders are built with: several processes are split as they are, one is in sync."""
        needed = "split" if self.group.size == 1 else "sync"
        return self.config.batch_norm if self.config.batch_norm == needed else "plain"


def prepare(config: TrainConfig, group: Group | None = None) -> Setup:
    """Find the device and load the images; raises `ConfigError` or `DataError` with what to change."""
    config.check_trainable()
    group = group or Group()
    device = pick_device(config.device, group)
    if config.tensorboard:
        summary_writer()
    if config.optimizer == "lars":
        lars()
    if config.threads:
        torch.set_num_threads(config.threads)
    train, held_out = sources.open_images(config.dataset, None, config.image_size or None, config.storage)
    if config.batch_size > len(train):
        raise ConfigError(
            f"batch_size must be at most the {len(train)} training images of {config.dataset}, got {config.batch_size}"
        )
    if config.batch_size % group.size:
        raise ConfigError(
            f"batch_size must be a multiple of the {group.size} processes, got {config.batch_size}"
        )
    if config.batch_norm == "sync" and group.size > 1 and device.type != "cuda":
        raise ConfigError("batch_norm sync needs a GPU for each process; on the CPU take plain or split")
    if config.batch_norm == "split" and group.size == 1 and config.batch_size % GROUPS:
        raise ConfigError(
            f"batch_size must be a multiple of {GROUPS} for split batch norm, got {config.batch_size}"
        )
    if train.image_size < SMALLEST_IMAGE:
        raise ConfigError(f"image_size must be at least {SMALLEST_IMAGE} pixels, got {train.image_size}")
    rows = torch.from_numpy(evenly(len(held_out), config.eval_size))
    shown = held_out.subset(rows)
    warnings = (*caveats(config, len(train)), *_left_out(train.skipped), *_dark(shown))
    return Setup(config, device, train.to(device), shown, warnings, group)


def _left_out(skipped: Sequence[str]) -> list[str]:
    """What is worth saying of files that can't be read: how many and which."""
    if not skipped:
        return []
    return [f"Left out, as unreadable: {len(skipped):,} of the folder's files ({some(skipped, '; ')})."]


def _dark(shown: ImageSet) -> list[str]:
    """What is worth saying of pictures that are all but black, such as those of 12 bits in files of 16."""
    brightest = int(shown.images.max())
    if brightest >= DARKEST:
        return []
    return [
        f"The images are nearly black: their brightest pixel is {brightest} of 255. Where their files have 16 bits of "
        "which the camera fills fewer, as many do 12, stretch the values to 0 … 65,535 first."
    ]
