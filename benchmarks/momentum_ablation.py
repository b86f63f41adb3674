"""The paper's two ablations on Fashion-MNIST: momentum, and the three ways to get negatives.

He et al. 2019 (section 4.1) vary the momentum at K = 4096 on ImageNet. Here a small encoder learns from real
28×28 Fashion-MNIST at five momenta, K = 4096, and at equal K with a queue, with a memory bank and with the
batch's own negatives (K = B − 1, the only K that end-to-end training can have).

    python -m benchmarks.momentum_ablation --runs data/momentum-ablation

takes about an hour on two cores. It may be stopped at any time: finished runs are kept and unfinished ones are
resumed. The table (Markdown, JSON) and the figure (SVG) go to benchmarks/results/.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from benchmarks.ablation import MEASURED, Experiment, arguments, as_json, carry_out, finished, measured, table
from benchmarks.ablation_figure import figure
from benchmarks.report import machine
from moco_core import paper
from moco_core.config import TrainConfig, default
from moco_core.dashboard.sweeps import Group
from moco_core.runs.files import replace_bytes, replace_json

BATCH = 128
LONG_QUEUE = 4096
BASE = TrainConfig(dataset="fashion-mnist", encoder="small-cnn", batch_size=BATCH, queue_size=LONG_QUEUE)


def experiments(steps: int, seeds: int) -> list[Experiment]:
    """Every run: momenta at K = 4096, and the methods at K = B − 1 and at K = 4096; all seeds of one value together."""
    base = replace(BASE, steps=steps)
    settings = [("fashion-momentum", replace(base, momentum=m)) for m in paper.MOMENTUM_ABLATION]
    settings += [
        ("fashion-methods", replace(base, method="moco", queue_size=BATCH - 1)),
        ("fashion-methods", replace(base, method="memory-bank", queue_size=BATCH - 1)),
        ("fashion-methods", replace(base, method="in-batch", queue_size=BATCH - 1)),
        ("fashion-methods", replace(base, method="memory-bank")),
    ]
    return [Experiment(tag, replace(config, seed=seed)) for tag, config in settings for seed in range(seeds)]


def main() -> None:
    """Train what is missing, then report."""
    args = arguments(__doc__, runs="data/momentum-ablation", steps=1500).parse_args()
    plan = experiments(args.steps, args.seeds)
    write(carry_out(plan, args.runs, report_only=args.report_only), args.results, len(plan))


def write(groups: Sequence[Group], folder: Path, planned: int) -> None:
    """The table as Markdown and JSON, and the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    momentum = [g for g in groups if g.config.method == "moco" and g.config.queue_size == LONG_QUEUE]
    methods = [g for g in groups if g not in momentum or g.config.momentum == default("momentum")]
    text = "\n".join(
        [
            "# Momentum and negatives on Fashion-MNIST",
            "",
            f"small-cnn, B = {BATCH}, τ = {BASE.temperature:g}, {groups[0].config.steps:,} steps, real 28×28 images; "
            f"{finished(groups)} of {planned} runs finished. Mean ± standard deviation over seeds. Accuracies of the "
            "linear probe and kNN are on held-out images.",
            "",
            f"## Momentum, K = {LONG_QUEUE:,}",
            "",
            *markdown(momentum, with_paper=True),
            "",
            order(momentum),
            "",
            "## Three ways to get negatives",
            "",
            *markdown(methods, with_paper=False),
            "",
            f"On ImageNet the paper finds the memory bank {paper.MEMORY_BANK_LOSS} points behind MoCo at equal K, and "
            "end-to-end training close to MoCo at a K that its batch can hold.",
            "",
        ]
    )
    replace_bytes(folder / "momentum_ablation.md", text.encode())
    replace_bytes(folder / "momentum_ablation.svg", figure(momentum, methods).encode())
    replace_json(
        folder / "momentum_ablation.json",
        {
            "machine": machine(),
            "paper": {
                "source": paper.SOURCE,
                "momentum": {f"{m:g}": a for m, a in paper.MOMENTUM_ABLATION.items()},
            },
            "momentum": [as_json(group) for group in momentum],
            "methods": [as_json(group) for group in methods],
            "pairs": [
                {"better": f"{a:g}", "worse": f"{b:g}", "agrees": agrees} for a, b, agrees in pairs(momentum)
            ],
        },
    )
    print(text)


def markdown(groups: Sequence[Group], *, with_paper: bool) -> list[str]:
    """A table with one row a setting."""
    head = ["method", "m", "K", *MEASURED, *(["paper: linear, ImageNet, %"] if with_paper else [])]
    rows = []
    for group in groups:
        config = group.config
        m = f"{config.momentum:g}" if config.method == "moco" else "–"
        row = [config.method, m, f"{config.negatives:,}", *measured(group)]
        if with_paper:
            accuracy = paper.MOMENTUM_ABLATION[config.momentum]
            row.append("fails" if accuracy is None else f"{accuracy:.1f}")
        rows.append(row)
    return table(head, rows)


def pairs(groups: Sequence[Group]) -> list[tuple[float, float, bool]]:
    """Every pair of momenta: the one the paper finds better, the other, and whether ours agree (linear probe)."""
    ours = {group.momentum: group.mean("linear") for group in groups if math.isfinite(group.mean("linear"))}
    found = []
    for a, b in combinations(sorted(ours), 2):
        first, second = (paper.MOMENTUM_ABLATION[m] or 0.0 for m in (a, b))
        better, worse = (a, b) if first > second else (b, a)
        found.append((better, worse, ours[better] > ours[worse]))
    return found


def order(groups: Sequence[Group]) -> str:
    """Whether our order of momenta is the paper's, and where it isn't."""
    found = pairs(groups)
    if not found:
        return "Fewer than two momenta are finished: there is no order to compare yet."
    wrong = [f"m = {better:g} over m = {worse:g}" for better, worse, agrees in found if not agrees]
    text = f"Of {len(found)} pairs of momenta, {len(found) - len(wrong)} are in the paper's order by linear probe."
    return text + (f" Not reproduced: {', '.join(wrong)}." if wrong else "")


if __name__ == "__main__":
    main()
