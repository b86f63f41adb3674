"""Four settings of MoCo on Fashion-MNIST, one varied at a time: augmentation strength, batch norm, τ and K.

    python -m benchmarks.settings_ablation --runs data/settings-ablation

takes about an hour on two cores; `--only temperature` trains and reports one of them. It may be stopped at any
time: finished runs are kept and unfinished ones are resumed. The tables (Markdown, JSON) and the figure (SVG)
go to benchmarks/results/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ablation import MEASURED, Experiment, arguments, as_json, carry_out, finished, measured, table
from benchmarks.ablation_figure import Panel, percent, side_by_side
from benchmarks.report import machine
from moco_core.config import TrainConfig
from moco_core.dashboard.palette import series_colour
from moco_core.dashboard.sweeps import Group
from moco_core.runs.files import replace_bytes, replace_json

BASE = TrainConfig(dataset="fashion-mnist", encoder="small-cnn", snapshots=4)


@dataclass(frozen=True)
class Factor:
    """A setting, its values, and the question that it answers."""

    label: str
    values: tuple[Any, ...]
    question: str


FACTORS: Mapping[str, Factor] = {
    "augmentation_strength": Factor(
        "augmentation strength",
        (0.0, 0.5, 1.0, 1.5),
        "How different must two views of an image be? 0 leaves both as they are, 1 is the recipe.",
    ),
    "batch_norm": Factor(
        "batch norm",
        ("plain", "split"),
        "Does a query find its key by the batch statistics that both share? Split takes eighths of the shuffled "
        "batch (on one process, sync is plain).",
    ),
    "temperature": Factor(
        "temperature τ",
        (0.05, 0.1, 0.2, 0.5, 1.0),
        "How much should the hardest negatives weigh? Losses at different τ are not comparable.",
    ),
    "queue_size": Factor(
        "queue size K",
        (128, 1024, 4096, 16384),
        "Do more negatives help? Losses at different K are not comparable.",
    ),
}


def main() -> None:
    """Train what is missing, then report."""
    parser = arguments(__doc__, runs="data/settings-ablation", steps=500)
    parser.add_argument("--only", choices=tuple(FACTORS), help="vary this setting alone")
    args = parser.parse_args()
    fields = [args.only] if args.only else list(FACTORS)
    plan = experiments(fields, args.steps, args.seeds)
    write(fields, carry_out(plan, args.runs, report_only=args.report_only), args.results, len(plan))


def experiments(fields: Sequence[str], steps: int, seeds: int) -> list[Experiment]:
    """Every run once: the base that all settings share, then each other value, with all its seeds."""
    base = replace(BASE, steps=steps)
    configs = dict.fromkeys(
        [base, *(replace(base, **{field: value}) for field in fields for value in FACTORS[field].values)]
    )
    return [Experiment("fashion-settings", replace(c, seed=seed)) for c in configs for seed in range(seeds)]


def varied(groups: Sequence[Group], field: str) -> dict[Any, Group]:
    """The groups that differ from the base in `field` alone, by its value, in the order of the values."""
    base = replace(BASE, steps=groups[0].config.steps)
    by_config = {replace(group.config, seed=BASE.seed): group for group in groups}
    wanted = {value: replace(base, **{field: value}) for value in FACTORS[field].values}
    return {value: by_config[config] for value, config in wanted.items() if config in by_config}


def write(fields: Sequence[str], groups: Sequence[Group], folder: Path, planned: int) -> None:
    """The tables as Markdown and JSON, and the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "settings_ablation" if len(fields) == len(FACTORS) else f"settings_ablation_{fields[0]}"
    base = groups[0].config
    lines = [
        "# Four settings on Fashion-MNIST",
        "",
        f"MoCo, small-cnn, B = {base.batch_size}, m = {base.momentum:g}, {base.steps:,} steps, real 28×28 images; "
        f"{finished(groups)} of {planned} runs finished. One setting is varied at a time; the others stay at "
        f"τ = {BASE.temperature:g}, K = {BASE.queue_size:,}, plain batch norm, augmentation strength 1. Mean ± "
        "standard deviation over seeds. Accuracies of the linear probe and kNN are on held-out images.",
    ]
    panels, data = [], {}
    for number, field in enumerate(fields):
        factor, found = FACTORS[field], varied(groups, field)
        heading = factor.label[0].upper() + factor.label[1:]
        lines += ["", f"## {heading}", "", factor.question, "", *markdown(factor, found), "", spread(found)]
        dots = {f"{value}": percent(group) for value, group in found.items()}
        joined = not isinstance(factor.values[0], str)
        panels.append(
            Panel("linear probe, %", dots, factor.label, series_colour(number % 2 * 2), joined=joined)
        )
        data[field] = {f"{value}": as_json(group) for value, group in found.items()}
    text = "\n".join([*lines, ""])
    title = "Linear-probe accuracy by " + ", ".join(FACTORS[field].label for field in fields)
    replace_bytes(folder / f"{name}.md", text.encode())
    replace_bytes(folder / f"{name}.svg", side_by_side(title, panels).encode())
    replace_json(folder / f"{name}.json", {"machine": machine(), **data})
    print(text)


def markdown(factor: Factor, groups: Mapping[Any, Group]) -> list[str]:
    """A table with one row a value."""
    return table(
        [factor.label, *MEASURED], [[f"{value}", *measured(group)] for value, group in groups.items()]
    )


def spread(groups: Mapping[Any, Group]) -> str:
    """How far the linear probe's means lie apart, beside how far seeds do, in a sentence."""
    means = [100 * group.mean("linear") for group in groups.values()]
    deviations = [100 * group.deviation("linear") for group in groups.values()]
    text = f"The means of the linear probe span {np.ptp(means):.1f} points"
    if np.isfinite(deviations).all():
        text += f"; over seeds its standard deviation is {np.mean(deviations):.1f} points on average"
    return f"{text}."


if __name__ == "__main__":
    main()
