"""TrainConfig: every hyperparameter of a run, with its meaning, default and accepted range.

The command line, the sidebar and the run directory all take their fields from here. A value is checked
once, when the config is made; an accepted config needs no further checks.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from typing_extensions import Doc

DATASETS = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "stl10")
FOLDER_PREFIX = "folder:"
METHODS = ("moco", "memory-bank", "in-batch")
ENCODERS = ("small-cnn", "resnet18", "resnet50")
IMPORTED = "imported"  # data set, method and encoder of a run that holds vectors from elsewhere

IGNORED: Mapping[str, tuple[str, ...]] = {  # settings that a method has no use for
    "memory-bank": ("momentum",),
    "in-batch": ("momentum", "queue_size"),
}
WITHOUT_EFFECT = (  # settings that change neither what is learnt nor how it is measured
    *("name", "seed", "device", "threads", "compile", "storage"),
    *("snapshots", "keep_weights", "drift_share", "log_every", "checkpoint_minutes", "tensorboard"),
)

OPTIMIZER_MOMENTUM = 0.9  # of SGD and LARS; not the key encoder's m
LARS_TRUST = 0.001  # trust coefficient (You et al. 2017)


class ConfigError(ValueError):
    """A setting can't be used; the message names it, the value seen and what is accepted."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included unless `open_low` is set."""

    low: float
    high: float = math.inf
    open_low: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return above and value <= self.high and value < math.inf

    def __str__(self) -> str:
        low = f"above {_plain(self.low)}" if self.open_low else f"at least {_plain(self.low)}"
        if math.isinf(self.high):
            return low
        return f"{low} and at most {_plain(self.high)}"


@dataclass(frozen=True)
class OneOf:
    """One of the named choices; `prefix` admits free text behind it, as in `folder:PATH`.

    `unlisted` are accepted, so that stored configs load, but offered nowhere.
    """

    names: tuple[str, ...]
    prefix: str | None = None
    unlisted: tuple[str, ...] = ()

    def __contains__(self, value: str) -> bool:
        if self.prefix and value.startswith(self.prefix):
            return len(value) > len(self.prefix)
        return value in self.names or value in self.unlisted

    def __str__(self) -> str:
        return ", ".join(self.names) + (f", {self.prefix}PATH" if self.prefix else "")


@dataclass(frozen=True)
class Device:
    """`auto`, `cpu`, `mps`, `cuda` or `cuda:N`."""

    def __contains__(self, value: str) -> bool:
        kind, colon, index = value.partition(":")
        return value in ("auto", "cpu", "mps", "cuda") or (
            kind == "cuda" and bool(colon) and index.isdecimal()
        )

    def __str__(self) -> str:
        return "auto, cpu, mps, cuda, cuda:N"


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one training run."""

    dataset: Annotated[
        str,
        OneOf(DATASETS, FOLDER_PREFIX, (IMPORTED,)),
        Doc(f"Images to learn from: {', '.join(DATASETS)}; {FOLDER_PREFIX}PATH takes your own."),
    ] = "digits"
    image_size: Annotated[
        int,
        Range(0, 1024),
        Doc("Side of the square images in pixels; 0 keeps the data set's own (32 for folders)."),
    ] = 0
    method: Annotated[
        str,
        OneOf(METHODS, unlisted=(IMPORTED,)),
        Doc("Where negatives come from: a queue (moco), a memory-bank, or the batch itself (in-batch)."),
    ] = "moco"
    encoder: Annotated[
        str,
        OneOf(ENCODERS, unlisted=(IMPORTED,)),
        Doc("Backbone network: small-cnn (for 8 to 64 pixels), resnet18 or resnet50."),
    ] = "small-cnn"
    head: Annotated[
        str,
        OneOf(("mlp", "linear")),
        Doc("From features to embedding: mlp has one hidden layer (MoCo v2), linear none (MoCo v1)."),
    ] = "mlp"
    dim: Annotated[int, Range(2, 65536), Doc("Dimension D of the embedding.")] = 128
    momentum: Annotated[
        float, Range(0, 1), Doc("m: the share of the key encoder that stays at each step; 1 never moves it.")
    ] = 0.99
    momentum_schedule: Annotated[
        str,
        OneOf(("constant", "cosine")),
        Doc("constant, or cosine: m rises from its value towards 1 over the run, as in BYOL."),
    ] = "constant"
    symmetric: Annotated[
        bool, Doc("Each view is query and key once a step, with a queue a view; for method moco.")
    ] = False
    queue_size: Annotated[int, Range(1, 2**24), Doc("K: how many past keys serve as negatives.")] = 1024
    temperature: Annotated[
        float,
        Range(0, 100, open_low=True),
        Doc("τ: cosines are divided by it; small values look at the hardest only."),
    ] = 0.2
    batch_size: Annotated[int, Range(2, 2**20), Doc("B: images a step.")] = 128
    steps: Annotated[int, Range(1, 10**9), Doc("Optimizer steps of the whole run.")] = 400
    optimizer: Annotated[
        str,
        OneOf(("sgd", "lars")),
        Doc(
            "sgd, or lars, which scales each layer's step to its weights, for large batches (lr 0.3·B/256 is usual)."
        ),
    ] = "sgd"
    lr: Annotated[float, Range(0, 1000, open_low=True), Doc("Peak learning rate.")] = 0.06
    lr_schedule: Annotated[
        str,
        OneOf(("cosine", "step")),
        Doc(
            "cosine: the learning rate falls to 0 along a cosine; step: to a tenth after 60 % and 80 % of the run."
        ),
    ] = "cosine"
    scale_lr: Annotated[
        bool, Doc("Multiply the learning rate by B/256, as end-to-end training with large batches needs.")
    ] = False
    warmup_steps: Annotated[int, Range(0, 10**9), Doc("Steps over which the learning rate rises from 0.")] = 0
    weight_decay: Annotated[float, Range(0, 10), Doc("L2 penalty on the query encoder's weights.")] = 5e-4
    augmentation: Annotated[
        str,
        OneOf(("auto", "moco-v1", "moco-v2")),
        Doc(
            "How views are made: auto suits the data set; moco-v1 and moco-v2 are the papers' recipes for photographs."
        ),
    ] = "auto"
    augmentation_strength: Annotated[
        float, Range(0, 2), Doc("How strongly views are changed: 0 not at all, 1 as the recipe has it.")
    ] = 1.0
    storage: Annotated[
        str,
        OneOf(("auto", "memory", "stream")),
        Doc("Where a folder's images are kept: in memory, or on disk (stream); auto goes by their size."),
    ] = "auto"
    batch_norm: Annotated[
        str,
        OneOf(("plain", "split", "sync")),
        Doc(
            "plain: each process over its own rows. split: MoCo's shuffled batch norm, each process over its part of a "
            "shuffled batch; one process alone takes eighths. sync: statistics of all processes together."
        ),
    ] = "plain"
    seed: Annotated[int, Range(0, 2**31 - 1), Doc("Fixes weights, batches and augmentation.")] = 0
    device: Annotated[str, Device(), Doc("auto (a GPU when there is one), cpu, cuda, cuda:N or mps.")] = (
        "auto"
    )
    precision: Annotated[
        str,
        OneOf(("fp32", "bf16")),
        Doc(
            "fp32, or bf16: the encoders compute in bfloat16 while training; loss, normalisation and weights stay fp32."
        ),
    ] = "fp32"
    threads: Annotated[int, Range(0, 1024), Doc("CPU threads; 0 leaves the choice to PyTorch.")] = 0
    compile: Annotated[bool, Doc("Compile the encoders first: slow to start, faster afterwards.")] = False
    snapshots: Annotated[
        int, Range(2, 1000), Doc("Steps kept for viewing, spaced geometrically; the first and last included.")
    ] = 6
    keep_weights: Annotated[
        str, OneOf(("all", "last")), Doc("Which snapshots keep the encoder weights: all, or the last alone.")
    ] = "all"
    eval_size: Annotated[int, Range(2, 10**7), Doc("Held-out images embedded at each snapshot, at most.")] = (
        2000
    )
    knn_k: Annotated[int, Range(1, 10**6), Doc("Neighbours that vote in the kNN accuracy.")] = 20
    knn_temperature: Annotated[
        float, Range(0, 100, open_low=True), Doc("Temperature of the kNN votes, exp(cosine / temperature).")
    ] = 0.1
    bank_size: Annotated[
        int, Range(2, 10**7), Doc("Training images in the kNN bank and linear probe, at most.")
    ] = 10000
    drift_share: Annotated[
        float,
        Range(0, 1),
        Doc(
            "Most of the run's compute that measuring queue staleness may cost, the least that can be measured (two "
            "batches a snapshot) set aside; 0 turns it off."
        ),
    ] = 0.05
    log_every: Annotated[
        int, Range(0, 10**6), Doc("Steps between history entries; 0 logs about 400 a run.")
    ] = 0
    checkpoint_minutes: Annotated[
        float,
        Range(0, 10**6, open_low=True),
        Doc("Longest stretch of work, in minutes, that a crash may cost."),
    ] = 5.0
    tensorboard: Annotated[
        bool, Doc("Also write TensorBoard event files, to tensorboard/ in the run's folder.")
    ] = False
    name: Annotated[str, Doc("What to call the run; empty makes a name from the settings.")] = ""

    def __post_init__(self) -> None:
        """Normalise numbers to the declared types; raise `ConfigError` at the first value out of range."""
        for field in field_hints():
            object.__setattr__(self, field, _checked(field, getattr(self, field)))
        if self.symmetric and self.method != "moco":
            raise ConfigError(f"symmetric takes method moco, got {self.method!r}")
        origins = {self.dataset, self.method, self.encoder}
        if IMPORTED in origins and len(origins) > 1:
            raise ConfigError(f"dataset, method and encoder are {IMPORTED} all three or none")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainConfig:
        """The config that `dataclasses.asdict` wrote; `ConfigError` for names it doesn't know."""
        names = {f.name for f in dataclasses.fields(cls)}
        for name in values:
            if name not in names:
                raise ConfigError(f"unknown setting {name!r}{nearest(name, names)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values by field name, as stored in run.json; of imported vectors those that say something."""
        values = dataclasses.asdict(self)
        told = ("dataset", "method", "encoder", "dim", "name") if self.imported else values
        return {name: values[name] for name in told}

    def title(self) -> str:
        """The run's name: the one given, or one that says what was trained."""
        if self.name:
            return self.name
        if self.imported:
            return IMPORTED
        if self.method == "moco":
            return f"{self.dataset_name} m={self.momentum:g} K={self.queue_size}"
        if self.method == "memory-bank":
            return f"{self.dataset_name} memory bank K={self.queue_size}"
        return f"{self.dataset_name} in-batch B={self.batch_size}"

    @property
    def imported(self) -> bool:
        """Whether the vectors come from elsewhere: then only `dim` and `name` say something."""
        return self.method == IMPORTED

    def check_trainable(self) -> None:
        """Raise `ConfigError` for the config of imported vectors."""
        if self.imported:
            raise ConfigError(
                f"{IMPORTED} marks vectors that come from elsewhere, which can't be trained; "
                f"method must be one of {', '.join(METHODS)}"
            )

    @property
    def dataset_name(self) -> str:
        """The data set in a word: of a folder, the last part of its path."""
        return self.dataset.removeprefix(FOLDER_PREFIX).rstrip("/").rpartition("/")[2] or "folder"

    @property
    def negatives(self) -> int:
        """Negatives each query meets once training is under way: K, or B − 1 within the batch."""
        return self.batch_size - 1 if self.method == "in-batch" else self.queue_size

    @property
    def peak_lr(self) -> float:
        """The learning rate at the top of the schedule, linear scaling (Goyal et al. 2017) included."""
        return self.lr * self.batch_size / 256 if self.scale_lr else self.lr

    @property
    def log_interval(self) -> int:
        """Steps between history entries."""
        return self.log_every or max(1, self.steps // 400)


def variants(config: TrainConfig, over: str, values: Sequence[Any]) -> list[TrainConfig]:
    """`config` at each value of the field `over`; where titles would not tell them apart, names do.

    ConfigError when one of the values is not accepted.
    """
    configs = [dataclasses.replace(config, **{over: value}) for value in values]
    if len({one.title() for one in configs}) == len(set(values)):
        return configs
    told = [f"{over}={value:.12g}" if isinstance(value, float) else f"{over}={value}" for value in values]
    # A made name is much the same for all: what differs comes first, where lists of runs don't cut it off.
    names = [f"{config.name} {one}" if config.name else f"{one} {config.title()}" for one in told]
    return [dataclasses.replace(one, name=name) for one, name in zip(configs, names, strict=True)]


@functools.cache  # it takes milliseconds, and every config that is read asks
def field_hints() -> dict[str, Any]:
    """The annotated type of every field of `TrainConfig`, in order."""
    return get_type_hints(TrainConfig, include_extras=True)


def accepted(field: str) -> Range | OneOf | Device | None:
    """What a field accepts beyond its type, or None where any value of the type will do."""
    return next((e for e in field_hints()[field].__metadata__ if isinstance(e, Range | OneOf | Device)), None)


def help_text(field: str) -> str:
    """The one-line description of a field."""
    return next(e.documentation for e in field_hints()[field].__metadata__ if isinstance(e, Doc))


def default(field: str) -> Any:
    """The default value of a field."""
    return TrainConfig.__dataclass_fields__[field].default


def nearest(name: str, names: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` when some known name is close, else an empty string."""
    close = difflib.get_close_matches(name.lower(), sorted(names), n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def some(names: Collection[str], mark: str = ", ") -> str:
    """The first five names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return mark.join(list(names)[:5]) + more


def _plain(number: float) -> str:
    """All digits of a whole number, six of any other."""
    return f"{int(number)}" if number == int(number) else f"{number:g}"


def _checked(field: str, value: Any) -> Any:
    kind = field_hints()[field].__origin__
    known = isinstance(value, float | int if kind is float else kind)  # a whole number will do for a float
    if not known or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{field} must be of type {kind.__name__}, got {value!r}")
    limits = accepted(field)
    if limits is None or value in limits:
        return kind(value)
    if isinstance(limits, Range):
        raise ConfigError(f"{field} must be {limits}, got {value!r}")
    if isinstance(limits, OneOf) and value == limits.prefix:
        raise ConfigError(f"{field} {value} needs a path, as in {value}/my/images")
    names = limits.names if isinstance(limits, OneOf) else ()
    raise ConfigError(f"{field} must be one of {limits}; got {value!r}{nearest(value, names)}")
