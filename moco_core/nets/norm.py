"""Split batch norm: one process standing in for several, each with statistics of its own."""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

GROUPS = 8  # the GPUs that split batch norm stands in for (He et al. 2019)


class SplitBatchNorm2d(nn.BatchNorm2d):
    """Batch norm over `groups` equal parts of the batch, each normalised by its own mean and variance.

    What MoCo's shuffled batch norm (He et al. 2019, section 3.3) does across GPUs, on one: the i-th part
    stands for the i-th process's slice of the batch. Running statistics move towards the mean over the parts.
    In evaluation mode it is ordinary batch norm.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def __init__(
        self, num_features: int, groups: int = GROUPS, eps: float = 1e-5, momentum: float = 0.1
    ) -> None:
        if groups < 1:
            raise ValueError(f"groups must be at least 1, got {groups}")
        super().__init__(num_features, eps, momentum)
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """B×C×H×W → the same shape; `ValueError` when, in training, B isn't a multiple of the groups."""
        if not self.training:
            return super().forward(x)
        batch, channels, height, width = x.shape
        if batch % self.groups:
            raise ValueError(
                f"the batch must be a multiple of {self.groups} images for split batch norm, got {batch}"
            )
        parts = x.unflatten(0, (self.groups, -1)).transpose(0, 1)  # B/G×G×C×H×W
        tracked = self.track_running_stats
        mean = self.running_mean.repeat(self.groups) if tracked else None
        var = self.running_var.repeat(self.groups) if tracked else None
        y = F.batch_norm(
            parts.reshape(-1, self.groups * channels, height, width),
            mean,
            var,
            self.weight.repeat(self.groups),
            self.bias.repeat(self.groups),
            training=True,
            momentum=self.momentum,
            eps=self.eps,
        )
        if mean is not None and var is not None:
            self.running_mean.copy_(mean.view(self.groups, channels).mean(dim=0))
            self.running_var.copy_(var.view(self.groups, channels).mean(dim=0))
            self.num_batches_tracked.add_(1)
        return y.unflatten(1, (self.groups, channels)).transpose(0, 1).flatten(0, 1)


KINDS = ("plain", "split", "sync")


def convert(module: nn.Module, kind: str, groups: int = GROUPS) -> nn.Module:
    """`module` with its 2-D batch norms of another kind, weights and statistics kept.

    `plain` leaves it as it is, `split` puts `SplitBatchNorm2d` in place, `sync` torch's `SyncBatchNorm`, whose
    statistics are those of all processes' images together (GPUs alone). Raises `ValueError` for other kinds.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "plain":
        return module
    if kind == "sync":
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)
    if isinstance(module, nn.BatchNorm2d):
        return _split(module, groups)
    for name, child in module.named_children():
        setattr(module, name, convert(child, kind, groups))
    return module


def _split(norm: nn.BatchNorm2d, groups: int) -> SplitBatchNorm2d:
    split = SplitBatchNorm2d(norm.num_features, groups, norm.eps, cast(float, norm.momentum))
    split.load_state_dict(norm.state_dict())
    return split.train(norm.training)
