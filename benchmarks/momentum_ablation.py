"""The paper's two ablations on Fashion-MNIST: momentum, and the three ways to get negatives.

He et al. 2019 (section 4.1) vary the momentum at K = 4096 on ImageNet. Here a small encoder learns from real
28×28 Fashion-MNIST at five momenta, K = 4096, and at equal K with a queue, with a memory bank and with the
batch's own negatives (K = B − 1, the only K that end-to-end training can have).

    python -m benchmarks.momentum_ablation --runs data/momentum-ablation

takes about an hour on two cores. It may be stopped at any time: finished runs are kept and unfinished ones are
resumed. The table (Markdown, JSON) and the figure (SVG) go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from benchmarks.ablation_figure import figure
from benchmarks.report import machine
from moco_core import paper
from moco_core.config import TrainConfig, default
from moco_core.dashboard.sweeps import QUANTITIES, Group, grouped, outcome
from moco_core.runs import Run, RunStore
from moco_core.runs.files import replace_bytes, replace_json

RESULTS = Path(__file__).parent / "results"
BATCH = 128
LONG_QUEUE = 4096
BASE = TrainConfig(dataset="fashion-mnist", encoder="small-cnn", batch_size=BATCH, queue_size=LONG_QUEUE)
HEARTBEAT_LIMIT = 60.0  # seconds without a sign of life after which a running run counts as dead
SHOWN = (
    "linear",
    "knn",
    "knn_features",
    "loss",
    "alignment",
    "uniformity",
    "effective_rank",
    "k_star_lowest",
    "gradient_cosine_lowest",
)


@dataclass(frozen=True)
class Experiment:
    """One run of the ablation: the settings, and the tag under which pages show it."""

    tag: str
    config: TrainConfig


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("data/momentum-ablation"), help="folder of the runs"
    )
    parser.add_argument("--steps", type=int, default=1500, help="steps a run (default: 1500)")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each setting (default: 2)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the table and the figure go")
    parser.add_argument("--report-only", action="store_true", help="train nothing; report what is finished")
    args = parser.parse_args()
    plan = experiments(args.steps, args.seeds)
    if not args.report_only:
        for number, experiment in enumerate(plan, start=1):
            print(
                f"{number} of {len(plan)}: {experiment.config.title()}, seed {experiment.config.seed}",
                flush=True,
            )
            train(experiment, args.runs)
    finished = [run for e in plan if (run := find(e.config, args.runs)) and run.status.state == "finished"]
    if not finished:
        sys.exit(f"no run of this ablation is finished in {args.runs}")
    write(grouped(map(outcome, finished)), args.results, len(finished), len(plan))


def train(experiment: Experiment, root: Path) -> None:
    """Train one run, or go on with it; nothing when it is finished. Ends this process when training fails."""
    run = find(experiment.config, root)
    if run is not None and run.status.state == "finished":
        return
    if (
        run is not None
        and run.status.state == "running"
        and run.status.seconds_since_heartbeat() < HEARTBEAT_LIMIT
    ):
        sys.exit(
            f"{run.id} is being trained by another process (pid {run.status.pid}): wait for it, then start again"
        )
    command = [sys.executable, "-m", "moco_core"]
    if run is not None:
        command += ["train", "--resume", run.id]
    else:
        config = experiment.config
        command += ["sweep", "--over", "momentum", "--values", str(config.momentum), "--tag", experiment.tag]
        command += flags(config)
    code = subprocess.run([*command, "--runs", str(root)], stdout=subprocess.DEVNULL).returncode
    if code:
        sys.exit(f"training ended with code {code}; start again to go on from the last checkpoint")


def flags(config: TrainConfig) -> list[str]:
    """The command line's flags for every setting that isn't the default."""
    changed = {name: value for name, value in config.to_dict().items() if value != default(name)}
    return [part for name, value in changed.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def find(config: TrainConfig, root: Path) -> Run | None:
    """The run with exactly these settings."""
    return next((run for run in RunStore(root) if run.problem is None and run.config == config), None)


def write(groups: Sequence[Group], folder: Path, finished: int, planned: int) -> None:
    """The table as Markdown and JSON, and the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    momentum = [g for g in groups if g.config.method == "moco" and g.config.queue_size == LONG_QUEUE]
    methods = [g for g in groups if g not in momentum or g.config.momentum == default("momentum")]
    text = "\n".join(
        [
            "# Momentum and negatives on Fashion-MNIST",
            "",
            f"small-cnn, B = {BATCH}, τ = {BASE.temperature:g}, {groups[0].config.steps:,} steps, real 28×28 images; "
            f"{finished} of {planned} runs finished. Mean ± standard deviation over seeds. Accuracies of the linear "
            "probe and kNN are on held-out images.",
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
    head = ["method", "m", "K", "runs", *(QUANTITIES[name].label for name in SHOWN), "collapse"]
    head += ["paper: linear, ImageNet, %"] if with_paper else []
    rows = [head, ["---"] * len(head)]
    for group in groups:
        config = group.config
        m = f"{config.momentum:g}" if config.method == "moco" else "–"
        row = [config.method, m, f"{config.negatives:,}", str(len(group.outcomes))]
        row += [*(group.text(name) for name in SHOWN), group.verdict]
        if with_paper:
            accuracy = paper.MOMENTUM_ABLATION[config.momentum]
            row.append("fails" if accuracy is None else f"{accuracy:.1f}")
        rows.append(row)
    return [f"| {' | '.join(row)} |" for row in rows]


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


def as_json(group: Group) -> dict[str, object]:
    """Settings, every run's numbers, and their means."""
    return {
        "config": group.config.to_dict(),
        "runs": [
            {"id": one.run_id, "seed": one.config.seed, "collapse": one.verdict, **one.values}
            for one in group.outcomes
        ],
        "mean": {name: group.mean(name) for name in SHOWN if len(group.values(name))},
        "chance_loss": group.chance,
        "loss_floor": group.floor,
    }


if __name__ == "__main__":
    main()
