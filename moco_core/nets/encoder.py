"""Encoder: a backbone and a projection head, ending on the unit sphere."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from moco_core.nets.encoders import build_backbone
from moco_core.nets.heads import mlp_head
from moco_core.nets.norm import convert


class Encoder(nn.Module):
    """Images B×C×H×W → features B×F (backbone) and embedding B×D (head, unit length)."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features B×F and embeddings B×D; these are normalised in fp32, whatever precision came before."""
        features = self.backbone(x)
        return features, F.normalize(self.head(features).float(), dim=1)


def build_encoder(name: str, channels: int, image_size: int, dim: int, batch_norm: str = "plain") -> Encoder:
    """A freshly initialised encoder; after the same `torch.manual_seed` it is the same encoder.

    `name` is one of `BACKBONES`, `batch_norm` `plain`, `split` or `sync`. Raises `ValueError` for anything else.
    """
    backbone = build_backbone(name, channels, image_size)
    head = mlp_head(int(backbone.feature_dim), dim)  # type: ignore[arg-type]
    return Encoder(convert(backbone, batch_norm), head)
