"""MoCo with a symmetric loss (as in MoCo v3, Chen et al. 2021): each view is the query once and the key once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from moco_core.contrast.infonce import info_nce
from moco_core.contrast.method import Scored
from moco_core.contrast.moco import MoCo, ema_update
from moco_core.contrast.queue import KeyQueue
from moco_core.nets.encoder import Encoder

SECOND = "second."


class SymmetricMoCo(MoCo):
    """Two losses a step, averaged, each with a queue of its own.

    One queue for both would put the keys of a batch's other view among the negatives of its own images.
    `queue` holds the keys of the second view, as in `MoCo`; `second_queue` those of the first.
    """

    def __init__(self, encoder: Encoder, *, dim: int, queue_size: int, **settings: Any) -> None:
        """As `MoCo`."""
        super().__init__(encoder, dim=dim, queue_size=queue_size, **settings)
        self.second_queue = KeyQueue(queue_size, dim, next(encoder.parameters()).device)

    def score(self, view_q: Tensor, view_k: Tensor, samples: Tensor, step: int) -> Scored:
        """Move the key encoder; compare each view with the other and the queue of the other's keys.

        Logits are those of both directions, 2B×(1+K), keys those of `view_k` and of `view_q` behind, 2B×D.
        """
        ema_update(self.key, self.query, self.momentum)
        own, tau = self.group.own, self.temperature
        with torch.no_grad():
            k, k_second = self.encode_keys(view_k, step), self.encode_keys(view_q, step)  # B×D each
        first = info_nce(self.query(view_q)[1], own(k), self.queue.negatives, tau)
        second = info_nce(self.query(view_k)[1], own(k_second), self.second_queue.negatives, tau)
        logits = torch.cat([first.logits, second.logits])
        return Scored((first.loss + second.loss) / 2, logits, torch.cat([k, k_second]))

    def remember(self, keys: Tensor, samples: Tensor, labels: Tensor, step: int) -> None:
        """Enqueue the keys of each view (2B×D) in its queue."""
        for queue, own in zip((self.queue, self.second_queue), keys.chunk(2), strict=True):
            queue.enqueue(own, samples, labels, step)

    def dictionary_state(self) -> dict[str, Tensor]:
        """Both queues."""
        second = self.second_queue.state_dict()
        return self.queue.state_dict() | {SECOND + name: array for name, array in second.items()}

    def load_dictionary_state(self, state: dict[str, Tensor]) -> None:
        """Restore both queues."""
        self.queue.load_state_dict(state)
        second = {
            name.removeprefix(SECOND): array for name, array in state.items() if name.startswith(SECOND)
        }
        self.second_queue.load_state_dict(second)
