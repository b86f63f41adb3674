import dataclasses
import math

import pytest

from moco_core import config
from moco_core.config import (
    ConfigError,
    OneOf,
    Range,
    TrainConfig,
    accepted,
    default,
    field_hints,
    help_text,
    variants,
)

RANGED = [name for name in field_hints() if isinstance(accepted(name), Range)]


def test_every_field_is_explained_and_its_default_accepted():
    config = TrainConfig()
    for field in dataclasses.fields(TrainConfig):
        assert help_text(field.name).endswith(".")
        assert getattr(config, field.name) == default(field.name)


@pytest.mark.parametrize("name", RANGED)
def test_each_number_out_of_range_is_named_with_what_is_accepted(name):
    limits = accepted(name)
    beyond = [limits.low - 1, *([limits.low] if limits.open_low else [])]
    beyond += [limits.high + 1] if math.isfinite(limits.high) else []
    for value in (10**400, -(10**400)):  # no float is as large
        with pytest.raises(ConfigError, match=f"^{name} must be "):
            TrainConfig(**{name: value})
    if isinstance(default(name), float):
        beyond += [math.nan, math.inf]
    for value in beyond:
        value = type(default(name))(value)
        with pytest.raises(ConfigError, match=rf"^{name} must be .*got {value}$"):
            TrainConfig(**{name: value})


@pytest.mark.parametrize("name", RANGED)
def test_the_ends_of_each_range_are_accepted(name):
    limits = accepted(name)
    kind = type(default(name))
    ends = [limits.low] if not limits.open_low else []
    ends += [limits.high] if math.isfinite(limits.high) else []
    for value in ends:
        assert getattr(TrainConfig(**{name: kind(value)}), name) == value


@pytest.mark.parametrize("name", [n for n in field_hints() if isinstance(accepted(n), OneOf)])
def test_each_choice_is_accepted_and_others_named_with_the_nearest(name):
    for choice in accepted(name).names:
        assert getattr(TrainConfig(**{name: choice}), name) == choice
    almost = accepted(name).names[0][:-1] + "x"
    with pytest.raises(ConfigError, match=f"{name} must be one of .*did you mean"):
        TrainConfig(**{name: almost})


@pytest.mark.parametrize(
    ("name", "value"), [("steps", 1.5), ("steps", True), ("momentum", "0.9"), ("compile", 1), ("name", None)]
)
def test_wrong_types_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name} must be of type"):
        TrainConfig(**{name: value})


@pytest.mark.parametrize("device", ["auto", "cpu", "mps", "cuda", "cuda:3"])
def test_devices(device):
    assert TrainConfig(device=device).device == device


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", ""])
def test_unknown_devices(device):
    with pytest.raises(ConfigError, match="device must be one of auto, cpu"):
        TrainConfig(device=device)


def test_a_symmetric_loss_is_moco_s():
    assert TrainConfig(symmetric=True).symmetric
    with pytest.raises(ConfigError, match="symmetric takes method moco, got 'in-batch'"):
        TrainConfig(symmetric=True, method="in-batch")


def test_configs_of_older_runs_take_the_defaults_of_newer_fields():
    new = ("precision", "symmetric", "momentum_schedule", "head", "augmentation", "lr_schedule")
    new += ("optimizer", "tensorboard")
    older = {name: value for name, value in TrainConfig(momentum=0.5).to_dict().items() if name not in new}
    assert TrainConfig.from_dict(older) == TrainConfig(momentum=0.5)


def test_folder_needs_a_path():
    assert TrainConfig(dataset="folder:/some/where").dataset == "folder:/some/where"
    with pytest.raises(ConfigError, match="dataset folder: needs a path, as in folder:/my/images"):
        TrainConfig(dataset="folder:")
    with pytest.raises(ConfigError, match=r"dataset must be one of digits, .*folder:PATH; got 'folder'"):
        TrainConfig(dataset="folder")


@pytest.mark.parametrize(
    ("given", "over", "values", "titles"),
    [
        ({}, "momentum", (0.0, 0.9), ["digits m=0 K=1024", "digits m=0.9 K=1024"]),
        ({}, "method", ("moco", "in-batch"), ["digits m=0.99 K=1024", "digits in-batch B=128"]),
        (
            {},
            "temperature",
            (0.1, 0.2),
            ["temperature=0.1 digits m=0.99 K=1024", "temperature=0.2 digits m=0.99 K=1024"],
        ),
        (
            {"method": "in-batch"},
            "momentum",
            (0.0, 0.9),
            ["momentum=0 digits in-batch B=128", "momentum=0.9 digits in-batch B=128"],
        ),
        ({"name": "mine"}, "momentum", (0, 0.9), ["mine momentum=0", "mine momentum=0.9"]),
        ({"name": "mine"}, "optimizer", ("sgd", "lars"), ["mine optimizer=sgd", "mine optimizer=lars"]),
        ({"name": "mine"}, "momentum", (0.9,), ["mine"]),
    ],
)
def test_variants_are_told_apart_by_their_titles(given, over, values, titles):
    made = variants(TrainConfig(**given), over, values)
    assert [config.title() for config in made] == titles
    assert [getattr(config, over) for config in made] == list(values)


def test_variants_are_all_checked():
    with pytest.raises(ConfigError, match=r"temperature must be above 0 and at most 100, got -1"):
        variants(TrainConfig(), "temperature", (0.1, -1))


def test_dict_round_trip_and_unknown_names():
    config = TrainConfig(momentum=0.5, name="a name")
    assert TrainConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ConfigError, match="unknown setting 'momentm'; did you mean 'momentum'"):
        TrainConfig.from_dict({"momentm": 0.5})


def test_whole_numbers_become_floats_where_floats_are_meant():
    assert isinstance(TrainConfig(momentum=1).momentum, float)


def test_derived_quantities():
    assert TrainConfig(method="in-batch", batch_size=64).negatives == 63
    assert TrainConfig(queue_size=77).negatives == 77
    assert TrainConfig(lr=0.1, batch_size=1024, scale_lr=True).peak_lr == pytest.approx(0.4)
    assert TrainConfig(lr=0.1, batch_size=1024).peak_lr == 0.1
    assert TrainConfig(steps=8000).log_interval == 20
    assert TrainConfig(steps=10).log_interval == 1
    assert TrainConfig(dataset="folder:/my/pets/").title() == "pets m=0.99 K=1024"


def test_help_names_every_choice() -> None:
    for field in field_hints():
        limits = accepted(field)
        if isinstance(limits, OneOf):
            missing = [name for name in limits.names if name not in help_text(field)]
            assert not missing, f"{field}: {missing}"


def test_limits_are_written_in_full() -> None:
    assert str(Range(1, 2**24)) == "at least 1 and at most 16777216"
    assert str(Range(0, 0.5, open_low=True)) == "above 0 and at most 0.5"


def test_a_list_of_runs_asks_for_the_types_of_settings_once(monkeypatch):
    TrainConfig()
    monkeypatch.setattr(config, "get_type_hints", lambda *_, **__: pytest.fail("asked again"))
    TrainConfig.from_dict({"momentum": 0.5})
