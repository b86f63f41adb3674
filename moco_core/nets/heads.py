"""The projection head between an encoder's features and the space the loss looks at."""

from __future__ import annotations

from torch import nn


def mlp_head(feature_dim: int, dim: int) -> nn.Sequential:
    """Features B×F → projection B×D through one hidden layer of F units (MoCo v2, after SimCLR).

    Raises `ValueError` for D below 2: unit vectors in one dimension are the two numbers ±1.
    """
    if dim < 2:
        raise ValueError(f"dim must be at least 2, got {dim}")
    return nn.Sequential(
        nn.Linear(feature_dim, feature_dim),
        nn.ReLU(inplace=True),
        nn.Linear(feature_dim, dim),
    )
