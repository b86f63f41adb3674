"""KeyQueue: the dictionary of past keys, first in, first out (He et al. 2019, section 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor


class KeyQueue:
    """A ring of K slots. Each remembers its key and when, from which sample and of which class it was made.

    Any K and any batch size work: batches wrap around the end, and of a batch longer than K the last K
    stay. Slots that were never written are not part of any view. The fill level is a plain integer, so no
    method waits for the device.
    """

    def __init__(self, size: int, dim: int, device: torch.device | str = "cpu") -> None:
        """An empty queue of `size` slots for keys of `dim` numbers; `ValueError` below 1 or 2."""
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        if dim < 2:
            raise ValueError(f"dim must be at least 2, got {dim}")
        self.size = size
        self.filled = 0
        self._next = 0  # the slot that is written next; once the ring is full, the oldest
        self._keys = torch.zeros(size, dim, device=device)
        self._sample_ids = torch.full((size,), -1, dtype=torch.long, device=device)
        self._labels = torch.full((size,), -1, dtype=torch.long, device=device)
        self._written_steps = torch.full((size,), -1, dtype=torch.long, device=device)

    def __len__(self) -> int:
        return self.filled

    @torch.no_grad()
    def enqueue(self, keys: Tensor, sample_ids: Tensor, labels: Tensor, step: int) -> None:
        """Append keys (B×D) with their sample_ids (B) and labels (B), made at `step`; the oldest leave."""
        if keys.ndim != 2 or keys.shape[1] != self._keys.shape[1]:
            raise ValueError(f"keys must be B×{self._keys.shape[1]}, got shape {tuple(keys.shape)}")
        if not len(keys) == len(sample_ids) == len(labels):
            lengths = (len(keys), len(sample_ids), len(labels))
            raise ValueError(f"keys, sample_ids and labels must be equally long, got {lengths}")
        keys, sample_ids, labels = (x[-self.size :] for x in (keys, sample_ids, labels))
        done = 0
        while done < len(keys):
            count = min(len(keys) - done, self.size - self._next)
            slots, rows = slice(self._next, self._next + count), slice(done, done + count)
            self._keys[slots] = keys[rows]
            self._sample_ids[slots] = sample_ids[rows]
            self._labels[slots] = labels[rows]
            self._written_steps[slots] = step
            self._next = (self._next + count) % self.size
            done += count
        self.filled = min(self.size, self.filled + len(keys))

    @property
    def negatives(self) -> Tensor:
        """All filled keys in storage order, a view without a copy: for the logits, where order is no matter."""
        return self._keys[: self.filled]

    @property
    def keys(self) -> Tensor:
        """filled×D, oldest first."""
        return self._ordered(self._keys)

    @property
    def sample_ids(self) -> Tensor:
        """filled, oldest first."""
        return self._ordered(self._sample_ids)

    @property
    def labels(self) -> Tensor:
        """filled, oldest first; −1 where unknown."""
        return self._ordered(self._labels)

    @property
    def written_steps(self) -> Tensor:
        """filled, oldest first: the step that made each key."""
        return self._ordered(self._written_steps)

    def ages(self, step: int) -> Tensor:
        """filled, oldest first: steps since each key was made, seen from `step`."""
        return step - self.written_steps

    def state_dict(self) -> dict[str, Tensor]:
        """A copy of the filled slots in storage order and the next to be written: sums over the queue round alike."""
        filled = slice(self.filled)
        return {
            "keys": self._keys[filled].clone(),
            "sample_ids": self._sample_ids[filled].clone(),
            "labels": self._labels[filled].clone(),
            "written_steps": self._written_steps[filled].clone(),
            "next": torch.tensor(self._next),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over the content that `state_dict` gave; `ValueError` when it holds more than K slots."""
        self.filled, self._next = len(state["keys"]), int(state["next"])
        if self.filled > self.size:
            raise ValueError(f"state must hold at most {self.size} slots, got {self.filled}")
        filled = slice(self.filled)
        self._keys[filled] = state["keys"]
        self._sample_ids[filled] = state["sample_ids"]
        self._labels[filled] = state["labels"]
        self._written_steps[filled] = state["written_steps"]

    def _ordered(self, array: Tensor) -> Tensor:
        if self.filled < self.size:
            return array[: self.filled].clone()
        return array.roll(-self._next, dims=0)
