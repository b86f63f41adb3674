"""The staleness of runs as pages ask for it: every snapshot of a run, the ones nearest to a step, as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from moco_core.analysis.checks import evenly
from moco_core.analysis.staleness import CONSISTENT
from moco_core.dashboard import loaders
from moco_core.dashboard.drift import Drift, DriftError, read_drift
from moco_core.dashboard.legend import in_order
from moco_core.dashboard.selection import labels
from moco_core.runs import Checkpoint, QueueSnapshot, Run, RunError

IMPORTED = (
    "These vectors were imported: they come without a queue of keys, and how their encoder was trained is not known "
    "here. Choose a run that was trained with a queue."
)


@dataclass(frozen=True)
class Moment:
    """The gradient cosines of whole queues at one step, one a run."""

    step: int
    cosines: tuple[float, ...]


@dataclass(frozen=True)
class Shown:
    """What the queue page shows at one step of a run, with the nearest measurements of others."""

    own: Drift | None  # at the step looked at
    drifts: list[Drift]  # of each run, at the nearest step up to it
    history: list[Drift]  # every measured snapshot of the run itself
    series: list[list[Drift]]  # and of each run
    queue: QueueSnapshot | None
    least_consistent: Moment | None  # of the steps of the run; None when every queue was consistent
    problems: list[str]  # what could not be read, a sentence each

    @property
    def size(self) -> int:
        """K, or the filled slots where the queue itself can't be read."""
        return self.queue.size if self.queue else self.own.filled if self.own else 0


def gather(run: Run, checkpoint: Checkpoint, others: Sequence[Run]) -> Shown:
    """The measurements of `run` at a checkpoint, and of `others` at the nearest step up to it.

    Unless it is among `others`, `run` comes last: they keep the places, and colours, of the other pages.
    """
    runs = in_order(others)
    if run.id not in [other.id for other in others]:
        runs.append(run)
    series, problems = [], []
    for place, (one, name) in enumerate(zip(runs, labels(runs).values(), strict=True)):
        found, sentences = measured(one, name, place)
        series.append(found)
        problems += sentences
    queue = None
    try:
        queue = loaders.queue(checkpoint)
    except RunError as error:
        problems.append(str(error))
    mine = [one.id for one in runs].index(run.id)
    own = next((drift for drift in series[mine] if drift.step == checkpoint.step), None)
    near = [at_step(found, checkpoint.step) for found in series]
    near[mine] = own
    drifts = [_dated(drift, checkpoint.step) for drift in near if drift is not None]
    worst = _least_consistent([checkpoint.step for checkpoint in run.steps], series)
    return Shown(own, drifts, series[mine], series, queue, worst, problems)


def measured(run: Run, name: str, place: int = 0) -> tuple[list[Drift], list[str]]:
    """Every measured snapshot of a run in step order, and a sentence for each that can't be read.

    `place` is that of the run among those drawn together.
    """
    found, problems = [], []
    for checkpoint in run.steps:
        try:
            drift = read_drift(loaders.drift(checkpoint), name, checkpoint.step, place)
        except (RunError, DriftError) as error:
            problems.append(f"step {checkpoint.step} of {name}: {error}")
            continue
        if drift is not None:
            found.append(drift)
    return found, problems


def at_step(drifts: Sequence[Drift], step: int) -> Drift | None:
    """The newest measurement up to `step`, else the first one after it; None when there is none."""
    earlier = [drift for drift in drifts if drift.step <= step]
    return earlier[-1] if earlier else next(iter(drifts), None)


def _least_consistent(steps: Sequence[int], series: Sequence[Sequence[Drift]]) -> Moment | None:
    """The step at which the runs shown have the lowest mean gradient cosine; None if all are consistent there."""
    moments = []
    for step in steps:
        near = [drift for drifts in series if (drift := at_step(drifts, step)) is not None]
        cosines = [drift.final_cosine for drift in near if math.isfinite(drift.final_cosine)]
        if cosines:
            measured_here = sum(drift.step == step for drift in near)
            moments.append((float(np.mean(cosines)), -measured_here, Moment(step, tuple(cosines))))
    if not moments:
        return None
    worst = min(moments, key=lambda found: found[:2])[2]
    return worst if min(worst.cosines) < CONSISTENT else None


def _dated(drift: Drift, step: int) -> Drift:
    """The measurement named with its step, where that is not the step looked at."""
    return drift if drift.step == step else replace(drift, name=f"{drift.name}, step {drift.step}")


def why_not_measured(checkpoint: Checkpoint, queue: QueueSnapshot | None) -> str:
    """Why a snapshot has no staleness to show."""
    if not checkpoint.has_queue:
        return (
            "This run keeps no keys from earlier steps, so nothing can go stale: in-batch training takes its "
            "negatives from the batch at hand."
        )
    if queue is None:
        return "The queue of this step can't be read, and no staleness with it."
    if not queue.filled:
        return f"The queue is still empty at step {checkpoint.step}: choose a later snapshot."
    return (
        f"The queue holds {queue.filled:,} keys here, but their staleness was not measured. Runs measure it "
        "unless `--drift-share` is 0."
    )


def label_names(run: Run, queue: QueueSnapshot) -> dict[int, str]:
    """The classes that the queue's slots have, by label; empty for unlabelled images."""
    labels = np.unique(queue.labels[queue.labels >= 0]).tolist()
    try:
        eval_set = loaders.eval_set(run)
    except RunError:
        return {label: str(label) for label in labels}
    return {label: eval_set.name_of(label) if eval_set.class_names else str(label) for label in labels}


def steps_table(series: Iterable[Sequence[Drift]]) -> pd.DataFrame:
    """One row a measured snapshot of each run."""
    return summary_table(drift for drifts in series for drift in drifts)


def slot_table(drifts: Iterable[Drift]) -> pd.DataFrame:
    """One row a measured slot, newest first."""
    return _stacked(
        drifts,
        lambda d: {
            "slot": d.slot,
            "age": d.age.astype(np.int64),
            "drift": d.drift,
            "drift_over_spread": d.relative,
            "query_key_lag": d.lag,
            "logit_error": d.logit_error,
            "weight_share": d.weight_share,
            "stands_for": d.stands_for,
        },
    )


def length_table(drifts: Iterable[Drift]) -> pd.DataFrame:
    """One row a queue length."""
    return _stacked(
        drifts,
        lambda d: {"length": d.length.astype(np.int64), "gradient_cosine": d.gradient_cosine, "kl": d.kl},
    )


def eviction_table(drift: Drift) -> pd.DataFrame:
    """One row a number of slots kept, one column a policy."""
    return _stacked([drift], lambda d: {"kept": d.kept.astype(np.int64), **d.evictions})


def summary_table(drifts: Iterable[Drift]) -> pd.DataFrame:
    """One row a snapshot: the numbers that the page leads with."""
    return pd.DataFrame(
        [
            {
                "run": d.name,
                "step": d.step,
                "k_star": d.k_star,
                "filled": d.filled,
                "measured": len(d.age),
                "gradient_cosine": d.final_cosine,
                "oldest_age": int(d.age.max()),
                "oldest_drift": d.oldest,
                "oldest_drift_over_spread": d.oldest_relative,
                "spread": d.spread,
                "control": d.control,
            }
            for d in drifts
        ]
    )


SUMMARY_COLUMNS = {
    "k_star": "K*",
    "measured": "encoded again",
    "gradient_cosine": "gradient cosine, all keys",
    "oldest_age": "oldest age",
    "oldest_drift": "its drift",
    "oldest_drift_over_spread": "its drift ÷ spread",
    "spread": "spread",
    "control": "control",
}


def queue_table(queue: QueueSnapshot, step: int, drift: Drift | None) -> pd.DataFrame:
    """One row a stored slot, oldest first, with its drift where measured."""
    return pd.DataFrame(
        {
            "slot": np.arange(queue.filled),
            "age": queue.ages(step),
            "sample_id": queue.sample_ids,
            "label": queue.labels,
            "drift": slot_drift(queue.filled, drift),
        }
    )


def slot_drift(stored: int, drift: Drift | None) -> np.ndarray:
    """Drift of each of the `stored` slots of queue.safetensors, oldest first; NaN where not measured.

    Of a very long queue the file holds some slots, evenly chosen; drift counts positions among all of them.
    """
    values = np.full(stored, np.nan)
    if drift is not None and len(drift.slot) and stored:
        every = np.full(max(drift.filled, int(drift.slot.max()) + 1), np.nan)
        every[drift.slot] = drift.drift
        values = every[evenly(drift.filled, stored)]
    return values


def _stacked(drifts: Iterable[Drift], columns: Callable[[Drift], dict[str, np.ndarray]]) -> pd.DataFrame:
    parts = []
    for drift in drifts:
        filled = {name: values for name, values in columns(drift).items() if len(values)}
        parts.append(pd.DataFrame({"run": drift.name, "step": drift.step, **filled}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
