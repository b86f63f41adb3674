"""SGD and LARS as training takes them."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from moco_core import cli
from moco_core.config import ConfigError, TrainConfig
from moco_core.training.optimizer import build_optimizer, set_learning_rate
from moco_core.training.setup import prepare
from moco_core.training.state import pack, unpack
from tests.training.small import train_small


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 5))


def with_gradients(net: nn.Module, step: int) -> list[np.ndarray]:
    """Set a gradient on each parameter, different at every step; returns them."""
    generator = torch.Generator().manual_seed(step)
    for parameter in net.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return [parameter.grad.double().numpy() for parameter in net.parameters()]


@pytest.mark.parametrize("weight_decay", [0.0, 0.02])
def test_steps_of_lars_are_those_of_the_formula(weight_decay):
    net = small_net()
    optimizer = build_optimizer(TrainConfig(optimizer="lars", weight_decay=weight_decay), net)
    expected = [parameter.detach().double().numpy() for parameter in net.parameters()]
    velocity = [np.zeros_like(w) for w in expected]
    for step, lr in enumerate((3.0, 2.0, 1.0)):
        gradients = with_gradients(net, step)
        set_learning_rate(optimizer, lr)
        optimizer.step()
        for i, g in enumerate(gradients):
            w = expected[i]
            if w.ndim > 1:
                norm = np.linalg.norm(w)
                trust = 0.001 * norm / (np.linalg.norm(g) + weight_decay * norm)
                velocity[i] = 0.9 * velocity[i] + trust * (g + weight_decay * w)
            else:
                velocity[i] = 0.9 * velocity[i] + g
            expected[i] = w - lr * velocity[i]
    names = [name for name, _ in net.named_parameters()]
    assert [name for name, w in zip(names, expected, strict=True) if w.ndim > 1] == ["0.weight", "3.weight"]
    for name, parameter, wanted in zip(names, net.parameters(), expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_steps_of_sgd_are_those_of_pytorch():
    nets = small_net(), small_net()
    ours = build_optimizer(TrainConfig(lr=0.3, weight_decay=0.01), nets[0])
    plain = torch.optim.SGD(nets[1].parameters(), lr=0.3, momentum=0.9, weight_decay=0.01)
    for step in range(3):
        for net in nets:
            with_gradients(net, step)
        ours.step()
        plain.step()
    for one, other in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(one, other)


def test_the_momentum_of_both_groups_of_lars_is_kept():
    config = TrainConfig(optimizer="lars", batch_size=16, dim=8, device="cpu")
    method, again = prepare(config).method(), prepare(config).method()
    optimizer, restored = build_optimizer(config, method.query), build_optimizer(config, again.query)
    with_gradients(method.query, 1)
    optimizer.step()
    arrays = pack(method, optimizer)
    count = len(list(method.query.parameters()))
    assert sorted(name for name in arrays if name.startswith("optimizer.")) == sorted(
        f"optimizer.{number}" for number in range(count)
    )
    unpack(arrays, again, restored)
    for net, each in ((method.query, optimizer), (again.query, restored)):
        with_gradients(net, 2)
        set_learning_rate(each, 0.7)
        assert [group["lr"] for group in each.param_groups] == [0.7, 0.7]
        each.step()
    for one, other in zip(method.query.parameters(), again.query.parameters(), strict=True):
        assert torch.equal(one, other)


def test_lars_learns_with_large_batches(tmp_path):
    large = {
        "batch_size": 512,
        "queue_size": 1024,
        "dim": 32,
        "steps": 30,
        "snapshots": 2,
        "drift_share": 0.0,
    }
    run = train_small(tmp_path, optimizer="lars", lr=2.0, **large)
    loss = run.history()["loss"]
    assert run.history()["filled"][2:].tolist() == [1024] * 28
    assert loss[2:5].mean() > 6.7  # ln 1025 = 6.93 is chance
    assert loss[-3:].mean() < loss[2:5].mean() - 0.3


def test_without_its_package_lars_is_refused_before_a_run_begins(tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "timm"] + ["timm"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match="optimizer lars needs a package: pip install timm"):
        prepare(TrainConfig(optimizer="lars"))
    words = ["moco_core", "train", "--runs", str(tmp_path / "runs"), "--optimizer", "lars"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "pip install timm" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    prepare(TrainConfig())
