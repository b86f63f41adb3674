import pytest
from hypothesis import given
from hypothesis import strategies as st

from moco_core.config import TrainConfig
from moco_core.training.schedule import learning_rate, momentum, snapshot_steps


def test_cosine_from_the_peak_to_almost_nothing():
    config = TrainConfig(steps=100, lr=0.5)
    rates = [learning_rate(config, step) for step in range(1, 101)]
    assert rates[0] == 0.5
    assert rates[50] == pytest.approx(0.25)
    assert rates[-1] == pytest.approx(0.0, abs=2e-4)
    assert rates == sorted(rates, reverse=True)


def test_warm_up_rises_in_a_line_below_the_cosine():
    plain, warm = TrainConfig(steps=100), TrainConfig(steps=100, warmup_steps=10)
    for step in (1, 5, 10, 11, 60):
        assert learning_rate(warm, step) == pytest.approx(learning_rate(plain, step) * min(1, step / 10))


def test_the_step_schedule_falls_tenfold_at_epochs_120_and_160_of_200():
    config = TrainConfig(lr=0.03, steps=2000, lr_schedule="step")
    for step, rate in ((1, 0.03), (1200, 0.03), (1201, 0.003), (1600, 0.003), (1601, 0.0003), (2000, 0.0003)):
        assert learning_rate(config, step) == pytest.approx(rate)
    warm = TrainConfig(lr=0.03, steps=2000, lr_schedule="step", warmup_steps=10)
    assert learning_rate(warm, 5) == pytest.approx(0.015)


@given(steps=st.integers(1, 10**7), count=st.integers(2, 200))
def test_snapshots_hold_both_ends_and_keep_to_the_count(steps, count):
    chosen = snapshot_steps(steps, count)
    assert chosen[0] == 0
    assert chosen[-1] == steps
    assert chosen == sorted(set(chosen))
    assert len(chosen) <= count


def test_snapshots_lie_geometrically():
    assert snapshot_steps(400, 6) == [0, 12, 30, 71, 168, 400]
    assert snapshot_steps(400, 2) == [0, 400]


def test_momentum_stays_or_rises_to_one_along_a_cosine():
    constant = TrainConfig(steps=100, momentum=0.9)
    assert [momentum(constant, step) for step in (1, 50, 100)] == [0.9] * 3
    rising = TrainConfig(steps=100, momentum=0.9, momentum_schedule="cosine")
    values = [momentum(rising, step) for step in range(1, 101)]
    assert values[0] == pytest.approx(0.9)
    assert values[50] == pytest.approx(0.95)
    assert 0.9999 < values[-1] < 1
    assert values == sorted(values)
    assert momentum(TrainConfig(method="in-batch", momentum_schedule="cosine"), 5) == 0
