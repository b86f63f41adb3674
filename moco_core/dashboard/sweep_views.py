"""Sweeps as the momentum page shows them: a table beside the paper's numbers, and the inputs of its charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from moco_core import paper
from moco_core.dashboard.figures.momentum import Placed, Timescale
from moco_core.dashboard.figures.sweep_panels import Curve, Panel
from moco_core.dashboard.palette import NEUTRAL
from moco_core.dashboard.sweeps import (
    ACCURACIES,
    QUANTITIES,
    Group,
    label,
    momentum_line_label,
    momentum_lines,
    negatives_line_label,
    negatives_lines,
)
from moco_core.theory import half_life, queue_span

PLOTTED = ("loss", "knn", "linear", "alignment", "uniformity", "effective_rank", "k_star_lowest")
COMPARED = ("knn", "linear", "alignment", "uniformity", "k_star_lowest")  # of methods
STALENESS = ("k_star_lowest", "gradient_cosine_lowest")
LEADING = (*ACCURACIES, *STALENESS)  # in the table, before what there may be no room for
PAPER_COLUMN = "paper: linear, ImageNet, %"


def table(groups: Sequence[Group]) -> pd.DataFrame:
    """One row a group, and rows for the paper's momenta that no group has; the paper's numbers in a column.

    The paper's are ImageNet accuracies of another network: a column of their own, never averaged with ours. They are
    those of its momenta, and left out where K varies and m does not.
    """
    return _beside_paper([_row(group, groups) for group in groups], groups).fillna("")


def _beside_paper(rows: list[dict[str, Any]], groups: Sequence[Group]) -> pd.DataFrame:
    if along_negatives_alone(groups):
        return pd.DataFrame(rows).drop(columns=PAPER_COLUMN)
    measured = {group.momentum for group in groups}
    only = [
        {"setting": f"paper only, m = {m:g}", PAPER_COLUMN: _paper_text(m)}
        for m in paper.MOMENTUM_ABLATION
        if m not in measured
    ]
    return pd.DataFrame(rows + only)


def _row(group: Group, groups: Sequence[Group]) -> dict[str, str]:
    return {
        "setting": label(group, groups),
        "runs": str(len(group.outcomes)),
        _title("linear"): group.percent("linear"),
        PAPER_COLUMN: _paper_text(group.momentum),
        _title("knn"): group.percent("knn"),
        "collapse": group.verdict,
        **{QUANTITIES[name].label: group.text(name) for name in STALENESS},
        _title("knn_features"): group.percent("knn_features"),
        **{QUANTITIES[name].label: group.text(name) for name in QUANTITIES if name not in LEADING},
        "chance loss": f"{group.chance:.2f}",
        "loss floor": f"{group.floor:.2f}",
        "negatives": f"{group.config.negatives:,}",
        "step": f"{max(one.step for one in group.outcomes):,}",
    }


def _title(quantity: str) -> str:
    """What heads a column or chart of a quantity; accuracies are shown in percent, as the paper's are."""
    return QUANTITIES[quantity].label + (", %" if quantity in ACCURACIES else "")


def _scale(quantity: str) -> float:
    return 100.0 if quantity in ACCURACIES else 1.0


def numbers(groups: Sequence[Group]) -> pd.DataFrame:
    """`table` for other programs: one row a group, unrounded means; their deviation where a group has several runs.

    A column `at least: …` marks means that are lower bounds; both are left out where no group has any.
    """
    rows = []
    for group in groups:
        row: dict[str, Any] = {
            "setting": label(group, groups),
            "runs": len(group.outcomes),
            PAPER_COLUMN: _paper_text(group.momentum),
            "collapse": group.verdict.replace("–", ""),
        }
        for name in QUANTITIES:
            row[_title(name)] = _scale(name) * group.mean(name)
            if any(len(one.values(name)) > 1 for one in groups):
                row[f"± {_title(name)}"] = _scale(name) * group.deviation(name)
            if any(one.at_least(name) for one in groups):
                row[f"at least: {_title(name)}"] = group.at_least(name)
        row |= {"chance loss": group.chance, "loss floor": group.floor, "negatives": group.config.negatives}
        rows.append(row | {"step": max(one.step for one in group.outcomes)})
    return _beside_paper(rows, groups).convert_dtypes()  # whole numbers stay whole beside rows without


def styled(frame: pd.DataFrame) -> Styler:
    """The table with the paper's numbers, and rows that only the paper has, in grey italics."""
    grey = f"color: {NEUTRAL}; font-style: italic"
    ours = frame["runs"] != ""

    def paint(row: pd.Series) -> list[str]:
        return [grey if column == PAPER_COLUMN or not ours[row.name] else "" for column in row.index]

    return frame.style.apply(paint, axis=1)


def _paper_text(momentum: float) -> str:
    if momentum not in paper.MOMENTUM_ABLATION:
        return ""
    accuracy = paper.MOMENTUM_ABLATION[momentum]
    return "fails" if accuracy is None else f"{accuracy:.1f}"


def along_negatives_alone(groups: Sequence[Group]) -> bool:
    """Whether runs differ in the number of negatives alone, and none in momentum alone."""
    return _varied(negatives_lines(groups)) and not _varied(momentum_lines(groups))


def momentum_panels(groups: Sequence[Group]) -> list[Panel]:
    """One panel a quantity along momentum, MoCo runs alone; none of one momentum, or when K alone varies."""
    lines = momentum_lines(groups)
    members = [group for line in lines for group in line]
    if len({group.momentum for group in members}) < 2 or along_negatives_alone(groups):
        return []
    levels = {f"chance {g.chance:.2f}": {g.momentum: g.chance} for g in members}
    levels |= {f"floor {g.floor:.2f}": {g.momentum: g.floor} for g in members}
    return [
        Panel(
            _title(name),
            [
                _curve(name, line, momentum_line_label(line, lines), [g.momentum for g in line])
                for line in lines
            ],
            levels if name == "loss" else {},
        )
        for name in PLOTTED
    ]


def negatives_panels(groups: Sequence[Group]) -> list[Panel]:
    """One panel a quantity along the number of negatives; none when no runs differ in it alone."""
    lines = negatives_lines(groups)
    if not _varied(lines):
        return []
    members = sorted((g for line in lines for g in line), key=lambda g: g.config.negatives)
    temperatures = sorted({g.config.temperature for g in members})
    queued = [float(g.config.negatives) for g in members if g.config.method != "in-batch"]
    guides: dict[str, dict[str, dict[float, float]]] = {
        "loss": {"chance": {float(g.config.negatives): g.chance for g in members}}
        | {f"floor at τ = {t:g}": _floors(members, t) for t in temperatures},
        "k_star_lowest": {"K": {size: size for size in queued}},
    }
    return [
        Panel(
            _title(name),
            [
                _curve(name, line, negatives_line_label(line, lines), [g.config.negatives for g in line])
                for line in lines
            ],
            guides.get(name, {}),
        )
        for name in PLOTTED
    ]


def _varied(lines: Sequence[Sequence[Group]]) -> bool:
    return any(len(line) > 1 for line in lines)


def _floors(members: Sequence[Group], temperature: float) -> dict[float, float]:
    return {float(g.config.negatives): g.floor for g in members if g.config.temperature == temperature}


def _curve(quantity: str, line: Sequence[Group], name: str, at: Sequence[float]) -> Curve:
    scale = _scale(quantity)
    return Curve(
        name,
        at,
        [scale * group.mean(quantity) for group in line],
        [scale * group.deviation(quantity) for group in line],
        [(scale * group.values(quantity)).tolist() for group in line],
        [group.at_least(quantity) for group in line],
    )


def placed(groups: Sequence[Group]) -> list[Placed]:
    """Every MoCo run's place on the map of momentum and queue length."""
    return [
        Placed(
            one.name,
            one.config.momentum,
            one.config.queue_size,
            one.config.batch_size,
            one.values.get("gradient_cosine_lowest", math.nan),
            Group((one,)).text("k_star_lowest") if "k_star_lowest" in one.values else "",
        )
        for group in groups
        if group.config.method == "moco"
        for one in group.outcomes
    ]


def timescales(groups: Sequence[Group]) -> list[Timescale]:
    """Half-life, span and steps of every MoCo setting."""
    return [
        Timescale(
            label(group, groups),
            half_life(group.config.momentum),
            queue_span(group.config.queue_size, group.config.batch_size),
            group.config.steps,
        )
        for group in groups
        if group.config.method == "moco"
    ]


def methods(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups by method; one entry when there is nothing to compare."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.config.method, []).append(group)
    return found


def method_panels(groups: Sequence[Group]) -> dict[str, list[list[float]]]:
    """Quantity → group → values of its runs, for quantities that some run has."""
    values = {name: [(_scale(name) * group.values(name)).tolist() for group in groups] for name in COMPARED}
    bound = {name: " (≥)" if any(group.at_least(name) for group in groups) else "" for name in COMPARED}
    return {_title(name) + bound[name]: each for name, each in values.items() if any(each)}


def curve_table(groups: Sequence[Group]) -> pd.DataFrame:
    """One row a run: its settings and what it reached."""
    return pd.DataFrame(
        [
            {
                "setting": label(group, groups),
                "run": one.run_id,
                "method": one.config.method,
                "momentum": one.config.momentum,
                "queue_size": one.config.queue_size,
                "negatives": one.config.negatives,
                "batch_size": one.config.batch_size,
                "temperature": one.config.temperature,
                "seed": one.config.seed,
                "state": one.state,
                "step": one.step,
                **{name: one.values.get(name, math.nan) for name in QUANTITIES},
                "at_least": " ".join(sorted(one.at_least)),
                "chance_loss": group.chance,
                "loss_floor": group.floor,
                "collapse": one.verdict,
            }
            for group in groups
            for one in group.outcomes
        ]
    )


def timescale_table(settings: Sequence[Timescale]) -> pd.DataFrame:
    """One row a setting, durations in steps."""
    return pd.DataFrame(
        [
            {"setting": s.name, "half_life": s.half_life, "queue_span": s.span, "steps": s.steps}
            for s in settings
        ]
    )
