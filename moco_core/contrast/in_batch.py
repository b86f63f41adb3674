"""End-to-end contrast: the other images of the batch are the negatives (He et al. 2019, figure 2a)."""

from __future__ import annotations

import torch
from torch import Tensor

from moco_core.contrast.group import Group
from moco_core.contrast.infonce import info_nce
from moco_core.contrast.method import Method, Scored
from moco_core.nets.encoder import Encoder


class InBatch(Method):
    """One encoder for queries and keys, gradients through both, K = B − 1. Keys are never stale."""

    def __init__(self, encoder: Encoder, *, temperature: float, group: Group | None = None) -> None:
        super().__init__(temperature, group)
        self.query = self.key = encoder
        self._filled = 0

    def score(self, view_q: Tensor, view_k: Tensor, samples: Tensor, step: int) -> Scored:
        """Each query against its own key and those of the other B − 1 images."""
        _, q = self.query(view_q)
        k = self.group.gather_with_gradient(self.key(view_k)[1])  # B×D
        own = self.group.own(torch.eye(len(k), dtype=torch.bool, device=q.device))
        loss, logits = info_nce(q, self.group.own(k), k, self.temperature, excluded=own)
        self._filled = len(k) - 1
        return Scored(loss, logits, k.detach(), own)

    @property
    def filled(self) -> int:
        """Negatives in the last batch, B − 1."""
        return self._filled
