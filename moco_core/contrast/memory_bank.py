"""Memory bank (Wu et al. 2018): one slot a sample, written when the sample was last seen."""

from __future__ import annotations

import torch
from torch import Tensor

from moco_core.contrast.group import Group
from moco_core.contrast.infonce import info_nce
from moco_core.contrast.method import Dictionary, Method, Scored
from moco_core.nets.encoder import Encoder


class MemoryBank(Method):
    """Positive and negatives both come from the bank, so their ages reach back a whole epoch.

    The query's own embedding is what is stored. A sample that has no slot yet takes the encoding of its
    second view, without gradient, as its positive. Each step draws K negatives from the filled slots,
    without replacement, by a generator seeded with (seed, step); a query's own slot is excluded.
    """

    key_view = 0

    def __init__(
        self,
        encoder: Encoder,
        *,
        samples: int,
        dim: int,
        draws: int,
        temperature: float,
        seed: int,
        group: Group | None = None,
    ) -> None:
        super().__init__(temperature, group)
        self.query = self.key = encoder
        self.draws = draws
        self._seed = seed
        device = next(encoder.parameters()).device
        self._keys = torch.zeros(samples, dim, device=device)
        self._labels = torch.full((samples,), -1, dtype=torch.long)
        # 0: never written; kept on the CPU, where it is asked.
        self._written_steps = torch.zeros(samples, dtype=torch.long)

    def score(self, view_q: Tensor, view_k: Tensor, samples: Tensor, step: int) -> Scored:
        """Each query against its sample's stored key and K others from the bank."""
        _, q = self.query(view_q)
        drawn = self._draw(step)
        positive = self._keys[samples.to(q.device)]
        unseen = self._written_steps[samples] == 0
        if unseen.any():
            with torch.no_grad():
                fresh = self.encode_keys(view_k, step)
            positive = torch.where(unseen.to(q.device)[:, None], fresh, positive)
        positive = self.group.own(positive)
        own = (self.group.own(samples)[:, None] == drawn[None, :]).to(q.device)  # B×K
        loss, logits = info_nce(q, positive, self._keys[drawn.to(q.device)], self.temperature, excluded=own)
        return Scored(loss, logits, self.group.gather(q.detach()), own)

    def remember(self, keys: Tensor, samples: Tensor, labels: Tensor, step: int) -> None:
        """Overwrite the slots of this batch's samples."""
        self._keys[samples.to(keys.device)] = keys
        self._labels[samples] = labels.cpu()
        self._written_steps[samples] = step

    def dictionary(self) -> Dictionary:
        """The written slots, oldest first."""
        order = self._written_steps.argsort(stable=True)
        order = order[self._written_steps[order] > 0]
        keys = self._keys[order.to(self._keys.device)]
        return Dictionary(keys, order, self._labels[order], self._written_steps[order], len(self._keys))

    @property
    def filled(self) -> int:
        """Negatives that the next step draws."""
        return min(self.draws, int((self._written_steps > 0).sum()))

    def dictionary_state(self) -> dict[str, Tensor]:
        """All slots."""
        return {"keys": self._keys, "labels": self._labels, "written_steps": self._written_steps}

    def load_dictionary_state(self, state: dict[str, Tensor]) -> None:
        """Restore all slots."""
        self._keys.copy_(state["keys"])
        self._labels.copy_(state["labels"])
        self._written_steps.copy_(state["written_steps"])

    def _draw(self, step: int) -> Tensor:
        filled = (self._written_steps > 0).nonzero().squeeze(1)
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        return filled[torch.randperm(len(filled), generator=generator)[: self.draws]]
