from dataclasses import replace

import numpy as np
import pytest
import torch

from moco_core.config import TrainConfig
from moco_core.contrast.moco import MoCo, ema_update
from moco_core.training.drift import affordable_batches, frozen_statistics, measure_drift
from moco_core.training.setup import prepare
from moco_core.training.snapshots import MOST_SLOTS, Snapshots
from tests.training.small import SMALL, train_small

CONFIG = TrainConfig(**SMALL | {"drift_share": 1.0})


@pytest.fixture(scope="module")
def setup():
    return prepare(CONFIG)


def filled_moco(setup, steps: int = 3, **changes) -> MoCo:
    """Keys of a few steps by an encoder that stands still."""
    setup = replace(setup, config=replace(setup.config, **changes))
    method, views = setup.method().train(), setup.views
    for step in range(1, steps + 1):
        samples = views.batch(step)
        scored = method.score(views.view(samples, step, 0), views.view(samples, step, 1), samples, step)
        method.remember(scored.keys, samples, setup.train.labels[samples], step)
    return method


@pytest.mark.parametrize("batch_norm", ["plain", "split"])
@pytest.mark.parametrize("queue_size", [40, 48, 1000])
def test_keys_written_by_the_current_weights_have_not_drifted(setup, batch_norm, queue_size):
    method = filled_moco(setup, batch_norm=batch_norm, queue_size=queue_size)
    drift = measure_drift(method, setup.views, CONFIG, 3)
    assert len(drift["age"]) == min(queue_size, 48)
    assert (1 - drift["cosine_key"]).max() < 1e-6
    assert drift["gradient_cosine"].min() > 1 - 1e-6
    assert int(drift["k_star"]) == min(queue_size, 48)


def test_moving_the_key_encoder_gives_the_drift_that_this_implies(setup):
    method = filled_moco(setup)
    stored = method.queue.keys.clone()
    before = [p.clone() for p in method.key.parameters()]
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in method.query.parameters():
            parameter.add_(0.3 * parameter.std() * torch.randn_like(parameter))
    ema_update(method.key, method.query, 0.5)
    assert any(not torch.equal(a, b) for a, b in zip(before, method.key.parameters(), strict=True))
    drift = measure_drift(method, setup.views, CONFIG, 3)
    # The same views once more, encoded here without the code under test.
    fresh = []
    with torch.no_grad(), frozen_statistics(method.key):
        for step in (1, 2, 3):
            fresh.append(method.key(setup.views.view(setup.views.batch(step), step, 1))[1])
    expected = (stored * torch.cat(fresh)[-len(stored) :]).sum(dim=1)
    by_slot = np.empty(len(stored))
    by_slot[drift["slot"]] = drift["cosine_key"]
    np.testing.assert_allclose(by_slot, expected.numpy(), atol=1e-5)
    assert expected.max() < 0.9999


def test_measuring_leaves_the_networks_as_they_were(setup):
    method = filled_moco(setup)
    before = {name: t.clone() for name, t in method.state_dict().items()}
    measure_drift(method, setup.views, CONFIG, 3)
    for name, tensor in method.state_dict().items():
        assert torch.equal(before[name], tensor), name
    assert all(m.track_running_stats for m in method.modules() if hasattr(m, "track_running_stats"))
    assert method.training


def test_frozen_statistics_normalise_by_the_batch():
    norm = torch.nn.BatchNorm1d(2)
    x = torch.randn(16, 2) + 3
    with frozen_statistics(norm):
        y = norm(x)
    torch.testing.assert_close(y.mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0)
    assert norm.running_mean.tolist() == [0, 0]
    assert int(norm.num_batches_tracked) == 0


def test_what_cannot_be_afforded_is_sampled_evenly_over_age(setup):
    method = filled_moco(setup, steps=12, queue_size=1000)
    config = replace(CONFIG, drift_share=0.17)
    assert 2 <= affordable_batches(config, 1438) < 12
    drift = measure_drift(method, setup.views, config, 12)
    ages = sorted(set(drift["age"].tolist()))
    assert len(ages) == affordable_batches(config, 1438)
    assert ages[0] == 0
    assert ages[-1] == 11
    assert len(drift["slot"]) == 16 * len(ages)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("steps", [1000, 20000])
def test_the_budget_counts_forward_passes(share, steps):
    config = TrainConfig(steps=steps, drift_share=share, snapshots=11)
    forwards = 2 * (affordable_batches(config, 1000) + 1) * 10  # both encoders, the anchors, ten snapshots
    assert forwards <= share * 5 * steps


def test_the_bank_reaches_back_a_whole_epoch(tmp_path):
    run = train_small(tmp_path, method="memory-bank", batch_size=256, steps=12, drift_share=1.0)
    drift = run.steps[-1].drift
    assert set(drift["age"].tolist()) >= {0, 1, 2, 3, 4}
    assert (1 - drift["cosine_key"][drift["age"] >= 3]).mean() > (
        1 - drift["cosine_key"][drift["age"] == 0]
    ).mean()


def test_no_keys_no_measurement(tmp_path, setup):
    assert measure_drift(setup.method(), setup.views, CONFIG, 0) == {}
    run = train_small(tmp_path, method="in-batch")
    assert run.steps[-1].drift == {}
    assert "k_star" not in run.steps[-1].metrics


def test_of_a_longer_queue_no_slot_is_stored_twice(setup, tmp_path):
    size = MOST_SLOTS + 1
    method = replace(setup, config=replace(CONFIG, queue_size=size, dim=2)).method()
    slots = torch.arange(size)
    method.queue.enqueue(torch.ones(size, 2), slots % len(setup.train), slots % 10, 1)
    method.queue._written_steps.copy_(slots)
    stored = Snapshots(tmp_path, CONFIG, setup.views, setup.held_out, setup.device)._stored_keys(method)
    assert len(np.unique(stored["written_step"])) == MOST_SLOTS
    assert stored["written_step"][[0, -1]].tolist() == [0, size - 1]
