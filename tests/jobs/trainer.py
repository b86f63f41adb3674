"""A stand-in for `python -m moco_core train`: counts steps instead of training, and behaves as its name says.

Run names: `quick` ends by itself, `long` goes on until stopped, `deaf` ignores SIGTERM, `broken` fails with a line
of its own, `silent` vanishes, `careful` records its own failure, `lingering` is `long` but ends a while after it
has recorded that it stopped, `drawing` is `quick` but works on for a minute once it has recorded that it finished.
Each start and end goes to events.txt.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from moco_core.runs import RunWriter


def main() -> int:
    """Train, in name only; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume")
    parser.add_argument("--runs", type=Path)
    arguments = parser.parse_args()
    run = RunWriter(arguments.runs / arguments.resume)
    kind = run.config.name.split()[0]
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    note(arguments.runs, "start", run.run_id)
    with run.training():
        if kind == "broken":
            print("error: the disk is made of cheese", file=sys.stderr)
            return 1
        if kind == "silent":
            return 3
        if kind == "careful":
            run.set_status(state="failed", error="the loss is nan at step 3")
            return 1
        step = run.status.step
        while step < (run.config.steps if kind in ("quick", "drawing") else 10**9):
            step += 1
            run.set_status(step=step)
            time.sleep(0.05)
            if received and kind != "deaf":
                note(arguments.runs, "end", run.run_id)
                run.set_status(state="stopped", step=step)
                time.sleep(3 if kind == "lingering" else 0)
                return 143
        note(arguments.runs, "end", run.run_id)
        run.set_status(state="finished", step=step)
        time.sleep(60 if kind == "drawing" else 0)
    return 0


def note(root: Path, what: str, run_id: str) -> None:
    """Append one line to events.txt."""
    with (root / "events.txt").open("a") as file:
        file.write(f"{what} {run_id} {os.getpid()}\n")


if __name__ == "__main__":
    sys.exit(main())
