"""Other machines hear of a run while it takes a snapshot, however long that lasts."""

import json
import time
from pathlib import Path

import pytest

from moco_core.config import TrainConfig
from moco_core.runs import RunStore, writer
from moco_core.training.command import train_new
from moco_core.training.snapshots import Metrics, Snapshots
from tests.training.small import SMALL

BEAT = 0.05


def test_a_slow_snapshot_does_not_silence_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BEAT_SECONDS", BEAT)
    heard: list[int] = []
    take = Snapshots.take

    def slow(self: Snapshots, *arguments: object) -> Metrics:
        (status,) = tmp_path.glob("*/status.json")
        heartbeats = set()
        end = time.monotonic() + 60
        while len(heartbeats) < 3 and time.monotonic() < end:
            heartbeats.add(json.loads(status.read_text())["heartbeat"])
            time.sleep(BEAT / 5)
        heard.append(len(heartbeats))
        return take(self, *arguments)

    monkeypatch.setattr(Snapshots, "take", slow)
    outcome = train_new(TrainConfig(**SMALL), tmp_path)
    assert len(heard) == SMALL["snapshots"]
    assert min(heard) >= 3
    assert RunStore(tmp_path)[outcome.path.name].status.state == "finished"
