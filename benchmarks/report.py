"""What every benchmark shares: its two flags, its table, and the JSON that others read."""

from __future__ import annotations

import argparse
import operator
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from moco_core.runs.files import replace_json

Target = tuple[str, float]  # (">=" or "<=", value)

HOLDS = {">=": operator.ge, "<=": operator.le}
LIBRARIES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "umap-learn",
    "torch",
    "torchvision",
    "streamlit",
    "plotly",
    "lightly",
    "embedding-atlas",
)


def parse_args(description: str | None = None) -> argparse.Namespace:
    """The flags of every benchmark: `.quick` (bool) and `.json` (Path or None)."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller measurement: under 50 s on two cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON")
    return parser.parse_args()


def report(
    name: str,
    ratios: Mapping[str, float],
    targets: Mapping[str, Target],
    figures: Mapping[str, float],
    json_path: Path | None,
) -> bool:
    """Print a table and, given a path, write the JSON; True when every target measured is met.

    `ratios` are compared with `targets` of the same name; `figures` (seconds, bytes, rates, …) are shown
    as they are, and a target may name one of them too. A target without a measurement is left open.
    """
    measured = {**figures, **ratios}
    met = {
        key: HOLDS[sign](measured[key], bound) for key, (sign, bound) in targets.items() if key in measured
    }
    table = Table("measurement", "value", "target", "", title=escape(name))
    for key, value in {**ratios, **figures}.items():
        target = f"{targets[key][0]} {targets[key][1]:g}" if key in targets else ""
        verdict = {True: "[green]met", False: "[red]missed", None: ""}[met.get(key)]
        table.add_row(escape(key), f"{value:,.4g}", target, verdict)
    for key in sorted(targets.keys() - measured.keys()):
        table.add_row(escape(key), "–", f"{targets[key][0]} {targets[key][1]:g}", "not measured")
    Console().print(table)
    if json_path is not None:
        replace_json(
            json_path,
            {
                "ratios": dict(ratios),
                "targets": {key: list(target) for key, target in targets.items()},
                "machine": machine(),
                "figures": dict(figures),
            },
        )
    return all(met.values())


def machine() -> dict[str, object]:
    """What the figures were measured on: processor, cores this process may use, memory, versions."""
    return {
        "cpu": cpu_model(),
        "cores": len(psutil.Process().cpu_affinity())
        if hasattr(psutil.Process, "cpu_affinity")
        else os.cpu_count(),
        "ram_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {library: found for library in LIBRARIES if (found := installed(library))},
    }


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def installed(library: str) -> str | None:
    """Version of an installed library, or None."""
    try:
        return version(library)
    except PackageNotFoundError:
        return None
