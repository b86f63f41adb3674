"""Momentum contrast with the encoders taken away: a few classes, each a query and a key on the unit sphere.

What training does to weights happens here to the embeddings themselves, so that every quantity of a step can
be seen and worked out by hand. numpy alone.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

DIM = 3


@dataclass(frozen=True)
class Contrast:
    """One query told apart from its negatives (InfoNCE, van den Oord et al. 2018; He et al. 2019, eq. 1)."""

    query: np.ndarray  # D
    positive: np.ndarray  # D, k⁺
    negatives: np.ndarray  # K×D
    temperature: float  # τ
    cosines: np.ndarray  # 1+K: q·k⁺, then q·kᵢ
    weights: np.ndarray  # 1+K: p⁺, then pᵢ, the softmax of cosines / τ
    loss: float  # −ln p⁺, nats

    @property
    def positive_cosine(self) -> float:
        """q·k⁺."""
        return float(self.cosines[0])

    @cached_property
    def mean_negative_cosine(self) -> float:
        """Mean of q·kᵢ; NaN without negatives."""
        return float(self.cosines[1:].mean()) if len(self.negatives) else math.nan

    @cached_property
    def pull(self) -> np.ndarray:
        """(1−p⁺)·k⁺ (D). 1−p⁺ is summed from the negatives, which stays exact when p⁺ is almost 1."""
        return self.weights[1:].sum() * self.positive

    @cached_property
    def push(self) -> np.ndarray:
        """−Σ pᵢ·kᵢ (D)."""
        return -(self.weights[1:] @ self.negatives)

    @cached_property
    def direction(self) -> np.ndarray:
        """g = (1−p⁺)·k⁺ − Σ pᵢ·kᵢ (D), which is −τ·∂L/∂q."""
        return self.pull + self.push


def info_nce(query: np.ndarray, positive: np.ndarray, negatives: np.ndarray, temperature: float) -> Contrast:
    """L = −ln( exp(q·k⁺/τ) / (exp(q·k⁺/τ) + Σᵢ exp(q·kᵢ/τ)) ) and its gradient, for one query.

    query D, positive D, negatives K×D with K ≥ 0 (without any, the loss is 0), all of unit length; τ > 0.
    """
    cosines = np.empty(1 + len(negatives))
    cosines[0] = query @ positive
    np.matmul(negatives, query, out=cosines[1:])
    logits = cosines / temperature
    logits -= logits.max()
    weights = np.exp(logits)
    total = weights.sum()
    loss = math.log(total) - float(logits[0])
    weights /= total
    return Contrast(query, positive, negatives, temperature, cosines, weights, loss)


def tangential(vector: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The part of `vector` (D) that is tangential to the unit sphere at `at` (D): v − (v·q)·q."""
    return vector - (vector @ at) * at


def pairwise_cosines(x: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of different rows of `x` (C×D, unit length): C·(C−1)/2 of them.

    Their mean is at least −1/(C−1), and is that exactly when the rows sum to zero. Six points on the sphere
    in 3-D lie furthest apart as an octahedron: there the largest is 0 and the mean −1/5.
    """
    above = np.triu_indices(len(x), 1)
    return (x @ x.T)[above]


def octahedron_loss(queue_size: int, temperature: float) -> float:
    """InfoNCE, in nats, of six classes at rest on the corners of an octahedron, the queue holding K/6 keys of each.

    `ln(1 + K/6·(1 + 4·e^{−1/τ} + e^{−2/τ}))`: against its positive at cosine 1, an anchor's negatives lie at
    cosine 1 (its own class's keys: false negatives), 0 (four classes) and −1 (the opposite one). Draws that
    come out unevenly make the mean loss a little smaller than this.
    """
    others = 1 + 4 * math.exp(-1 / temperature) + math.exp(-2 / temperature)
    return math.log1p(queue_size / 6 * others)


@dataclass(frozen=True)
class SphereStep:
    """One step: which class was the anchor, what it was contrasted with, and where q and k went."""

    anchor: int
    contrast: Contrast  # as it was before anything moved; its negatives are the queue, oldest first
    negative_classes: np.ndarray  # K
    step_size: float  # η
    momentum: float  # m
    query: np.ndarray  # 3, the anchor's q after the step
    key: np.ndarray  # 3, the anchor's k after the step

    @property
    def loss(self) -> float:
        """InfoNCE, nats."""
        return self.contrast.loss

    @property
    def positive_cosine(self) -> float:
        """q·k⁺ before the step."""
        return self.contrast.positive_cosine

    @property
    def mean_negative_cosine(self) -> float:
        """Mean of q·kᵢ before the step; NaN while the queue was empty, which it is for the first step."""
        return self.contrast.mean_negative_cosine

    @cached_property
    def displacement(self) -> np.ndarray:
        """η·(g − (g·q)·q) (3): what is added to q before it is scaled back to unit length."""
        return self.step_size * tangential(self.contrast.direction, self.contrast.query)


class SphereMoCo:
    """MoCo on the 3-D sphere: C classes, each with a query q and a key k, and one queue of past keys.

    A step draws a class as the anchor; its own key is the positive and every key in the queue a negative:

        g = (1−p⁺)·k⁺ − Σ pᵢ·kᵢ,   q ← normalize(q + η·(g − (g·q)·q)),   k ← normalize(m·k + (1−m)·q)

    then k is enqueued and the oldest key leaves. Keys start as copies of their queries, the queue starts
    empty. `temperature`, `momentum`, `queue_size` and `step_size` may be set between steps; a shorter queue
    loses its oldest keys at once. Raises `ValueError` for settings outside their range.

    >>> sphere = SphereMoCo(seed=1)
    >>> losses = [sphere.step().loss for _ in range(500)]
    >>> sphere.queries.shape, len(sphere.queue), sphere.steps
    ((6, 3), 64, 500)
    """

    def __init__(
        self,
        classes: int = 6,
        temperature: float = 0.2,
        momentum: float = 0.99,
        queue_size: int = 64,
        step_size: float = 0.25,
        seed: int = 0,
    ) -> None:
        self.classes = _integer("classes", classes, 1)
        self.temperature = temperature
        self.momentum = momentum
        self.step_size = step_size
        self._random = np.random.default_rng(_integer("seed", seed, 0))
        self.queries = self._random.normal(size=(self.classes, DIM))  # C×3
        self.queries /= np.linalg.norm(self.queries, axis=1, keepdims=True)
        self.keys = self.queries.copy()  # C×3
        self.steps = 0
        # The queue is a window that moves over rows written once; a fuller history is dropped with its array.
        self._start = self._end = 0
        self._rows = np.empty((0, DIM))
        self._classes = np.empty(0, np.int64)
        self.queue_size = queue_size

    @property
    def temperature(self) -> float:
        """τ > 0."""
        return self._temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        if not 0 < value < math.inf:
            raise ValueError(f"temperature must be a finite number above 0, got {value}")
        self._temperature = float(value)

    @property
    def momentum(self) -> float:
        """m in [0, 1]: 0 makes the key a copy of the query, 1 never moves it."""
        return self._momentum

    @momentum.setter
    def momentum(self, value: float) -> None:
        if not 0 <= value <= 1:
            raise ValueError(f"momentum must lie in [0, 1], got {value}")
        self._momentum = float(value)

    @property
    def step_size(self) -> float:
        """η ≥ 0."""
        return self._step_size

    @step_size.setter
    def step_size(self, value: float) -> None:
        if not 0 <= value < math.inf:
            raise ValueError(f"step_size must be a finite number of at least 0, got {value}")
        self._step_size = float(value)

    @property
    def queue_size(self) -> int:
        """K ≥ 1: the most keys the queue holds."""
        return self._queue_size

    @queue_size.setter
    def queue_size(self, value: int) -> None:
        self._queue_size = _integer("queue_size", value, 1)
        self._start = max(self._start, self._end - self._queue_size)

    @property
    def queue(self) -> np.ndarray:
        """The queued keys, oldest first (≤K×3): the last steps' keys, one a step, so the newest has age 0."""
        return self._rows[self._start : self._end]

    @property
    def queue_classes(self) -> np.ndarray:
        """The class of each queued key, oldest first (≤K)."""
        return self._classes[self._start : self._end]

    def step(self) -> SphereStep:
        """Draw an anchor, score it against the queue as it is, move its q and k, then enqueue k."""
        anchor = int(self._random.integers(self.classes))
        negative_classes = self.queue_classes
        scored = info_nce(self.queries[anchor].copy(), self.keys[anchor].copy(), self.queue, self.temperature)
        g, q, k, m = scored.direction, scored.query, scored.positive, self.momentum

        q = _normalized(q + self.step_size * tangential(g, q), q)
        if m < 1:
            k = _normalized(m * k + (1 - m) * q, k) if m > 0 else q
        self.queries[anchor], self.keys[anchor] = q, k
        self._enqueue(k, anchor)
        self.steps += 1
        return SphereStep(anchor, scored, negative_classes, self.step_size, m, q, k)

    def _enqueue(self, key: np.ndarray, label: int) -> None:
        """Write behind the window. Rows are never overwritten: what a step returned stays as it was."""
        if self._end == len(self._rows):
            live = self._end - self._start
            capacity = 2 * max(live, 64)
            rows, classes = np.empty((capacity, DIM)), np.empty(capacity, np.int64)
            rows[:live], classes[:live] = self.queue, self.queue_classes
            self._rows, self._classes, self._start, self._end = rows, classes, 0, live
        self._rows[self._end], self._classes[self._end] = key, label
        self._end += 1
        self._start = max(self._start, self._end - self._queue_size)


def _normalized(vector: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """`vector` (D) at unit length; `otherwise` if it has no direction, as between opposite q and k at m = ½."""
    norm = math.sqrt(vector @ vector)
    return vector / norm if norm > 1e-12 else otherwise


def _integer(name: str, value: int, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number
