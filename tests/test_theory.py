"""The closed forms, against independent computations: Bessel functions, Monte-Carlo, limits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import hyp0f1, ive

from moco_core import theory
from moco_core.theory import chance_loss, half_life, ideal_uniformity, loss_floor, queue_span, turnover


def test_half_life_is_the_step_at_which_half_is_left():
    assert half_life(0.999) == pytest.approx(692.8, abs=0.05)
    assert half_life(0.5) == pytest.approx(1.0)
    assert half_life(0.0) == 0.0
    assert half_life(1.0) == math.inf


@given(st.floats(0.01, 0.99999))
def test_half_life_halves(m):
    assert m ** half_life(m) == pytest.approx(0.5)


def test_span_turnover_and_chance():
    assert queue_span(65536, 256) == 256
    assert queue_span(1000, 256) == 3.90625
    assert turnover(0.999, 65536, 256) == pytest.approx(0.256)
    assert turnover(1.0, 1024, 128) == 0
    assert chance_loss(1024) == pytest.approx(6.9324, abs=1e-4)
    assert chance_loss(1) == pytest.approx(math.log(2))


def test_loss_floor_at_the_settings_of_moco_v2():
    assert loss_floor(65536, 0.2, 128) == pytest.approx(6.19, abs=0.005)


@pytest.mark.parametrize("dim", [2, 3, 4, 16, 128, 2048, 1_000_000])
@pytest.mark.parametrize("temperature", [0.01, 0.07, 0.2, 1.0, 50.0])
def test_the_quadrature_agrees_with_the_bessel_closed_form(dim, temperature):
    """E[e^{κu}] = ₀F₁(D/2; κ²/4), the normaliser of the von Mises-Fisher density."""
    kappa = 1 / temperature
    exact = math.log(hyp0f1(dim / 2, kappa**2 / 4)) - kappa
    assert theory._log_mean_exp_cosine(kappa, dim) == pytest.approx(exact, rel=1e-11, abs=1e-9)


@pytest.mark.parametrize(("dim", "temperature"), [(2, 0.2), (3, 0.2), (128, 0.2), (128, 0.07)])
def test_the_floor_agrees_with_monte_carlo(dim, temperature):
    x = np.random.default_rng(0).normal(size=(200_000, dim))
    u = x[:, 0] / np.linalg.norm(x, axis=1)
    weights = np.exp((u - 1) / temperature)
    simulated = math.log1p(4096 * weights.mean())
    error = (
        4096 * weights.std() / math.sqrt(len(u)) / (1 + 4096 * weights.mean())
    )  # one standard error of the log
    assert abs(loss_floor(4096, temperature, dim) - simulated) < 5 * error


def test_in_high_dimension_the_cosine_is_gaussian():
    dim, temperature = 1_000_000, 0.2
    gaussian = math.log1p(1024 * math.exp(-1 / temperature + 1 / (2 * dim * temperature**2)))
    assert loss_floor(1024, temperature, dim) == pytest.approx(gaussian, abs=1e-9)


@given(st.integers(1, 10**6), st.floats(0.005, 10), st.integers(2, 4096))
def test_the_floor_lies_between_zero_and_chance(queue_size, temperature, dim):
    floor = loss_floor(queue_size, temperature, dim)
    assert 0 < floor < chance_loss(queue_size)


@given(st.floats(0.02, 2), st.integers(2, 512))
def test_the_floor_rises_with_the_queue_and_with_the_temperature(temperature, dim):
    assert loss_floor(100, temperature, dim) < loss_floor(200, temperature, dim)
    assert loss_floor(100, temperature, dim) < loss_floor(100, temperature * 1.5, dim)


@pytest.mark.parametrize("dim", [2, 3, 5, 17])
@pytest.mark.parametrize("t", [0.5, 2, 10, 100, 1000])
def test_ideal_uniformity_by_the_bessel_closed_form(dim, t):
    """E[e^{κu}] = Γ(D/2)·(2/κ)^{D/2−1}·I_{D/2−1}(κ) at κ = 2t (DLMF 10.32.2)."""
    order = dim / 2 - 1
    exact = math.log(ive(order, 2 * t)) + math.lgamma(dim / 2) - order * math.log(t)
    assert ideal_uniformity(dim, t) == pytest.approx(exact, rel=1e-11, abs=1e-11)


def test_ideal_uniformity_on_the_sphere():
    """On the 2-sphere u is uniform in [−1, 1]: the mean of `exp(2t(u − 1))` is `(1 − e^{−4t}) / 4t`."""
    assert ideal_uniformity(3) == pytest.approx(math.log((1 - math.exp(-8)) / 8))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: half_life(1.1), "momentum must lie in"),
        (lambda: half_life(math.nan), "momentum must lie in"),
        (lambda: turnover(-0.1, 10, 1), "momentum must lie in"),
        (lambda: queue_span(0, 1), "queue_size must be at least 1, got 0"),
        (lambda: queue_span(10, 0), "batch_size must be at least 1, got 0"),
        (lambda: chance_loss(0), "queue_size must be at least 1, got 0"),
        (lambda: loss_floor(0, 0.2, 128), "queue_size must be at least 1"),
        (lambda: loss_floor(10, 0.0, 128), "temperature must be a finite number above 0, got 0.0"),
        (lambda: loss_floor(10, math.nan, 128), "temperature must be"),
        (lambda: loss_floor(10, 0.2, 1), "dim must be at least 2, got 1"),
        (lambda: ideal_uniformity(1), "dim must be at least 2, got 1"),
        (lambda: ideal_uniformity(3, 0), "t must be a finite number above 0, got 0"),
        (lambda: ideal_uniformity(3, math.nan), "t must be"),
    ],
)
def test_what_cannot_be_answered_says_why(call, argument):
    with pytest.raises(ValueError, match=argument):
        call()
