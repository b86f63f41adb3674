"""Momentum Contrast (He et al. 2019, algorithm 1): a queue of keys from a slowly moving encoder."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from moco_core.contrast.group import Group
from moco_core.contrast.infonce import info_nce
from moco_core.contrast.method import Dictionary, Method, Scored
from moco_core.contrast.queue import KeyQueue
from moco_core.nets.encoder import Encoder


@torch.no_grad()
def ema_update(key_module: nn.Module, query_module: nn.Module, momentum: float) -> None:
    """θ_k ← m·θ_k + (1 − m)·θ_q in place (He et al. 2019, eq. 2): parameters only, never batch-norm buffers.

    Raises `ValueError` for m outside [0, 1] and for modules whose parameters don't correspond.
    """
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum must be at least 0 and at most 1, got {momentum}")
    theta_k, theta_q = _parameters(key_module), _parameters(query_module)
    if [p.shape for p in theta_k] != [p.shape for p in theta_q]:
        raise ValueError(
            "key_module and query_module must have parameters of the same shapes, in the same order"
        )
    torch._foreach_lerp_(theta_k, theta_q, 1 - momentum)


def _parameters(module: nn.Module) -> list[Tensor]:
    return list(module.theta if isinstance(module, Encoder) else module.parameters())


class MoCo(Method):
    """The query encoder learns; the key encoder follows it by `ema_update`; past keys are the negatives."""

    def __init__(
        self,
        encoder: Encoder,
        *,
        dim: int,
        queue_size: int,
        momentum: float,
        temperature: float,
        shuffle_seed: int | None = None,
        group: Group | None = None,
    ) -> None:
        """`encoder` becomes the query encoder, a copy of it the key encoder.

        With a `shuffle_seed` the key batch is shuffled before encoding, across all processes, so that batch
        norm over a part of it groups the keys otherwise than the queries (section 3.3, "Shuffling BN").
        """
        super().__init__(temperature, group)
        self.query = encoder
        self.key = copy.deepcopy(encoder).requires_grad_(False)
        self.momentum = momentum
        self.queue = KeyQueue(queue_size, dim, next(encoder.parameters()).device)
        self._shuffle_seed = shuffle_seed

    def score(self, view_q: Tensor, view_k: Tensor, samples: Tensor, step: int) -> Scored:
        """Move the key encoder, encode both views, and compare the queries with positives and queue.

        The key encoder moves first, as in the authors' code, so that right after a step the newest keys in
        the queue are those of the current key encoder. Keys are encoded before queries: what the queries keep
        for the backward pass then is still in the processor's cache when it begins.
        """
        ema_update(self.key, self.query, self.momentum)
        with torch.no_grad():
            k = self.encode_keys(view_k, step)  # B×D
        _, q = self.query(view_q)  # B×D
        loss, logits = info_nce(q, self.group.own(k), self.queue.negatives, self.temperature)
        return Scored(loss, logits, k)

    def remember(self, keys: Tensor, samples: Tensor, labels: Tensor, step: int) -> None:
        """Enqueue the keys of this step."""
        self.queue.enqueue(keys, samples, labels, step)

    def encode_keys(self, images: Tensor, step: int) -> Tensor:
        """Key embeddings B×D, encoded in shuffled order where batch norm is split."""
        if self._shuffle_seed is None:
            return super().encode_keys(images, step)
        images = self.group.gather(images)
        generator = torch.Generator().manual_seed(self._shuffle_seed * 1_000_003 + step)
        order = torch.randperm(len(images), generator=generator).to(images.device)
        return super().encode_keys(self.group.own(images[order]), step)[order.argsort()]

    def dictionary(self) -> Dictionary:
        """The queue, oldest first."""
        queue = self.queue
        return Dictionary(queue.keys, queue.sample_ids, queue.labels, queue.written_steps, queue.size)

    @property
    def filled(self) -> int:
        """Filled slots of the queue."""
        return self.queue.filled

    def dictionary_state(self) -> dict[str, Tensor]:
        """The queue."""
        return self.queue.state_dict()

    def load_dictionary_state(self, state: dict[str, Tensor]) -> None:
        """Restore the queue."""
        self.queue.load_state_dict(state)
