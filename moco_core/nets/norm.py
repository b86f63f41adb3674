"""Split batch norm: one process standing in for several, each with statistics of its own."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class SplitBatchNorm2d(nn.BatchNorm2d):
    """Batch norm over `groups` equal parts of the batch, each normalised by its own mean and variance.

    What MoCo's shuffled batch norm (He et al. 2019, section 3.3) does across GPUs, on one: the i-th part
    stands for the i-th process's slice of the batch. Running statistics move towards the mean over the parts.
    In evaluation mode it is ordinary batch norm.
    """

    def __init__(self, num_features: int, groups: int = 8, **settings: float | bool) -> None:
        if groups < 1:
            raise ValueError(f"groups must be at least 1, got {groups}")
        super().__init__(num_features, **settings)  # type: ignore[arg-type]
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
        running = [
            None if statistic is None or not self.track_running_stats else statistic.repeat(self.groups)
            for statistic in (self.running_mean, self.running_var)
        ]
        weight, bias = (None if p is None else p.repeat(self.groups) for p in (self.weight, self.bias))
        y = F.batch_norm(
            parts.reshape(-1, self.groups * channels, height, width),
            *running, weight, bias, training=True, momentum=self.momentum, eps=self.eps,
        )  # fmt: skip
        for statistic, moved in zip((self.running_mean, self.running_var), running, strict=True):
            if statistic is not None and moved is not None:
                statistic.copy_(moved.view(self.groups, channels).mean(dim=0))
        if self.num_batches_tracked is not None and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        return y.unflatten(1, (self.groups, channels)).transpose(0, 1).flatten(0, 1)


KINDS = ("plain", "split")


def convert(module: nn.Module, kind: str, groups: int = 8) -> nn.Module:
    """`module` with its 2-D batch norms of another kind, weights and statistics kept.

    `plain` leaves it as it is, `split` puts `SplitBatchNorm2d` in place. Raises `ValueError` for other kinds.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "plain":
        return module
    if isinstance(module, nn.BatchNorm2d):
        return _split(module, groups)
    for name, child in module.named_children():
        setattr(module, name, convert(child, kind, groups))
    return module


def _split(norm: nn.BatchNorm2d, groups: int) -> SplitBatchNorm2d:
    split = SplitBatchNorm2d(
        norm.num_features,
        groups,
        eps=norm.eps,
        momentum=norm.momentum,  # type: ignore[arg-type]
        affine=norm.affine,
        track_running_stats=norm.track_running_stats,
    )
    split.load_state_dict(norm.state_dict())
    return split.train(norm.training)
