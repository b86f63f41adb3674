"""What is said about a config before it is started."""

from pathlib import Path

import pytest

from moco_core.caveats import caveats
from moco_core.config import DATASETS, TrainConfig
from moco_core.jobs.training_images import training_images
from moco_core.runs import RunStore
from tests.synthetic import write_run


def said(images: int | None, **config: object) -> list[str]:
    return caveats(TrainConfig.from_dict(config), images)


def test_nothing_to_say_about_the_defaults() -> None:
    assert said(training_images("digits", [])) == []


@pytest.mark.parametrize(
    ("images", "config", "part"),
    [
        (1000, {}, "The queue of 1,024 is longer than the 1,000 training images"),
        (1000, {"method": "memory-bank"}, "one slot for each of the 1,000 training images"),
        (100, {"queue_size": 64}, "A batch of 128 can't be drawn from 100 training images"),
        (None, {"queue_size": 100}, "A batch of 128 keys doesn't fit a queue of 100"),
        (None, {"warmup_steps": 400}, "Warming up takes 400 of 400 steps"),
        (
            None,
            {"optimizer": "lars"},
            "of 0.06, 400 steps move a layer's weights by at most 0.24 of their norm",
        ),
        (None, {"optimizer": "lars", "batch_size": 512}, "a peak of 0.3·B/256 = 0.6 is usual"),
    ],
)
def test_each_caveat(images: int | None, config: dict[str, object], part: str) -> None:
    assert any(part in sentence for sentence in said(images, **config))


def test_none_where_they_do_not_apply() -> None:
    assert said(1024) == []
    assert said(None, queue_size=10**6) == []
    assert said(200, method="in-batch") == []
    assert said(None, optimizer="lars", lr=0.6) == []


def test_images_are_counted_as_the_newest_run_found_them(tmp_path: Path) -> None:
    write_run(tmp_path, "pictures", dataset="folder:/pictures")
    (write_run(tmp_path, "damaged") / "run.json").write_text("{")
    runs = list(RunStore(tmp_path))
    assert training_images("folder:/pictures", runs) == 500
    assert training_images("folder:/others", runs) is None
    assert training_images("cifar10", runs) == 50000


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_images_of_every_named_set_are_known(dataset: str) -> None:
    assert any(
        "is longer than the" in sentence for sentence in said(training_images(dataset, []), queue_size=2**20)
    )
