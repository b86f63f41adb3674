"""Evaluation of a frozen encoder: embeddings, weighted kNN and a linear probe."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from moco_core.analysis.neighbors import knn_predict
from moco_core.contrast.group import Group
from moco_core.data.augment import plain
from moco_core.nets.encoder import Encoder

BATCH = 512


class Embedded(NamedTuple):
    """What an encoder makes of a set of images."""

    features: np.ndarray  # N×F, backbone output
    embeddings: np.ndarray  # N×D, unit length


@torch.no_grad()
def embed(encoder: Encoder, images: torch.Tensor, device: torch.device) -> Embedded:
    """Encode N×C×H×W images (bytes, or views already augmented) in evaluation mode, blocks at a time."""
    was_training = encoder.training
    encoder.eval()
    features, embeddings = [], []
    for block in images.split(BATCH):
        block = block.to(device)
        f, z = encoder(plain(block) if block.dtype == torch.uint8 else block)
        features.append(f.float().cpu())
        embeddings.append(z.float().cpu())
    encoder.train(was_training)
    return Embedded(torch.cat(features).numpy(), torch.cat(embeddings).numpy())


def embed_together(
    encoder: Encoder,
    images: Callable[[slice], torch.Tensor],
    count: int,
    device: torch.device,
    group: Group,
) -> Embedded:
    """`embed` of N = `count` ≥ 1 images, each process encoding a part; the result is the same in all of them.

    `images` gives those of a slice. The parts are equally long, as gathering needs them: where N doesn't divide,
    the last ones begin earlier and overlap. Raises `PeerLost` when another process has ended.
    """
    length = math.ceil(count / group.size)
    starts = [min(rank * length, count - length) for rank in range(group.size)]
    parts = [slice(start, start + length) for start in starts]
    own = embed(encoder, images(parts[group.rank]), device)

    def joined(rows: np.ndarray) -> np.ndarray:
        whole = np.empty((count, *rows.shape[1:]), rows.dtype)
        for part, block in zip(parts, group.gather(torch.from_numpy(rows)).split(length), strict=True):
            whole[part] = block.numpy()
        return whole

    return Embedded(joined(own.features), joined(own.embeddings))


def knn_accuracy(
    bank: np.ndarray,
    bank_labels: np.ndarray,
    held_out: np.ndarray,
    held_out_labels: np.ndarray,
    k: int,
    temperature: float,
) -> float:
    """Share of held-out rows whose class the k nearest of the bank vote for (`knn_predict`).

    Zero rows, which a dying backbone gives, have no neighbours: they neither vote nor are they recognised.
    """
    votes, asks = bank.any(axis=1), held_out.any(axis=1)
    if not votes.any() or not asks.any():
        return 0.0
    k = min(k, int(votes.sum()))
    predicted = knn_predict(bank[votes], bank_labels[votes], held_out[asks], k, temperature)
    return float(np.sum(predicted == held_out_labels[asks]) / len(held_out))


def linear_probe(
    bank: np.ndarray, bank_labels: np.ndarray, held_out: np.ndarray, held_out_labels: np.ndarray
) -> float:
    """Accuracy on held-out features of a logistic regression fitted to the bank's (standardised) features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, C=0.1))
    return float(probe.fit(bank, bank_labels).score(held_out, held_out_labels))
