"""What the ablations share: they train the runs that are missing, go on with unfinished ones, and tabulate."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moco_core.config import TrainConfig, default
from moco_core.dashboard.sweeps import QUANTITIES, Group, grouped, outcome
from moco_core.jobs import is_alive
from moco_core.runs import Run, RunStore

RESULTS = Path(__file__).parent / "results"
SHOWN = (
    *("linear", "knn", "knn_features", "loss", "alignment", "uniformity", "effective_rank"),
    *("k_star_lowest", "gradient_cosine_lowest"),
)
# Heads a table, above `measured`.
MEASURED = ("runs", *(QUANTITIES[name].label for name in SHOWN), "collapse")


@dataclass(frozen=True)
class Experiment:
    """One run of an ablation: the settings, and the tag under which pages show it."""

    tag: str
    config: TrainConfig


def arguments(description: str | None, *, runs: str, steps: int) -> argparse.ArgumentParser:
    """The flags of every ablation, with its own folder of runs and its own steps as defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, default=Path(runs), help=f"folder of the runs (default: {runs})")
    parser.add_argument("--steps", type=int, default=steps, help=f"steps a run (default: {steps})")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each setting (default: 2)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the table and the figure go")
    parser.add_argument("--report-only", action="store_true", help="train nothing; report what is finished")
    return parser


def carry_out(plan: Sequence[Experiment], root: Path, *, report_only: bool = False) -> list[Group]:
    """Train what is missing of the plan; returns the finished runs, those of one setting together.

    Ends this process when training fails and when nothing is finished.
    """
    if not report_only:
        for number, experiment in enumerate(plan, start=1):
            config = experiment.config
            print(f"{number} of {len(plan)}: {config.title()}, seed {config.seed}", flush=True)
            train(experiment, root)
    runs = [run for e in plan if (run := find(e.config, root)) and run.status.state == "finished"]
    if not runs:
        sys.exit(f"no run of this ablation is finished in {root}")
    return grouped(map(outcome, runs))


def finished(groups: Iterable[Group]) -> int:
    """How many runs the groups hold."""
    return sum(len(group.outcomes) for group in groups)


def train(experiment: Experiment, root: Path) -> None:
    """Train one run, or go on with it; nothing when it is finished. Ends this process when training fails."""
    run = find(experiment.config, root)
    if run is not None and run.status.state == "finished":
        return
    if run is not None and run.status.state == "running" and is_alive(run.status):
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
    words: list[str] = []
    for name, value in config.to_dict().items():
        if value != default(name):
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return words


def find(config: TrainConfig, root: Path) -> Run | None:
    """The run with exactly these settings."""
    return next((run for run in RunStore(root) if run.problem is None and run.config == config), None)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def measured(group: Group) -> list[str]:
    """How many runs a group holds and what they came to, as cells below `MEASURED`."""
    return [str(len(group.outcomes)), *(group.text(name) for name in SHOWN), group.verdict]


def as_json(group: Group) -> dict[str, object]:
    """Settings, every run's numbers, and their means."""
    return {
        "config": group.config.to_dict(),
        "runs": [
            {"id": one.run_id, "seed": one.config.seed, "collapse": one.verdict, **one.values}
            for one in group.outcomes
        ],
        "mean": {name: group.mean(name) for name in QUANTITIES if len(group.values(name))},
        "chance_loss": group.chance,
        "loss_floor": group.floor,
    }
