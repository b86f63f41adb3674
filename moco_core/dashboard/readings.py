"""Plain-language readings of the numbers on the pages, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from moco_core import paper
from moco_core.analysis.staleness import CONSISTENT, RankCorrelation
from moco_core.dashboard.drift import Drift
from moco_core.dashboard.figures.momentum import Timescale
from moco_core.dashboard.figures.staleness import MOST_CELLS
from moco_core.dashboard.measured import Moment
from moco_core.dashboard.sweeps import QUANTITIES, Group, label
from moco_core.dashboard.text import number, numeral, plain

COLLAPSES = {"complete": "Complete collapse", "dimensional": "Dimensional collapse"}
CONTROL_LIMIT = 1e-6  # what re-encoding by the same weights may read
FEWEST_AGES = 5  # distinct ages from which their order is judged


def consistency(drift: Drift, size: int) -> str:
    """How much of a queue of `size` slots is consistent, in one or two sentences."""
    if drift.collapsed:
        return (
            f"All keys lie in one place (their spread is {numeral(drift.spread, '.1g')}): this encoder has "
            "**collapsed**. Nothing can be said of the queue, because a query has no direction in which to learn."
        )
    if not np.isfinite(drift.gradient_cosine).any():
        return "The query's gradient is lost in rounding here, so its direction can't be compared."
    fill = "" if drift.filled >= size else f" The queue is {drift.filled / size:.0%} full so far."
    cosine = drift.final_cosine
    if drift.k_star >= drift.filled:
        return (
            f"**The whole queue is consistent**: with all {drift.filled:,} keys the query is pushed almost "
            f"where fresh keys would push it (gradient cosine {cosine:.4f})."
            + (fill or " How much longer it may be, only a run with a larger K can tell.")
        )
    if drift.k_star == 0:
        newest = f"Not even the newest keys reach a gradient cosine of {CONSISTENT}."
    else:
        newest = "At least the newest" if drift.k_star_at_least else "The newest"
        newest = f"**{newest} {drift.k_star:,} of {drift.filled:,} keys are consistent** (K\\*)."
    return (
        f"{newest} With all of them the query is pushed {_turn(cosine)} from where fresh keys would push it "
        f"(gradient cosine {number(cosine)}). A higher momentum keeps more keys usable; a shorter queue does "
        f"without the others.{fill}"
    )


def least_consistent(worst: Moment) -> str:
    """Where to look, as the label of a button that leads there."""
    low, high = number(min(worst.cosines)), number(max(worst.cosines))
    if len(worst.cosines) == 1:
        what = f"The queue was least consistent at step {worst.step} (gradient cosine {low})"
    else:
        what = (
            f"The queues were least consistent at step {worst.step} (gradient cosines from {low} to {high})"
        )
    return f"{what}: :primary[show that step]"


def collapse(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """What the collapse check of this snapshot says, when it says collapse; else empty."""
    found = metrics.get("collapse", {})
    if found.get("verdict") != "complete":
        return ""
    return (
        f"This run has collapsed at this step. {plain(str(found.get('reason', '')))} The numbers below are those "
        "of a space in which samples can hardly be told apart."
    )


def bank(size: int, draws: int) -> str:
    """What a queue is to a memory bank."""
    return (
        f"A memory bank has one slot a sample, {size:,} here, and each step draws {draws:,} of them as negatives. "
        "It is shown as a queue in the order in which its slots were last written."
    )


def measured_share(drift: Drift) -> str:
    """How much of the queue the numbers rest on."""
    if len(drift.age) >= drift.filled:
        return f"All {drift.filled:,} keys were encoded again."
    return (
        f"{len(drift.age):,} of {drift.filled:,} keys were encoded again, {len(np.unique(drift.age)):,} whole "
        "batches spread over age; a key between them counts as stale as the next older one measured."
        + " K\\* may therefore be larger; a greater `drift_share` measures it more finely."
        * drift.k_star_at_least
    )


def control(value: float) -> str:
    """What the control reads."""
    if math.isnan(value):
        return "No control was measured with this snapshot."
    if value < CONTROL_LIMIT:
        return f"Control: keys written by the current weights read {value:.1g}, as they must."
    return (
        f"Control: keys written by the current weights read {value:.1g} where 0 is due. Encoding is not "
        "repeatable on this device; drift below that is noise."
    )


def order_of_age(rank: RankCorrelation) -> str:
    """Whether the oldest keys are the most drifted ones."""
    if math.isnan(rank.value):
        why = "the keys have one age" if rank.ages < 2 else "no key has drifted"
        return f"Age and drift have no rank correlation here: {why}."
    rho, low, high = (numeral(value, ".2f") for value in (rank.value, rank.low, rank.high))
    if rank.ages < FEWEST_AGES:
        return (
            f"Spearman's ρ of age and drift is {rho} over {rank.ages} ages: too few to judge the order of "
            f"eviction, which takes {FEWEST_AGES}. A longer queue, or a later step, has more."
        )
    interval = f"Spearman's ρ = {rho}, 95% interval {low} to {high} over {rank.ages} ages"
    if rank.low > 0.5:
        return f"**The oldest keys are the most drifted** ({interval}): first in, first out evicts the right ones."
    if rank.low > 0:
        return f"Older keys tend to have drifted more, but loosely ({interval})."
    if rank.high < 0:
        return (
            f"**Older keys have drifted less** ({interval}): first in, first out evicts the wrong ones here."
        )
    return f"Age says nothing certain about drift here ({interval})."


def best_eviction(drift: Drift, names: Mapping[str, str]) -> str:
    """Which policy keeps the most consistent half of the queue."""
    half = int(np.argmin(np.abs(drift.kept - drift.kept[-1] / 2)))
    at_half = {policy: float(curve[half]) for policy, curve in drift.evictions.items()}
    if not at_half or not all(map(math.isfinite, at_half.values())):
        return "The policies can't be compared: the query's gradient is lost in rounding."
    kept = f"with {int(drift.kept[half]):,} of {drift.filled:,} slots kept"
    low, high = min(at_half.values()), max(at_half.values())
    if high - low < 0.005:
        return f"The choice hardly matters here: {kept}, every policy gives a gradient cosine near {number(high)}."
    best = max(at_half, key=at_half.__getitem__)
    queue = at_half.get("oldest_first", math.nan)
    if best == "oldest_first" or high - queue < 0.01:
        return f"Evicting the oldest is as good as any: gradient cosine {number(queue)} {kept} (worst {number(low)})."
    return (
        f"Evicting {names[best]} would do best: gradient cosine {number(high)} {kept}; "
        f"the queue has {number(queue)}."
    )


def over_training(drifts: Sequence[Drift]) -> str:
    """How K* moved from the first measured snapshot to the last; empty with fewer than two."""
    if len(drifts) < 2:
        return "One snapshot has been measured; a second will show how the queue changes as training goes on."
    first, last = drifts[0], drifts[-1]
    now = f"{last.k_star_text} of {last.filled:,} keys at step {last.step}"
    then = f"{first.k_star_text} of {first.filled:,} at step {first.step}"
    least = min(drifts, key=lambda drift: drift.k_star / drift.filled)
    if least.k_star == least.filled:
        return f"The whole queue was consistent at every snapshot, up to {now}."
    if least not in (first, last):
        return f"K\\* was {then}, fell to {least.k_star_text} of {least.filled:,} at step {least.step}, and is {now}."
    return f"K\\* went from {then} to {now}."


def thinned(stored: int, size: int) -> str:
    """Says when a snapshot holds a part of a very long queue; empty otherwise."""
    if size <= MOST_CELLS or stored < MOST_CELLS:
        return ""
    return f" Of this queue of {size:,} slots the snapshot holds {stored:,}, evenly chosen."


def false_negatives(marked: int, filled: int, picked: int | None, classes: Mapping[int, str]) -> str:
    """How many of the filled slots are of the class picked, among the classes that there are."""
    if not classes:
        return "The images have no labels, so keys of a query's own class can't be marked."
    if picked is None:
        return "Choose a class to mark the keys that are false negatives for a query of that class."
    return (
        f"{marked:,} of {filled:,} keys ({marked / filled:.1%}) are of class {plain(classes[picked])}: false "
        "negatives, from which the loss pushes a query of the same class away."
    )


def collapsed_runs(drifts: Sequence[Drift]) -> str:
    """Says which runs can't be divided by their spread; empty when all can."""
    gone = [drift.name for drift in drifts if drift.collapsed]
    if not gone:
        return ""
    return f" {', '.join(map(plain, gone))}: all keys lie in one place, so drift has no unit there."


def timescales(half_life: float, span: float, steps: int) -> str:
    """EMA half-life, queue span and length of a run against each other, all in steps."""
    if math.isinf(half_life):
        return "m = 1: the key encoder never moves, and the keys stay those of random weights."
    if half_life < 0.5:
        return (
            f"the key encoder follows the query encoder at once, while keys wait {_steps(span)} in the queue: "
            "the queue mixes as many encoders as it holds batches"
        )
    life = f"the key encoder's half-life is {_steps(half_life)}"
    if half_life > steps:
        return f"{life} but the run has {steps:,}: {0.5 ** (steps / half_life):.0%} of its start is left at the end"
    if half_life < span / 4:
        return f"{life} and a key waits {_steps(span)}: the oldest keys come from another encoder"
    if half_life < 2 * span:
        return f"{life} and a key waits {_steps(span)}: the encoder changes visibly within one queue"
    if half_life > steps / 4:
        renewed = 1 - 0.5 ** (span / half_life)
        return f"{life} of {steps:,} in all: it follows late, and renews {renewed:.0%} while a key waits {_steps(span)}"
    return f"{life}, well above the {_steps(span)} a key waits and well below the run's {steps:,}"


def clocks(settings: Sequence[Timescale]) -> str:
    """One line a setting: what its three durations mean together."""
    return "\n".join(f"- **{plain(s.name)}**: {timescales(s.half_life, s.span, s.steps)}." for s in settings)


def best_setting(groups: Sequence[Group]) -> str:
    """Which setting has the best accuracy, and which have collapsed."""
    quantity = "linear" if any(len(group.values("linear")) for group in groups) else "knn"
    scored = [group for group in groups if math.isfinite(group.mean(quantity))]
    if not scored:
        return "No accuracy has been measured yet; it needs labelled images and a snapshot."
    best = max(scored, key=lambda group: group.mean(quantity))
    what = QUANTITIES[quantity].label
    text = f"Best {what}: **{best.percent(quantity)}%** with {plain(label(best, groups))}."
    for verdict, words in COLLAPSES.items():
        if gone := _with_verdict(verdict, groups):
            text += f" {words}: {'; '.join(gone)}."
    return text


def lower_bounds(groups: Sequence[Group]) -> str:
    """What ≥ means in the table of settings; empty when it isn't there."""
    if not any(one.at_least for group in groups for one in group.outcomes):
        return ""
    return " ≥: not all keys were encoded again, so K\\* may be larger."


GREY_COLUMN = " The grey column is the paper's: another data set and network; read it for the order of rows."
ALONG_NEGATIVES = (
    "Each quantity against the number of negatives K, on a log scale: the queue's or memory bank's length, or B − 1 "
    "within the batch. Lines join runs that differ in nothing else. A loss means more the further it lies below "
    "chance, which rises with K. Where K\\* falls below the grey line, the queue is longer than it is consistent. The "
    "last panel is the paper's: MoCo on ImageNet at the two lengths for which it gives a number."
)

METHODS = (
    "The same encoder with its negatives taken from a queue (MoCo), from a memory bank, or from its own batch "
    "(end-to-end); dots are runs, bars their means. On ImageNet the paper finds the memory bank "
    f"{paper.MEMORY_BANK_LOSS} points behind MoCo at equal K, and end-to-end training at batch 1024 about "
    f"{paper.IN_BATCH_UNSCALED_LOSS:g} points worse when its learning rate is not scaled."
)


def _with_verdict(verdict: str, groups: Sequence[Group]) -> list[str]:
    """The settings in which runs got this verdict, with their number where it is not all of them."""
    found = []
    for group in groups:
        runs, count = len(group.outcomes), sum(one.verdict == verdict for one in group.outcomes)
        if count:
            found.append(plain(label(group, groups)) + (f" ({count} of {runs} runs)" if count < runs else ""))
    return found


def _steps(number: float) -> str:
    if number >= 10:
        return f"{number:,.0f} steps"
    return f"{number:.2g} step" + ("" if number == 1 else "s")


def _turn(cosine: float) -> str:
    degrees = math.degrees(math.acos(min(1.0, max(-1.0, cosine))))
    return f"{degrees:.0f}° away"
