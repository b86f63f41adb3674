"""A backbone whose features are all zero: training goes on, and what has no value is left out."""

from __future__ import annotations

import numpy as np
import torch

from moco_core.training import probes
from moco_core.training.setup import Setup
from tests.training.small import train_small


def test_rows_without_direction_neither_vote_nor_are_recognised():
    bank = np.array([[1, 0], [1, 0.1], [0, 1], [0, 0]], np.float32)
    held_out = np.array([[1, 0], [0, 2], [0, 0], [1, 0]], np.float32)
    accuracy = probes.knn_accuracy(bank, np.array([0, 0, 1, 1]), held_out, np.array([0, 1, 1, 1]), 2, 0.1)
    assert accuracy == 2 / 4  # the third has no neighbours, the fourth is taken for class 0
    assert probes.knn_accuracy(0 * bank, np.arange(4), held_out, np.arange(4), 2, 0.1) == 0


def test_a_run_survives_its_backbone(tmp_path, monkeypatch):
    alive = Setup.method

    def dead(setup):
        method = alive(setup)
        norm = [m for m in method.query.backbone.modules() if isinstance(m, torch.nn.BatchNorm2d)][-1]
        with torch.no_grad():
            norm.weight.zero_()
            norm.bias.fill_(-1)
        return method

    monkeypatch.setattr(Setup, "method", dead)
    run = train_small(tmp_path, lr=1e-6)
    assert run.status.state == "finished"
    newest = run.steps[-1]
    assert not newest.features.any()
    assert newest.metrics["knn_features"]["value"] == 0
    assert "effective_rank_features" not in newest.metrics
    assert newest.metrics["linear"]["value"] < 0.4  # a constant guess
