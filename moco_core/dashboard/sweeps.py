"""Runs that differ in a few settings, brought side by side: what each reached, averaged over seeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from moco_core.config import IGNORED, WITHOUT_EFFECT, TrainConfig
from moco_core.dashboard.drift import Drift, DriftError, read_drift
from moco_core.dashboard.text import numeral
from moco_core.runs import Checkpoint, Run, RunError
from moco_core.runs.last_loss import last_loss
from moco_core.theory import chance_loss, loss_floor

Arrays = dict[str, np.ndarray]

# Settings that don't make two runs different experiments: measuring otherwise changes nothing that was learnt.
NOT_COMPARED = {*WITHOUT_EFFECT, "eval_size", "knn_k", "knn_temperature", "bank_size"}


@dataclass(frozen=True)
class Quantity:
    """Something measured at the end of a run."""

    label: str
    digits: int = 3


QUANTITIES: Mapping[str, Quantity] = {
    "loss": Quantity("loss, nats"),
    "knn": Quantity("kNN accuracy"),
    "knn_features": Quantity("kNN accuracy, features"),
    "linear": Quantity("linear probe accuracy"),
    "alignment": Quantity("alignment"),
    "uniformity": Quantity("uniformity", 2),
    "effective_rank": Quantity("effective rank", 1),
    "k_star": Quantity("K*", 0),
    "k_star_lowest": Quantity("lowest K*", 0),
    "gradient_cosine_lowest": Quantity("lowest gradient cosine"),
}
ACCURACIES = ("linear", "knn", "knn_features")


@dataclass(frozen=True)
class Outcome:
    """What one run has reached at its newest snapshot, and the least consistent its queue was at any.

    `values` by quantity; what was not measured is absent.
    """

    run_id: str
    name: str
    config: TrainConfig
    state: str
    step: int
    values: Mapping[str, float]
    verdict: str  # of the collapse check; empty when there is none
    at_least: frozenset[str] = frozenset()  # quantities whose values are lower bounds
    problem: str = ""  # why something could not be read


@dataclass(frozen=True)
class Group:
    """Runs with the same settings but for the seed."""

    outcomes: tuple[Outcome, ...]

    @property
    def config(self) -> TrainConfig:
        """The settings that the runs share (and the first one's seed)."""
        return self.outcomes[0].config

    @property
    def momentum(self) -> float:
        """m of the key encoder; NaN for methods that have none."""
        return self.config.momentum if self.config.method == "moco" else math.nan

    def values(self, quantity: str) -> np.ndarray:
        """The quantity in each run that has it."""
        return np.array([o.values[quantity] for o in self.outcomes if quantity in o.values])

    def mean(self, quantity: str) -> float:
        """Mean over the runs; NaN when none has it."""
        values = self.values(quantity)
        return float(values.mean()) if len(values) else math.nan

    def deviation(self, quantity: str) -> float:
        """Sample standard deviation over the runs; NaN with fewer than two."""
        values = self.values(quantity)
        return float(values.std(ddof=1)) if len(values) > 1 else math.nan

    def at_least(self, quantity: str) -> bool:
        """Whether the mean is a lower bound."""
        return any(quantity in one.at_least for one in self.outcomes)

    def text(self, quantity: str) -> str:
        """`mean ± deviation`, or a dash."""
        return self._text(quantity, QUANTITIES[quantity].digits)

    def percent(self, quantity: str) -> str:
        """`text` of an accuracy in percent, without the sign."""
        return self._text(quantity, 1, scale=100)

    def _text(self, quantity: str, digits: int, scale: int = 1) -> str:
        mean, deviation = scale * self.mean(quantity), scale * self.deviation(quantity)
        if math.isnan(mean):
            return "–"
        bound = "≥ " if self.at_least(quantity) else ""
        spread = "" if math.isnan(deviation) else f" ± {deviation:,.{digits}f}"
        return bound + numeral(mean, f"z,.{digits}f") + spread

    @property
    def verdict(self) -> str:
        """The collapse verdicts of the runs, each once."""
        return ", ".join(sorted({o.verdict for o in self.outcomes if o.verdict})) or "–"

    @property
    def chance(self) -> float:
        """Loss of guessing, in nats."""
        return chance_loss(self.config.negatives)

    @property
    def floor(self) -> float:
        """Loss of a perfect positive among uniform negatives, in nats."""
        return loss_floor(self.config.negatives, self.config.temperature, self.config.dim)


def outcome(
    run: Run,
    history: Callable[[Run], Arrays] = Run.history,
    drift: Callable[[Checkpoint], Arrays] = lambda checkpoint: checkpoint.drift,
) -> Outcome:
    """What a readable run has reached. Damaged files cost only the numbers that were in them.

    `history` and `drift` read the files; pages hand in cached readers.
    """
    values: dict[str, float] = {}
    at_least: frozenset[str] = frozenset()
    loss = last_loss(history(run))
    if loss is not None and math.isfinite(loss):
        values["loss"] = loss
    newest = run.steps[-1] if run.steps else None
    verdict, problem = "", ""
    if newest is not None:
        for name in QUANTITIES:
            value = newest.metrics.get(name, {}).get("value")
            if isinstance(value, int | float) and math.isfinite(value):
                values[name] = float(value)
        verdict = str(newest.metrics.get("collapse", {}).get("verdict", ""))
        try:
            measured, at_least = _from_drift(read_drift(drift(step), run.id, step.step) for step in run.steps)
            values |= measured
        except (RunError, DriftError) as error:
            problem = str(error)
    return Outcome(
        run_id=run.id,
        name=run.name,
        config=run.config,
        state=run.status.state,
        step=newest.step if newest else 0,
        values=values,
        verdict=verdict,
        at_least=at_least,
        problem=problem,
    )


def grouped(outcomes: Iterable[Outcome]) -> list[Group]:
    """Runs of equal settings together; ordered by method, queue size and momentum."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault(_setting(one.config), []).append(one)
    order = {"moco": 0, "memory-bank": 1, "in-batch": 2}
    return sorted(
        (Group(tuple(members)) for members in groups.values()),
        key=lambda g: (
            order.get(g.config.method, 3),
            g.config.queue_size,
            g.config.momentum,
            g.config.batch_size,
            g.config.temperature,
        ),
    )


def momentum_lines(groups: Sequence[Group]) -> list[list[Group]]:
    """MoCo groups that differ in momentum alone, each line in order of momentum."""
    return _lines([group for group in groups if group.config.method == "moco"], lambda config: "momentum")


def negatives_lines(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups that differ in the number of negatives alone, each line in order of it."""
    lines = _lines(groups, _negatives_field)
    return [sorted(line, key=lambda group: group.config.negatives) for line in lines]


def momentum_line_label(line: Sequence[Group], lines: Sequence[Sequence[Group]]) -> str:
    """What sets a line of `momentum_lines` apart from the others."""
    return label(line[0], [other[0] for other in lines], "momentum") or f"K = {line[0].config.queue_size}"


def negatives_line_label(line: Sequence[Group], lines: Sequence[Sequence[Group]]) -> str:
    """What sets a line of `negatives_lines` apart from the others."""
    return label(line[0], [other[0] for other in lines], _negatives_field(line[0].config))


def label(group: Group, among: Sequence[Group], without: str = "") -> str:
    """What sets a group apart from the others: its method, momentum, and every setting that varies.

    The setting `without` is left out.
    """
    config = group.config
    parts = [f"m = {config.momentum:g}"] if config.method == "moco" else [config.method]
    if config.method == "moco" and without == "momentum":
        parts = []
    if config.method != "in-batch" and without != "queue_size" and _varies("queue_size", among):
        parts.append(f"K = {config.queue_size}")
    for field in dataclasses.fields(TrainConfig):
        apart = NOT_COMPARED | {"method", "momentum", "queue_size", without}
        if field.name not in apart and _varies(field.name, among):
            parts.append(f"{field.name.replace('_', ' ')} {getattr(config, field.name)}")
    return ", ".join(parts)


def _lines(groups: Sequence[Group], field: Callable[[TrainConfig], str]) -> list[list[Group]]:
    """Groups that differ in one setting alone: `field` names it."""
    lines: dict[tuple[object, ...], list[Group]] = {}
    for group in groups:
        lines.setdefault(_setting(group.config, without=field(group.config)), []).append(group)
    return list(lines.values())


def _negatives_field(config: TrainConfig) -> str:
    """The setting that decides how many negatives there are."""
    return "batch_size" if config.method == "in-batch" else "queue_size"


def _from_drift(measured: Iterable[Drift | None]) -> tuple[dict[str, float], frozenset[str]]:
    """K* now; and over all snapshots the lowest gradient cosine of the whole queue and the lowest K*.

    Also which of these are lower bounds.

    A settled run keeps any queue consistent, so its worst moment tells more. Where a queue was consistent as a
    whole, its K* is no limit: the lowest is then that of the newest snapshot.
    """
    drifts = [drift for drift in measured if drift is not None]
    if not drifts:
        return {}, frozenset()
    now = drifts[-1]
    limited = [drift for drift in drifts if drift.k_star < drift.filled]
    least = min(limited, default=now, key=lambda drift: drift.k_star)
    found: dict[str, float] = {"k_star": now.k_star, "k_star_lowest": least.k_star}
    bounds = {"k_star": now.k_star_at_least, "k_star_lowest": least.k_star_at_least}
    cosines = [drift.final_cosine for drift in drifts if math.isfinite(drift.final_cosine)]
    if cosines:
        found["gradient_cosine_lowest"] = min(cosines)
    return found, frozenset(name for name, bound in bounds.items() if bound)


def _setting(config: TrainConfig, without: str = "") -> tuple[object, ...]:
    """Everything that makes an experiment, `without` one setting; what a method ignores doesn't count."""
    unused = NOT_COMPARED.union(IGNORED.get(config.method, ()), {without})
    return tuple(getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in unused)


def _varies(field: str, groups: Sequence[Group]) -> bool:
    return len({getattr(group.config, field) for group in groups}) > 1
