"""InfoNCE: tell the positive key from K negatives (van den Oord et al. 2018; He et al. 2019, eq. 1)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class InfoNCE(NamedTuple):
    """The loss of a batch and the logits that it came from."""

    loss: Tensor  # scalar
    logits: Tensor  # B×(1+K), the positive first, already divided by τ


def info_nce(
    query: Tensor, positive: Tensor, negatives: Tensor, temperature: float, excluded: Tensor | None = None
) -> InfoNCE:
    """Mean over the batch of −log( exp(q·k⁺/τ) / (exp(q·k⁺/τ) + Σᵢ exp(q·kᵢ/τ)) ).

    query B×D and positive B×D row by row, negatives K×D shared by all rows (K = 0 gives loss 0), all of
    unit length; temperature τ > 0. `excluded` (B×K, bool) marks pairs that are no negatives, such as a
    sample and its own key. Raises `ValueError` for shapes that don't fit and τ that isn't positive.
    """
    if query.ndim != 2 or len(query) == 0:
        raise ValueError(f"query must be B×D with B ≥ 1, got shape {tuple(query.shape)}")
    if positive.shape != query.shape:
        raise ValueError(
            f"positive must have the query's shape {tuple(query.shape)}, got {tuple(positive.shape)}"
        )
    if negatives.ndim != 2 or negatives.shape[1] != query.shape[1]:
        raise ValueError(f"negatives must be K×{query.shape[1]}, got shape {tuple(negatives.shape)}")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be a finite number above 0, got {temperature}")
    query = query / temperature  # here rather than B×K logits
    l_pos = (query * positive).sum(dim=1, keepdim=True)  # B×1
    l_neg = query @ negatives.T  # B×K
    if excluded is not None:
        l_neg = l_neg.masked_fill(excluded, float("-inf"))
    logits = torch.cat([l_pos, l_neg], dim=1)  # B×(1+K)
    labels = torch.zeros(len(logits), dtype=torch.long, device=logits.device)  # the positive is entry 0
    return InfoNCE(F.cross_entropy(logits, labels), logits)
