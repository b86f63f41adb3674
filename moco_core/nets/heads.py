"""The projection head between an encoder's features and the space the loss looks at."""

from __future__ import annotations

from torch import nn

HEADS = ("mlp", "linear")


def build_head(kind: str, feature_dim: int, dim: int) -> nn.Module:
    """Features B×F → projection B×D.

    `mlp` has one hidden layer of F units (MoCo v2, after SimCLR), `linear` none (MoCo v1). Raises `ValueError` for
    other kinds, and for D below 2: unit vectors in one dimension are the two numbers ±1.
    """
    if kind not in HEADS:
        raise ValueError(f"head must be one of {', '.join(HEADS)}, got {kind!r}")
    if dim < 2:
        raise ValueError(f"dim must be at least 2, got {dim}")
    if kind == "linear":
        return nn.Linear(feature_dim, dim)
    return nn.Sequential(
        nn.Linear(feature_dim, feature_dim),
        nn.ReLU(inplace=True),
        nn.Linear(feature_dim, dim),
    )
