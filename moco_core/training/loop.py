"""The training loop, from the first step to the last, readable top to bottom."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from moco_core import __version__
from moco_core.contrast.group import Group
from moco_core.contrast.method import Method, Scored, readouts
from moco_core.runs import RunStore, RunWriter, schema
from moco_core.training.device import device_name, keep_freed_memory
from moco_core.training.optimizer import build_optimizer, set_learning_rate
from moco_core.training.schedule import learning_rate, momentum, planned_snapshots
from moco_core.training.setup import Setup
from moco_core.training.snapshots import Metrics, Snapshots, TrainingError
from moco_core.training.state import pack, unpack

HEARTBEAT_SECONDS = 1.0

Record = dict[str, float]


def train(
    run: RunWriter,
    setup: Setup,
    *,
    on_step: Callable[[int, Record | None], None] = lambda step, record: None,
    on_snapshot: Callable[[int, Metrics], None] = lambda step, metrics: None,
    should_stop: Callable[[int], bool] = lambda step: False,
) -> str:
    """Train `run` from its newest resume state, or from the start, to its last step; returns its end state.

    `on_step` is told each step and, where one was logged, its record; `on_snapshot` each step whose snapshot has just
    been written, and its metrics. When `should_stop(step)` is true after a step, a snapshot and a resume state are
    written and the run ends as `stopped`. Several processes all call this, with the same config; it is enough that
    one of them should stop. Raises `TrainingError` when the loss is no longer finite, and `PeerLost` when another
    process has ended.
    """
    config = setup.config
    keep_freed_memory()
    views, method, group = setup.views, setup.method(), setup.group
    optimizer = build_optimizer(config, method.query)
    snapshots = Snapshots(run, config, views, setup.held_out, setup.device)
    planned = set(planned_snapshots(config, len(setup.train)))
    start = _restore(run, method, optimizer, group)
    if config.compile:
        method.query.compile()
        method.key.compile()

    clock = time.perf_counter
    began = clock()
    if start == 0:
        _describe(run, setup, method)
        snapshots.describe_eval_set()
        on_snapshot(0, snapshots.take(method, 0))
    interval_began, interval_pairs = clock(), 0
    last_heartbeat = last_saved = clock()
    pending: list[Record] = []

    views.expect(range(start + 1, config.steps + 1))
    method.train()
    step = start
    for step in range(start + 1, config.steps + 1):
        indices = views.batch(step)
        view_q, view_k = views.pair(indices, step)  # own rows, B×C×H×W each
        method.momentum = momentum(config, step)
        scored = method.score(view_q, view_k, indices, step)
        filled = method.filled
        lr = learning_rate(config, step)
        set_learning_rate(optimizer, lr)
        optimizer.zero_grad(set_to_none=True)
        scored.loss.backward()
        group.average_gradients(method.query.theta)
        interval_pairs += len(indices)
        record = None
        if step % config.log_interval == 0 or step in (1, config.steps):
            record = _record(method, scored, step, lr, filled)
            if not math.isfinite(record["loss"]):
                run.append_history(pending)  # the way there
                raise TrainingError(
                    f"the loss is {record['loss']} at step {step}: lower lr or raise temperature"
                )
            record["pairs_per_s"] = interval_pairs / (clock() - interval_began)
            interval_began, interval_pairs = clock(), 0
            pending.append(record)
        optimizer.step()
        method.remember(scored.keys, indices, setup.train.labels[indices.to(setup.train.labels.device)], step)
        on_step(step, record)

        stopping = group.any(step < config.steps and should_stop(step))
        due = step in planned or stopping
        if due or clock() - last_heartbeat > HEARTBEAT_SECONDS:
            run.append_history(pending)
            pending.clear()
            run.set_status(step=step)
            last_heartbeat = clock()
        if due:
            on_snapshot(step, snapshots.take(method, step))
        if due or clock() - last_saved > 60 * config.checkpoint_minutes:
            run.append_history(pending)
            pending.clear()
            run.write_resume(step, pack(method, optimizer))
            last_saved = clock()
            interval_began, interval_pairs = clock(), 0
        if stopping:
            break

    state = "finished" if step == config.steps else "stopped"
    run.add_seconds(run=clock() - began, snapshots=snapshots.seconds, drift=snapshots.drift_seconds)
    run.set_status(state=state, step=step)
    return state


@torch.no_grad()
def _record(method: Method, scored: Scored, step: int, lr: float, filled: int) -> Record:
    """One line of history.jsonl, the encoders as they were when they scored the batch.

    Reading these numbers is the loop's only wait for the device.
    """
    shown = method.group.mean(torch.stack([scored.loss.detach(), *readouts(scored, method.temperature)]))
    theta_q: list[Tensor] = [*method.query.theta]
    theta_k: list[Tensor] = [*method.key.theta]
    gradients = [p.grad for p in theta_q if p.grad is not None]
    apart, length, gradient = _norms(torch._foreach_sub(theta_q, theta_k), theta_q, gradients)
    numbers = torch.stack([*shown, apart / length, gradient]).tolist()
    loss, positive_cosine, negative_cosine, contrast_accuracy, encoder_gap, grad_norm = numbers
    return {
        "step": step,
        "loss": loss,
        "positive_cosine": positive_cosine,
        "negative_cosine": negative_cosine,
        "contrast_accuracy": contrast_accuracy,
        "lr": lr,
        "momentum": method.momentum,
        "encoder_gap": encoder_gap,  # ‖θ_q − θ_k‖ / ‖θ_q‖ over all parameters
        "grad_norm": grad_norm,
        "filled": filled,
    }


def _norms(*vectors: Sequence[Tensor]) -> Tensor:
    """Euclidean norms of several vectors, each given as a list of its parts; all parts in one call."""
    norms = torch.stack(torch._foreach_norm([part for parts in vectors for part in parts]))
    return torch.stack([of.norm() for of in norms.split([len(parts) for parts in vectors])])


def _restore(run: RunWriter, method: Method, optimizer: torch.optim.Optimizer, group: Group) -> int:
    """Load the newest readable resume state; returns its step, 0 when there is none."""
    saved = RunStore(run.path.parent)[run.run_id].resume_state() if group.rank == 0 else None
    arrays, step = group.share((saved.arrays(schema.STATE_FILE), saved.step) if saved else ({}, 0))
    if arrays:
        unpack(arrays, method, optimizer)
    run.truncate_history(step)
    return step


def _describe(run: RunWriter, setup: Setup, method: Method) -> None:
    train = setup.train
    run.describe(
        dataset={
            "name": train.name,
            "train": len(train),
            "held_out": len(setup.held_out),
            "shape": [train.channels, train.image_size, train.image_size],
            "fingerprint": train.fingerprint(),
            "skipped": len(train.skipped),
            "skipped_files": list(train.skipped[:20]),
        },
        device=device_name(setup.device),
        threads=torch.get_num_threads(),
        processes=setup.group.size,
        parameters=sum(p.numel() for p in method.query.parameters()),
        warnings=list(setup.warnings),
        versions={"moco_core": __version__, "torch": torch.__version__, "python": platform.python_version()},
    )
