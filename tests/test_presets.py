"""The authors' recipes, as `train --preset` takes them up."""

import dataclasses
import sys
from pathlib import Path

import pytest

from moco_core import cli
from moco_core.config import TrainConfig
from moco_core.paper import RECIPES
from moco_core.training import command


@pytest.fixture
def trained(monkeypatch):
    """A command line → the config that it would train."""
    configs: list[TrainConfig] = []

    def train_new(config: TrainConfig, *_) -> command.Outcome:
        configs.append(config)
        return command.Outcome(Path("nowhere"), 0, leads=False)

    def run(*words: str) -> TrainConfig:
        monkeypatch.setattr(sys, "argv", ["moco_core", "train", *words])
        cli.main()
        return configs[-1]

    monkeypatch.setattr(command, "train_new", train_new)
    return run


PAPER = {  # m, K, τ, B, learning rate, weight decay, epochs × steps
    "moco-v1-imagenet": (0.999, 65536, 0.07, 256, 0.03, 1e-4, 200 * (1_281_167 // 256)),
    "moco-v2-imagenet": (0.999, 65536, 0.2, 256, 0.03, 1e-4, 200 * (1_281_167 // 256)),
    "moco-cifar10": (0.99, 4096, 0.1, 512, 0.06, 5e-4, 200 * (50_000 // 512)),
}


@pytest.mark.parametrize("name", RECIPES)
def test_presets_are_the_authors_settings(trained, name):
    words = () if name == "moco-cifar10" else ("--dataset", "folder:/photographs")
    config = trained("--preset", name, *words)
    values = (config.momentum, config.queue_size, config.temperature, config.batch_size, config.lr)
    assert (*values, config.weight_decay, config.steps) == PAPER[name]
    assert config.dim == 128
    assert config.batch_norm == "split"


def test_what_tells_the_recipes_apart(trained):
    v1, v2 = (trained("--preset", f"moco-{v}-imagenet", "--dataset", "folder:/x") for v in ("v1", "v2"))
    differing = {f.name for f in dataclasses.fields(v1) if getattr(v1, f.name) != getattr(v2, f.name)}
    assert differing == {"temperature", "head", "augmentation", "lr_schedule"}
    assert (v1.head, v1.augmentation, v1.lr_schedule) == ("linear", "moco-v1", "step")
    assert (v2.head, v2.augmentation, v2.lr_schedule) == ("mlp", "moco-v2", "cosine")
    cifar = trained("--preset", "moco-cifar10")
    assert (cifar.dataset, cifar.encoder, cifar.knn_k, cifar.knn_temperature) == (
        "cifar10",
        "resnet18",
        200,
        0.1,
    )


def test_flags_beside_a_preset_count_even_where_they_say_the_default(trained):
    config = trained("--momentum", "0.5", "--preset=moco-cifar10", "--batch-size", "128", "--head", "mlp")
    assert (config.momentum, config.batch_size, config.head) == (0.5, TrainConfig().batch_size, "mlp")
    assert (config.queue_size, config.temperature) == (4096, 0.1)


def test_no_preset_leaves_the_defaults(trained):
    assert trained() == trained("--preset", "none") == TrainConfig()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--preset", "moco-v3"], "invalid choice 'moco-v3' for argument '--preset'"),
        (
            ["--preset", "moco-v2-imagenet"],
            "preset moco-v2-imagenet needs the images: add --dataset folder:PATH",
        ),
    ],
)
def test_what_is_no_preset_or_lacks_images_ends_with_2(trained, capsys, words, sentence):
    with pytest.raises(SystemExit) as ended:
        trained(*words)
    assert ended.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.replace("│", " ").split())
