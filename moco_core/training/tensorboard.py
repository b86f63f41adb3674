"""A copy of a run's numbers as TensorBoard event files; the run directory itself stays the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from moco_core.config import ConfigError
from moco_core.runs import Run
from moco_core.runs.schema import TENSORBOARD_DIR

Copy = Callable[[int, Mapping[str, float]], None]


def summary_writer() -> type[Any]:
    """TensorBoard's writer; `ConfigError` where its package is missing."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(f"tensorboard needs its package: pip install tensorboard ({error})") from error
    return SummaryWriter


@contextmanager
def copied_to_tensorboard(run: Path, *, wanted: bool) -> Iterator[Copy]:
    """A function that adds numbers by name at a step, for the steps after the run's resume state.

    What earlier processes added beyond that state is hidden. Each call is on disk when it returns, so that a kill
    costs the copy nothing that the history keeps. Where no copy is wanted, the function does nothing.
    """
    if not wanted:
        yield lambda step, values: None
        return
    saved = Run(run).resume_state()
    _number_earlier_files(run / TENSORBOARD_DIR)
    with summary_writer()(run / TENSORBOARD_DIR, purge_step=saved.step + 1 if saved else 0) as writer:

        def copy(step: int, values: Mapping[str, float]) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)
            writer.flush()

        yield copy


def _number_earlier_files(folder: Path) -> None:
    """Name the files of earlier processes so that the next one sorts behind them.

    TensorBoard reads files in the order of their names, which begin with the time they were opened: where the clock
    was set back since, or another machine goes on, the next file would come first and hide nothing.
    """
    for number, file in enumerate(sorted(folder.glob("*.tfevents.*"))):
        file.rename(folder / f"events.out.tfevents.{number:010d}.earlier")
