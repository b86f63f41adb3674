"""A snapshot: everything that the pages show of one step, measured and written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from moco_core.analysis import geometry
from moco_core.analysis.checks import evenly
from moco_core.analysis.staleness import CONSISTENT
from moco_core.config import TrainConfig
from moco_core.contrast.method import Method
from moco_core.data.augment import SECOND_VIEW, augment
from moco_core.data.images import ImageSet
from moco_core.nets.encoder import Encoder
from moco_core.runs import RunWriter, schema
from moco_core.training.drift import measure_drift
from moco_core.training.probes import Embedded, embed_together, knn_accuracy, linear_probe
from moco_core.training.views import Views

MOST_SLOTS = 65536  # slots of the dictionary that a snapshot stores; of more, this many evenly over age

Metrics = dict[str, dict[str, Any]]


class Bank(NamedTuple):
    """Labelled training images as the query encoder sees them."""

    features: np.ndarray  # N×F
    embeddings: np.ndarray  # N×D, unit length
    labels: np.ndarray  # N int64


class TrainingError(RuntimeError):
    """Training can't go on; the message says what happened and which setting to change."""


class Snapshots:
    """Takes the snapshots of one run, and counts the seconds that they and their drift cost."""

    def __init__(
        self, run: RunWriter, config: TrainConfig, views: Views, held_out: ImageSet, device: torch.device
    ) -> None:
        self.run, self.config, self.views, self.held_out, self.device = run, config, views, held_out, device
        self.seconds = self.drift_seconds = 0.0

    def describe_eval_set(self) -> None:
        """Write the evaluation images once, before the first snapshot."""
        images = self.held_out
        arrays = {
            "thumbnails": images.thumbnails(),
            "labels": images.labels.cpu().numpy(),
            "sample_ids": images.sample_ids.cpu().numpy(),
        }
        self.run.write_eval_set(arrays, images.class_names)

    def take(self, method: Method, step: int) -> Metrics:
        """Measure and write the state after `step`; returns its metrics.

        Several processes share the encoding; process 0 measures and writes, and the others return nothing.
        Raises `TrainingError` in all of them when the encoder has broken down and its embeddings have no
        direction.
        """
        began = time.perf_counter()
        _take_statistics_of_process_0(method)
        as_they_are = self.held_out.images.__getitem__
        query = self._embed(method, method.query, as_they_are)
        if not np.linalg.norm(query.embeddings, axis=1).min() > 0:
            raise TrainingError(
                f"embeddings are zero or not finite after step {step}: lower lr or raise temperature"
            )
        drift_began = time.perf_counter()
        drift = measure_drift(method, self.views, self.config, step)
        self.drift_seconds += time.perf_counter() - drift_began
        key = query if method.key is method.query else self._embed(method, method.key, as_they_are)
        second_view = self._embed(method, method.query, self._second_view)
        bank = self._bank(method)
        if method.group.rank:
            return {}
        metrics = self._metrics(query, second_view.embeddings, bank, drift, step)
        files: dict[str, dict[str, np.ndarray]] = {
            schema.WEIGHTS_FILE: weights(method),
            schema.EMBEDDINGS_FILE: {
                "query": query.embeddings,
                "key": key.embeddings,
                "second_view": second_view.embeddings,
                "features": query.features,
            },
        }
        stored = self._stored_keys(method)
        if stored:
            files[schema.QUEUE_FILE] = stored
        if drift:
            files[schema.DRIFT_FILE] = drift
        self.run.write_step(step, files, metrics)
        if self.config.keep_weights == "last":
            self.run.drop_weights(before=step)
        self.seconds += time.perf_counter() - began
        return metrics

    def _embed(
        self,
        method: Method,
        encoder: Encoder,
        images: Callable[[slice], torch.Tensor],
        count: int | None = None,
    ) -> Embedded:
        return embed_together(encoder, images, count or len(self.held_out), self.device, method.group)

    def _second_view(self, part: slice) -> torch.Tensor:
        images = self.held_out.images[part].to(self.device)
        return augment(
            images,
            preset=self.views.preset,
            seed=self.config.seed,
            step=0,
            view=SECOND_VIEW,
            offset=part.start,
        )

    def _bank(self, method: Method) -> Bank | None:
        """The labelled training images that vote, embedded; None where fewer than two know their class."""
        train = self.views.images
        rows = torch.from_numpy(evenly(len(train), self.config.bank_size))
        rows = rows[train.labels.cpu()[rows] >= 0]
        if len(rows) < 2 or (self.held_out.labels >= 0).sum() < 2:
            return None
        embedded = self._embed(method, method.query, lambda part: train.subset(rows[part]).images, len(rows))
        return Bank(*embedded, train.labels.cpu()[rows].numpy())

    def _stored_keys(self, method: Method) -> dict[str, np.ndarray]:
        dictionary = method.dictionary()
        if dictionary is None:
            return {}
        rows = torch.from_numpy(evenly(len(dictionary.keys), MOST_SLOTS))
        source_ids = self.views.images.sample_ids.cpu()
        return {
            "keys": dictionary.keys.cpu()[rows].float().numpy(),
            "written_step": dictionary.written_steps.cpu()[rows].numpy(),
            "sample_id": source_ids[dictionary.samples.cpu()[rows]].numpy(),
            "label": dictionary.labels.cpu()[rows].numpy(),
            "size": np.array([dictionary.size], dtype=np.int64),
        }

    def _metrics(
        self,
        query: Embedded,
        second_view: np.ndarray,
        bank: Bank | None,
        drift: dict[str, np.ndarray],
        step: int,
    ) -> Metrics:
        z, labels = query.embeddings, self.held_out.labels.cpu().numpy()
        count = {"count": len(z)}
        pairs = {"pairs": "held-out image and one augmented view", **count}
        collapse = geometry.collapse(z)
        metrics: Metrics = {
            "alignment": {
                "value": geometry.alignment(z, second_view),
                "alpha": 2,
                "layer": "projector",
                **pairs,
            },
            "uniformity": {"value": geometry.uniformity(z), "t": 2, "layer": "projector", **count},
            "effective_rank": {"value": geometry.effective_rank(z), "layer": "projector", **count},
            "collapse": {"value": collapse.value, "verdict": collapse.verdict, "reason": collapse.sentence},
        }
        if query.features.any():  # else the backbone is dead, and nothing has a rank
            rank = geometry.effective_rank(query.features)
            metrics["effective_rank_features"] = {"value": rank, "layer": "backbone", **count}
        if drift:
            metrics["k_star"] = {
                "value": int(drift["k_star"]),
                "threshold": CONSISTENT,
                "filled": int(drift["filled"]),
                "measured": len(drift["age"]),
                "anchors": int(drift["anchors"]),
            }
        return metrics if bank is None else metrics | self._class_metrics(query, bank, labels, step)

    def _class_metrics(self, query: Embedded, bank: Bank, labels: np.ndarray, step: int) -> Metrics:
        """What needs labels."""
        known = labels >= 0
        bank_labels, held_out_labels = bank.labels, labels[known]
        k, temperature = min(self.config.knn_k, len(bank_labels)), self.config.knn_temperature
        count = {"bank": len(bank_labels), "count": int(known.sum())}
        metrics: Metrics = {}
        for name, layer, space, held_out in (
            ("knn", "projector", bank.embeddings, query.embeddings[known]),
            ("knn_features", "backbone", bank.features, query.features[known]),
        ):
            accuracy = knn_accuracy(space, bank_labels, held_out, held_out_labels, k, temperature)
            metrics[name] = {"value": accuracy, "k": k, "temperature": temperature, "layer": layer, **count}
        if np.unique(held_out_labels, return_counts=True)[1].max() > 1:
            tolerance = geometry.tolerance(query.embeddings[known], held_out_labels)
            metrics["tolerance"] = {"value": tolerance, "layer": "projector", "count": int(known.sum())}
        if step == self.config.steps and len(np.unique(bank_labels)) > 1:
            accuracy = linear_probe(bank.features, bank_labels, query.features[known], held_out_labels)
            metrics["linear"] = {
                "value": accuracy,
                "probe": "logistic regression, C = 0.1",
                "layer": "backbone",
                **count,
            }
        return metrics


def _take_statistics_of_process_0(method: Method) -> None:
    """Evaluate everywhere with the batch-norm statistics that process 0 writes beside the weights.

    Each process counts its own while it trains, by the rows that it sees; training doesn't read them.
    """
    buffers = list(method.buffers())
    for buffer, shared in zip(buffers, method.group.share([b.cpu() for b in buffers]), strict=True):
        buffer.copy_(shared)


def weights(method: Method) -> dict[str, np.ndarray]:
    """The encoders' parameters and buffers, `query.*` and, where it is another network, `key.*`."""
    encoders = {"query": method.query} | ({} if method.key is method.query else {"key": method.key})
    return {
        f"{role}.{name}": tensor.detach().cpu().numpy()
        for role, encoder in encoders.items()
        for name, tensor in encoder.state_dict().items()
    }
