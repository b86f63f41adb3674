"""The optimizers of the query encoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from moco_core.config import LARS_TRUST, OPTIMIZER_MOMENTUM, ConfigError, TrainConfig


def build_optimizer(config: TrainConfig, encoder: nn.Module) -> torch.optim.Optimizer:
    """SGD, or LARS (You et al. 2017): each layer's step scaled by trust · ‖w‖ / (‖g‖ + weight decay · ‖w‖).

    As usual, LARS leaves biases and batch norm to plain SGD without weight decay. Raises `ConfigError` where its
    package is missing.
    """
    parameters = list(encoder.parameters())
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=config.lr,
            momentum=OPTIMIZER_MOMENTUM,
            weight_decay=config.weight_decay,
            fused=True,
        )
    layers = [p for p in parameters if p.ndim > 1]
    others = [p for p in parameters if p.ndim <= 1]
    groups = [
        {"params": layers, "weight_decay": config.weight_decay, "always_adapt": True},
        {"params": others, "weight_decay": 0.0, "always_adapt": False},
    ]
    return lars()(groups, lr=config.lr, momentum=OPTIMIZER_MOMENTUM, trust_coeff=LARS_TRUST)


def lars() -> type[Any]:
    """timm's LARS; `ConfigError` where the package is missing."""
    try:
        from timm.optim import Lars
    except ImportError as error:
        raise ConfigError(f"optimizer lars needs a package: pip install timm ({error})") from error
    return Lars


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """The same learning rate for all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = lr
