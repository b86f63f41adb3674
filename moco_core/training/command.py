"""Training as a command: signals, progress, and what the run directory says when something goes wrong."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from moco_core import tables
from moco_core.config import ConfigError, TrainConfig
from moco_core.contrast.group import Group
from moco_core.data.images import DataError
from moco_core.runs import Run, RunStore, RunWriter
from moco_core.runs.files import reason
from moco_core.runs.schema import RESUME_DIR, RunError
from moco_core.training.device import memory_ran_out
from moco_core.training.distributed import Onlooker, PeerLost, joined, several
from moco_core.training.loop import Record, train
from moco_core.training.setup import Setup, prepare
from moco_core.training.snapshots import Metrics, TrainingError
from moco_core.training.tensorboard import copied_to_tensorboard

OUT_OF_MEMORY = "out of memory: lower batch_size, image_size or queue_size"


@dataclass(frozen=True)
class Outcome:
    """How a training command ended."""

    path: Path
    exit_code: int
    leads: bool = True  # whether this process speaks for the run: of several, process 0 does


def train_new(config: TrainConfig, root: Path, stop_after: int = 0, sweep: str = "") -> Outcome:
    """Make a run and train it. Settings and data are checked before the run directory is made."""
    with joined() as group:
        setup = _prepared(config, group)
        made = RunWriter.create(root, config, sweep=sweep) if group.rank == 0 else None
        run = _writer(group.share(made.path if made else root), group)
        with run.training(), _recording_failure(run):
            return _train(run, setup, stop_after)


def train_resumed(root: Path, run_id: str, stop_after: int = 0) -> Outcome:
    """Go on with a queued, stopped or failed run from its newest resume state."""
    with joined() as group:
        run = _writer(root / run_id, group)
        if run.status.state == "finished":
            raise ConfigError(
                f"run {run_id!r} is finished after {run.status.step} steps: there is nothing to resume"
            )
        saved = Run(run.path).resume_state() if stop_after else None
        if saved and stop_after <= saved.step:
            raise ConfigError(
                f"stop_after must be after step {saved.step}, where {run_id!r} goes on, got {stop_after}"
            )
        if group.rank == 0 and run.status.step and not any(run.path.glob(f"{RESUME_DIR}/step-*")):
            print(f"warning: {run_id!r} saved no state to go on from: it begins again", file=sys.stderr)
        with run.training(), _recording_failure(run):
            return _train(run, _prepared(run.config, group), stop_after)


def train_sweep(
    configs: Sequence[TrainConfig], over: str, root: Path, tag: str, projected: bool = True
) -> int:
    """Train the configs one after another under one tag and print their results; returns an exit code."""
    if several():
        raise ConfigError("a sweep runs in one process; start `train` with torchrun for each value instead")
    paths: list[Path] = []
    code = 0
    for config in configs:
        outcome = train_new(config, root, sweep=tag)
        paths.append(outcome.path)
        print(outcome.path)
        code = outcome.exit_code
        if code:
            break
        if projected:
            project_newest(outcome)
    store = RunStore(root)
    tables.sweep_table([store[path.name] for path in paths], over)
    return code


def project_newest(outcome: Outcome) -> None:
    """Compute and store the newest projection of a finished run, so that it opens at once."""
    from moco_core.projections import precompute_newest

    run = Run(outcome.path)
    if run.status.state == "finished":
        precompute_newest(run)


def _writer(path: Path, group: Group) -> RunWriter:
    return RunWriter(path) if group.rank == 0 else Onlooker(path)


def _prepared(config: TrainConfig, group: Group) -> Setup:
    try:
        with _saying_memory_ran_out():
            setup = prepare(config, group)
    except DataError as error:
        raise RunError(str(error)) from error
    if group.rank == 0:
        for warning in setup.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    return setup


def _train(run: RunWriter, setup: Setup, stop_after: int) -> Outcome:
    leads = setup.group.rank == 0
    config = setup.config
    copied = copied_to_tensorboard(run.path, wanted=leads and config.tensorboard)
    with _signals() as received, _progress(run.run_id, config.steps, shown=leads) as bar, copied as copy:

        def on_step(step: int, record: Record | None) -> None:
            if not bar.n:
                bar.n = bar.initial = step - 1  # where training goes on
            bar.update()
            if record is not None:
                copy(step, {name: value for name, value in record.items() if name != "step"})
                bar.set_postfix_str(f"loss {record['loss']:.3f}, {record['pairs_per_s']:.0f} pairs/s")

        def on_snapshot(step: int, metrics: Metrics) -> None:
            copy(step, {name: entry["value"] for name, entry in metrics.items()})
            line = tables.trace_line(Run(run.path), step) if leads else ""
            if line:
                bar.write(line, file=sys.stderr)

        def should_stop(step: int) -> bool:
            return bool(received) or step == stop_after

        train(run, setup, on_step=on_step, on_snapshot=on_snapshot, should_stop=should_stop)
    if leads:
        _print_shares(run)
        tables.trace_table(Run(run.path))
    return Outcome(run.path, 128 + received[0] if received else 0, leads)


@contextmanager
def _recording_failure(run: RunWriter) -> Iterator[None]:
    """Whatever stops the run is written into its status before it leaves this process."""
    try:
        with _saying_memory_ran_out():
            yield
    except PeerLost as error:
        writer = run.heir() if isinstance(run, Onlooker) else run
        writer.set_status(state="failed", error=str(error))
        raise
    except (ConfigError, RunError, TrainingError) as error:
        run.set_status(state="failed", error=str(error))
        raise RunError(str(error)) from error
    except OSError as error:  # a full disk, storage that is away
        if not run.path.is_dir():
            raise RunError(f"the run's folder is gone: {run.path}") from error
        sentence = f"{reason(error)}; once that is mended, --resume {run.run_id} goes on"
        with suppress(OSError):  # a full disk takes no status either
            run.set_status(state="failed", error=sentence)
        raise RunError(sentence) from error
    except Exception as error:
        run.set_status(state="failed", error=f"{type(error).__name__}: {error}")
        raise  # noted for the pages, and left to whoever can explain it
    except (KeyboardInterrupt, SystemExit):  # outside the loop, which ends at a step of its choosing
        if run.status.active:
            run.set_status(state="stopped")
        raise


@contextmanager
def _saying_memory_ran_out() -> Iterator[None]:
    """Whatever a device says when it has no memory left becomes one sentence."""
    try:
        yield
    except Exception as error:
        if memory_ran_out(error):
            raise RunError(OUT_OF_MEMORY) from error
        raise


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects what asks this process to end, so that the loop can do so at a step of its choosing."""
    received: list[int] = []

    def receive(number: int, _: object) -> None:
        received.append(number)
        if number == signal.SIGHUP:
            _leave_the_terminal()

    handled = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` wants it
        handled.append(signal.SIGHUP)
    previous = {number: signal.signal(number, receive) for number in handled}
    try:
        yield received
    except PeerLost:  # torchrun ends the others with SIGTERM, which must not cut their last words short
        previous.clear()
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _leave_the_terminal() -> None:
    """Show nothing more where a terminal was: it is gone, and writing to it would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
    os.close(nowhere)


def _progress(run_id: str, steps: int, *, shown: bool) -> tqdm:
    hidden = {} if shown else {"disable": True}
    return tqdm(total=steps, desc=run_id, unit="step", dynamic_ncols=True, **hidden)


def _print_shares(run: RunWriter) -> None:
    seconds = run.seconds
    if seconds.get("run"):
        snapshots, drift = (seconds[part] / seconds["run"] for part in ("snapshots", "drift"))
        print(
            f"{seconds['run']:.1f} s, of it snapshots {snapshots:.1%} (queue staleness {drift:.1%})",
            file=sys.stderr,
        )
