"""Closed forms of momentum contrast: how slowly keys move, how long they wait, what the loss can reach.

Symbols are those of He et al. 2019: m the momentum of the key encoder, K the queue size, B the batch size,
τ the temperature, D the embedding dimension.
"""

import math
from functools import cache

import numpy as np


def half_life(momentum: float) -> float:
    """Steps after which the key encoder has kept half of its old weights: `ln ½ / ln m`.

    0 for m = 0 (the key encoder is the query encoder), infinite for m = 1 (it never moves).
    Raises ValueError unless m lies in [0, 1].
    """
    _check_momentum(momentum)
    if momentum == 0:
        return 0.0
    if momentum == 1:
        return math.inf
    return math.log(0.5) / math.log(momentum)


def queue_span(queue_size: int, batch_size: int) -> float:
    """Steps a key waits in a full queue before it is overwritten: `K / B`."""
    _check_count(queue_size, "queue_size")
    _check_count(batch_size, "batch_size")
    return queue_size / batch_size


def turnover(momentum: float, queue_size: int, batch_size: int) -> float:
    """Key-encoder movement within one queue span: `(1 − m)·K / B`.

    Far below 1 the whole queue comes from almost one encoder; far above 1 its ends come from different ones.
    """
    _check_momentum(momentum)
    return (1 - momentum) * queue_span(queue_size, batch_size)


def chance_loss(queue_size: int) -> float:
    """InfoNCE, in nats, of an encoder that cannot tell the positive from its K negatives: `ln(K + 1)`."""
    _check_count(queue_size, "queue_size")
    return math.log(queue_size + 1)


def loss_floor(queue_size: int, temperature: float, dim: int) -> float:
    """InfoNCE, in nats, with a perfect positive and K negatives uniform over the D-dimensional sphere.

    `ln(1 + K·e^{−1/τ}·E[e^{u/τ}])`, u the cosine of two independent uniform unit vectors. By Jensen's
    inequality the mean loss of such an encoder is at most this, and for a large K it is this.
    Raises ValueError for K < 1, τ ≤ 0 or D < 2.
    """
    _check_count(queue_size, "queue_size")
    _check_positive(temperature, "temperature")
    _check_dim(dim)
    return float(np.logaddexp(0.0, math.log(queue_size) + _log_mean_exp_cosine(1 / temperature, dim)))


def ideal_uniformity(dim: int, t: float = 2.0) -> float:
    """Uniformity of independent uniform unit vectors in D dimensions: the least that infinitely many can have.

    `ln E[e^{2t(u − 1)}]`, u the cosine of two of them (Wang & Isola 2020, sec. 4.2). Raises ValueError for D < 2 and
    t ≤ 0.
    """
    _check_dim(dim)
    _check_positive(t, "t")
    return _log_mean_exp_cosine(2 * t, dim)


def _log_mean_exp_cosine(kappa: float, dim: int) -> float:
    """`ln E[e^{κ(u − 1)}]` for the cosine u of two independent uniform unit vectors in D dimensions.

    With u = cos φ, the angle's density is `sin^{D−2} φ / B(½, (D−1)/2)` on [0, π]: smooth even for D = 2,
    where the density of u itself is infinite at ±1. The integrand has one peak; Gauss-Legendre covers 20
    widths to each side of it.
    """
    n = dim - 2
    log_norm = math.lgamma(0.5) + math.lgamma((dim - 1) / 2) - math.lgamma(dim / 2)
    # The peak solves κ sin²φ = n cos φ; the width is that of the Gaussian with the same curvature there.
    cos_peak = 2 * kappa / (n + math.sqrt(n * n + 4 * kappa * kappa))
    sin2_peak = n * cos_peak / kappa
    curvature = kappa * cos_peak + (n / sin2_peak if n else 0.0)
    reach = 20 / math.sqrt(curvature)
    peak = math.atan2(math.sqrt(sin2_peak), cos_peak)
    low, high = max(0.0, peak - reach), min(math.pi, peak + reach)

    x, weight = _gauss_legendre()
    angle = low + (high - low) * (x + 1) / 2
    log_integrand = n * np.log(np.sin(angle)) - 2 * kappa * np.sin(angle / 2) ** 2  # cos φ − 1 = −2 sin²(φ/2)
    top = log_integrand.max()
    integral = (high - low) / 2 * float(weight @ np.exp(log_integrand - top))
    return float(top) + math.log(integral) - log_norm


@cache
def _gauss_legendre() -> tuple[np.ndarray, np.ndarray]:
    """400 nodes on [−1, 1] and their weights: an eigenvalue problem, solved once."""
    return np.polynomial.legendre.leggauss(400)


def _check_momentum(momentum: float) -> None:
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum must lie in [0, 1], got {momentum}")


def _check_positive(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value}")


def _check_dim(dim: int) -> None:
    if not dim >= 2:
        raise ValueError(f"dim must be at least 2, got {dim}")


def _check_count(value: int, name: str) -> None:
    if not (math.isfinite(value) and value >= 1):
        raise ValueError(f"{name} must be at least 1, got {value}")
