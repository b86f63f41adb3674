"""What a person may ask of SLURM: words of the form NAME=VALUE, named as in submitit."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from typing import Any

from moco_core.config import ConfigError, Range, nearest

WHOLE = {  # whole numbers, with the lowest that means something
    "nodes": 1,
    "tasks_per_node": 1,
    "gpus_per_node": 0,
    "gpus_per_task": 0,
    "cpus_per_task": 1,
    "cpus_per_gpu": 1,
    "timeout_min": 1,
    "signal_delay_s": 0,
    "array_parallelism": 1,
}
DECIMAL = {"mem_gb": 0}
TEXT = (
    "name",
    "partition",
    "account",
    "qos",
    "constraint",
    "gres",
    "mem_per_gpu",
    "mem_per_cpu",
    "nodelist",
    "exclude",
    "exclusive",
    "dependency",
    "comment",
    "wckey",
    "mail_type",
    "mail_user",
)
LINES = ("setup", "srun_args")  # may be given several times
NAMES = (*WHOLE, *DECIMAL, *TEXT, *LINES)
SHARED = ("name", "nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "mem_gb", "timeout_min")


def slurm_options(words: Iterable[str]) -> dict[str, Any]:
    """The options that words such as `partition=gpu` or `nodes=2` give; `ConfigError` when one isn't accepted.

    `setup` (a shell line for the node, such as `module load cuda`) and `srun_args` may be given several times.
    """
    options: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value.strip():
            raise ConfigError(
                f"an option of SLURM has the form NAME=VALUE, as in partition=gpu; got {word!r}"
            )
        if name not in NAMES:
            raise ConfigError(
                f"SLURM has no option {name!r} here{nearest(name, NAMES)}; accepted are {', '.join(NAMES)}"
            )
        if name in LINES:
            options.setdefault(name, []).append(value)
        elif name in options:
            raise ConfigError(f"{name} is given twice among the options of SLURM")
        else:
            options[name] = _value(name, value)
    return options


def _value(name: str, text: str) -> int | float | str | bool:
    if name in TEXT:
        return True if (name, text) == ("exclusive", "true") else text
    whole = name in WHOLE
    limits = Range(WHOLE[name] if whole else DECIMAL[name])
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        number = math.nan
    if number not in limits:
        raise ConfigError(f"{name} must be a {'whole ' * whole}number, {limits}, for SLURM; got {text!r}")
    return number


def slurm_words(text: str) -> list[str]:
    """The words of a line as a shell would split it; `ConfigError` when a quote is left open."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"the options of SLURM can't be read: {str(error).lower()}") from error
