"""Pairs a second of the training loop, beside the bare network and beside lightly's MoCo recipe.

The bare limit is forward and backward of the query encoder plus forward of the key encoder on ready-made
tensors: no augmentation, no loss, no queue, no optimizer. Each contestant has a process of its own and they
take turns, a block of steps each, so that all meet the same machine; ours runs the real loop, logging and
heartbeat included: with images in memory, streaming them from files, and in two processes. Ours and the bare
network keep freed memory (`keep_freed_memory`), lightly runs as it comes, without and with two loading
processes. Also: what a long queue costs, and what snapshots cost.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import psutil
import torch
import torch.nn.functional as F

from benchmarks import contestants
from benchmarks.contestants import Case, Contestant
from benchmarks.report import parse_args, report
from moco_core.config import TrainConfig
from moco_core.contrast.infonce import info_nce
from moco_core.contrast.queue import KeyQueue
from moco_core.runs import RunWriter
from moco_core.training.loop import train
from moco_core.training.setup import prepare

SETTLE_SECONDS = 0.5  # lightly's workers fill their queues after a block, then rest
QUICK = (contestants.ours, contestants.bare, contestants.lightly_2workers)
ALL = (*QUICK, contestants.lightly, contestants.streaming, contestants.two_processes)
WAYS = {"ours": "", "streaming": "/streaming", "two_processes": "/2proc"}  # ours, by suffix of the ratio
PEERS = {"bare": "bare", "lightly": "lightly", "lightly_2workers": "lightly-2workers"}
TARGETS = {
    "ours/bare/small-cnn": 0.9,
    "ours/lightly/small-cnn": 2.0,
    "ours/lightly-2workers/small-cnn": 2.0,
    "ours/bare/resnet18": 0.9,
    "ours/lightly/resnet18": 1.15,
    "ours/lightly-2workers/resnet18": 1.15,
}
LONG_QUEUES = (65_536, 1_048_576)


def main() -> None:
    """Measure and report."""
    args = parse_args(__doc__)
    small = Case("small-cnn", 1, 28, 128, 5, 16 if args.quick else 40)
    cases = [small] if args.quick else [small, Case("resnet18", 3, 32, 128, 2, 4)]
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {}
    for case in cases:
        rates, memory = measure(case, QUICK if args.quick else ALL)
        for way, suffix in WAYS.items():
            for peer, name in PEERS.items():
                if way in rates and peer in rates:  # blocks of the same round: the machine's pace drifts
                    pairs = zip(rates[way], rates[peer], strict=True)
                    ratio = statistics.median(own / other for own, other in pairs)
                    ratios[f"ours/{name}/{case.encoder}{suffix}"] = ratio
        figures |= {f"pairs/s {name} {case.encoder}": statistics.median(of) for name, of in rates.items()}
        figures |= {f"peak MB {name} {case.encoder}": most for name, most in memory.items()}
        if not args.quick:
            figures |= queue_shares(case)
    if not args.quick:
        ratios["snapshots/run"] = snapshot_share()
    targets = {name: (">=", least) for name, least in TARGETS.items() if name in ratios}
    report("training", ratios, targets, figures, args.json)


def measure(case: Case, entered: tuple[Contestant, ...]) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Contestant → pairs/s of its block in each round, and the most memory in MB, helping processes included."""
    spawn = get_context("spawn")
    turns, processes = {}, {}
    for contestant in entered:
        name = contestant.__name__
        turns[name], theirs = spawn.Pipe()
        processes[name] = spawn.Process(target=contestant, args=(case, theirs))
        processes[name].start()
        theirs.close()
    rates: dict[str, list[float]] = {name: [] for name in turns}
    memory = dict.fromkeys(turns, 0.0)
    order = list(turns)
    try:
        for _ in range(case.rounds + 1):
            for name in order:
                turns[name].send("go")
                seconds, peak = turns[name].recv()
                rates[name].append(case.block * case.batch / seconds)
                memory[name] = max(memory[name], peak + children_mb(processes[name].pid))
                time.sleep(SETTLE_SECONDS if name == "lightly_2workers" else 0)
            order.reverse()  # nobody is always the one that follows another
    finally:
        for turn in turns.values():
            turn.close()
        for process in processes.values():
            process.join()
    return {name: of[1:] for name, of in rates.items()}, memory  # the first block warms up


def children_mb(pid: int | None) -> float:
    """What the processes below a contestant's hold for themselves, in MB."""
    total = 0.0
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            total += child.memory_full_info().uss / 1e6
    return total


def queue_shares(case: Case) -> dict[str, float]:
    """What logits, loss and enqueuing take of a training step at long queues, beside the bare network's part."""
    query = case.network().to(memory_format=torch.channels_last).train()
    key = copy.deepcopy(query).requires_grad_(False)
    view = torch.randn(case.batch, case.channels, case.side, case.side).to(memory_format=torch.channels_last)
    ids = torch.arange(case.batch)
    shares = {}
    for size in LONG_QUEUES:
        queue = KeyQueue(size, case.config.dim)
        queue.enqueue(
            F.normalize(torch.randn(size, case.config.dim)), torch.arange(size), torch.zeros(size), 0
        )
        taken = []
        for step in range(6):
            began = time.perf_counter()
            with torch.no_grad():
                k = key(view)[1]
            q = query(view)[1]
            q.sum().backward()
            network = time.perf_counter()
            apart = q.detach().requires_grad_()
            info_nce(apart, k, queue.negatives, case.config.temperature).loss.backward()
            queue.enqueue(k, ids, ids, step)
            ended = time.perf_counter()
            taken.append((ended - network) / (ended - began))
        shares[f"queue's share of a step, {case.encoder}, K={size}"] = statistics.median(taken[1:])
    return shares


def snapshot_share() -> float:
    """Share of a default run's time that its snapshots take (digits, 400 steps)."""
    with tempfile.TemporaryDirectory() as root:
        run = RunWriter.create(Path(root), TrainConfig())
        train(run, prepare(TrainConfig()))
        return run.seconds["snapshots"] / run.seconds["run"]


if __name__ == "__main__":
    main()
