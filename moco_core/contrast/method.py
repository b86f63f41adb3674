"""What every way of getting negatives offers to the training loop."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from moco_core.contrast.group import Group
from moco_core.nets.encoder import Encoder


class Scored(NamedTuple):
    """A batch that has been scored and not yet remembered."""

    loss: Tensor  # scalar
    logits: Tensor  # B×(1+K), excluded pairs −∞; this process's rows
    keys: Tensor  # B×D, detached; those of all processes, in the form that `remember` takes
    excluded: Tensor | None = None  # B×K, true where a pair is no negative; None where all are


class Readouts(NamedTuple):
    """What a logged step shows of its batch, still on the device."""

    positive_cosine: Tensor
    negative_cosine: Tensor  # NaN while there are no negatives
    contrast_accuracy: Tensor  # share of queries closest to their positive


class Dictionary(NamedTuple):
    """The stored keys, oldest first."""

    keys: Tensor  # M×D
    samples: Tensor  # M, positions in the training set
    labels: Tensor  # M
    written_steps: Tensor  # M
    size: int  # slots in all


class Method(nn.Module):
    """A query encoder, a key encoder (perhaps the same), and where the negatives come from.

    A training step is `score` → backward → optimizer → `remember`: the batch joins the dictionary after it
    has been scored, so that no query finds its own positive among its negatives. Where several processes
    share the batch, each scores its own rows and all remember the keys of the whole: the same dictionary.
    """

    query: Encoder
    key: Encoder
    momentum = 0.0  # of the key encoder, at the step to come; 0 where it is the query encoder itself
    key_view = 1  # the view whose encoding is stored

    def __init__(self, temperature: float, group: Group | None = None) -> None:
        super().__init__()
        self.temperature = temperature
        self.group = group or Group()

    def score(self, view_q: Tensor, view_k: Tensor, samples: Tensor, step: int) -> Scored:
        """Loss and logits of one batch: two views of this process's rows, B/size×C×H×W.

        `samples` are the positions in the training set of the whole batch, B, on the CPU.
        """
        raise NotImplementedError

    def remember(self, keys: Tensor, samples: Tensor, labels: Tensor, step: int) -> None:
        """Store the whole batch's keys, where the method stores any."""

    def encode_keys(self, images: Tensor, step: int) -> Tensor:
        """Embeddings B×D of all processes' images, as the key encoder makes them in training.

        `images` are this process's rows; `step` fixes the batch-norm shuffle. No gradient flows back between
        processes.
        """
        return self.group.gather(self.key(images)[1])

    def encode_queries(self, images: Tensor) -> Tensor:
        """Embeddings B×D of all processes' images by the query encoder, likewise."""
        return self.group.gather(self.query(images)[1])

    def dictionary(self) -> Dictionary | None:
        """The stored keys, or None for a method that stores none."""
        return None

    @property
    def filled(self) -> int:
        """How many keys the next query can be compared with."""
        raise NotImplementedError

    def dictionary_state(self) -> dict[str, Tensor]:
        """What resuming needs beside the encoders' weights."""
        return {}

    def load_dictionary_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `dictionary_state` gave."""


@torch.no_grad()
def readouts(scored: Scored, temperature: float) -> Readouts:
    """Mean positive and negative cosine and contrast accuracy of a scored batch."""
    positive, negatives = scored.logits[:, 0], scored.logits[:, 1:]
    if scored.excluded is None:
        mean_negative = negatives.mean()
    else:
        mean_negative = negatives.masked_fill(scored.excluded, 0).sum() / (~scored.excluded).sum()
    accuracy = (positive == scored.logits.amax(dim=1)).float().mean()
    return Readouts(positive.mean() * temperature, mean_negative * temperature, accuracy)
