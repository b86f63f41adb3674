"""Queue staleness measured while a run trains: stored keys against the same views encoded now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from moco_core.analysis import staleness
from moco_core.analysis.checks import evenly
from moco_core.config import TrainConfig
from moco_core.contrast.method import Dictionary, Method
from moco_core.training.schedule import planned_snapshots
from moco_core.training.views import Views

ANCHORS = 256  # queries whose gradients are compared, at most
FORWARDS_A_STEP = 5  # a training step: two forward passes, a backward worth two, two augmentations worth one


def affordable_batches(config: TrainConfig, images: int) -> int:
    """Batches that one snapshot may re-encode within `drift_share` of a run's compute, at least two.

    Each costs two forward passes (key and query encoder), as do the anchors.
    """
    forwards = (
        config.drift_share * config.steps * FORWARDS_A_STEP / (len(planned_snapshots(config, images)) - 1)
    )
    return max(2, int(forwards / 2) - 1)


@torch.no_grad()
def measure_drift(method: Method, views: Views, config: TrainConfig, step: int) -> dict[str, np.ndarray]:
    """The arrays of drift.safetensors after `step`; empty for a method without keys, or before the first.

    Batches still in the dictionary are re-encoded whole, in their original composition, with batch-norm
    statistics of that batch and running statistics left alone. When not all are affordable, those measured
    lie evenly over age, newest and oldest included. The anchors are the queries and positives of the step
    to come. Where several processes train, all encode their rows, and process 0 alone gets the arrays.
    """
    dictionary = method.dictionary()
    if dictionary is None or len(dictionary.keys) == 0 or config.drift_share == 0:
        return {}
    with frozen_statistics(method.query), frozen_statistics(method.key):
        most = affordable_batches(config, len(views.images))
        slots, fresh, lagged, again = _re_encode(method, views, dictionary, most)
        coming = views.batch(step + 1)
        query = method.encode_queries(views.view(coming, step + 1, 0))[:ANCHORS]
        positive = method.encode_keys(views.view(coming, step + 1, 1), step + 1)[:ANCHORS]
    if method.group.rank:
        return {}
    written = dictionary.written_steps[slots.to(dictionary.written_steps.device)]
    return staleness.measure(
        stored=_numpy(dictionary.keys[slots.to(dictionary.keys.device)]),
        fresh=_numpy(fresh),
        query_view=_numpy(lagged),
        age=step - written.cpu().numpy(),
        slot=slots.numpy(),
        query=_numpy(query),
        positive=_numpy(positive),
        temperature=config.temperature,
        filled=len(dictionary.keys),
        sample_ids=dictionary.samples[slots.to(dictionary.samples.device)].cpu().numpy(),
        control=(_numpy(fresh[-len(again) :]), _numpy(again)),
        seed=config.seed,
    )


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Batch norm in `module` normalises by the batch, as in training, and leaves its running statistics alone."""
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    tracked = [norm.track_running_stats for norm in norms]
    try:
        for norm in norms:
            norm.track_running_stats = False
        yield
    finally:
        for norm, track in zip(norms, tracked, strict=True):
            norm.track_running_stats = track


def _re_encode(
    method: Method, views: Views, dictionary: Dictionary, most: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Slots measured (M) and their views' embeddings by the current key and query encoders (M×D each).

    Also the embeddings of the newest batch, the last of the slots, by the key encoder once more: the control,
    whose drift must read 0.
    """
    written, samples = dictionary.written_steps.cpu(), dictionary.samples.cpu()
    steps = written.unique()
    chosen = steps[torch.from_numpy(evenly(len(steps), most))]
    slots, fresh, lagged = [], [], []
    for then in chosen.tolist():
        indices = views.batch(then)
        images = views.view(indices, then, method.key_view)
        held = (written == then).nonzero().squeeze(1)
        sorted_indices, order = indices.sort()
        rows = order[torch.searchsorted(sorted_indices, samples[held])].to(images.device)
        slots.append(held)
        fresh.append(method.encode_keys(images, then)[rows])
        lagged.append(method.encode_queries(images)[rows])
    again = method.encode_keys(images, then)[rows]
    return torch.cat(slots), torch.cat(fresh), torch.cat(lagged), again


def _numpy(x: Tensor) -> np.ndarray:
    return x.float().cpu().numpy()
