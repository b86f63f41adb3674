"""Encoder: a backbone and a projection head, ending on the unit sphere."""

from __future__ import annotations

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from moco_core.nets.encoders import build_backbone
from moco_core.nets.heads import build_head
from moco_core.nets.norm import convert


class Encoder(nn.Module):
    """Images B×C×H×W → features B×F (backbone) and embedding B×D (head, unit length)."""

    def __init__(self, backbone: nn.Module, head: nn.Module, precision: str = "fp32") -> None:
        """With `precision` bf16 both are run under autocast while training; weights are fp32 always."""
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.precision = precision

    @cached_property
    def theta(self) -> list[nn.Parameter]:
        """All parameters, listed once: at every step, walking the modules would take as long as moving them."""
        return list(self.parameters())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features B×F and embeddings B×D; these are normalised in fp32, whatever precision came before."""
        if self.precision == "bf16" and self.training:
            with torch.autocast(x.device.type, torch.bfloat16):
                features, projected = self._run(x)
        else:
            features, projected = self._run(x)
        return features, F.normalize(projected.float(), dim=1)

    def _run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.backbone(x)
        return features, self.head(features)


def build_encoder(
    name: str,
    channels: int,
    image_size: int,
    dim: int,
    batch_norm: str = "plain",
    precision: str = "fp32",
    head: str = "mlp",
) -> Encoder:
    """A freshly initialised encoder; after the same `torch.manual_seed` it is the same encoder.

    `name` is one of `BACKBONES`, `batch_norm` `plain`, `split` or `sync`, `precision` `fp32` or `bf16`,
    `head` `mlp` or `linear`. Raises `ValueError` for anything else.
    """
    if precision not in ("fp32", "bf16"):
        raise ValueError(f"precision must be fp32 or bf16, got {precision!r}")
    backbone = build_backbone(name, channels, image_size)
    projection = build_head(head, int(backbone.feature_dim), dim)  # type: ignore[arg-type]
    return Encoder(convert(backbone, batch_norm), projection, precision)
