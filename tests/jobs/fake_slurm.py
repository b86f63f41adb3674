"""A SLURM of one machine, as far as submitit and we can tell: its commands, put on PATH by `install`.

`python fake_slurm.py COMMAND ARGUMENT…` plays sbatch, srun, sacct, scancel, scontrol or (`job`) the node that runs a
batch file. All share the folder FAKE_SLURM, in which each job has a file with its state; `hold` in it keeps new jobs
pending, `refuse` makes sbatch refuse with its text, and every command line is noted in `calls`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "srun", "sacct", "scancel", "scontrol", "squeue")
IDLE = ("PENDING", "RUNNING")


def install(folder: Path) -> Path:
    """Put the commands into `folder/bin`, which is returned; FAKE_SLURM must name `folder`."""
    binaries = folder / "bin"
    binaries.mkdir(parents=True)
    for name in COMMANDS:
        command = binaries / name
        command.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} {name} "$@"\n'
        )
        command.chmod(0o755)
    return binaries


def jobs(folder: Path) -> dict[str, dict[str, Any]]:
    """The jobs by id: state, pid of the node's process, batch file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.job"))}


def calls(folder: Path, command: str) -> list[list[str]]:
    """The arguments of each call of a command."""
    lines = [line.split("\t") for line in (folder / "calls").read_text().splitlines()]
    return [words[1:] for words in lines if words[0] == command]


def main(command: str, *words: str) -> int:
    """Play a command; returns its exit code."""
    folder = Path(os.environ["FAKE_SLURM"])
    with (folder / "calls").open("a") as file:
        file.write("\t".join((command, *words)) + "\n")
    return globals()[f"_{command}"](folder, *words)


def _sbatch(folder: Path, script: str) -> int:
    refusal = folder / "refuse"
    if refusal.exists():
        print(f"sbatch: error: Batch job submission failed: {refusal.read_text()}", file=sys.stderr)
        return 1
    number = 1 + max((int(name.partition("_")[0]) for name in jobs(folder)), default=100)
    array = re.search(r"--array=0-(\d+)", Path(script).read_text())
    for name in [f"{number}_{i}" for i in range(int(array[1]) + 1)] if array else [str(number)]:
        _put(folder, name, state="PENDING", script=script, restarts=0)
        _start(folder, name)
    print(f"Submitted batch job {number}")
    return 0


def _start(folder: Path, name: str) -> None:
    subprocess.Popen(
        [sys.executable, __file__, "job", name],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "node.log").open("a"),
    )


def _job(folder: Path, name: str) -> int:
    """The node: runs the batch file once nothing holds it, and notes how it ended."""
    while (folder / "hold").exists() and jobs(folder)[name]["state"] == "PENDING":
        time.sleep(0.05)
    if jobs(folder)[name]["state"] != "PENDING":
        return 0
    _put(folder, name, state="RUNNING", pid=os.getpid())
    job = jobs(folder)[name]
    tasks = re.search(r"--ntasks-per-node=(\d+)", Path(job["script"]).read_text())
    main_id, _, index = name.partition("_")
    own = {
        "SLURM_JOB_ID": name.replace("_", "0"),
        "SLURM_NTASKS": tasks[1] if tasks else "1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NODEID": "0",
        **({"SLURM_ARRAY_JOB_ID": main_id, "SLURM_ARRAY_TASK_ID": index} if index else {}),
        **({"SLURM_RESTART_COUNT": str(job["restarts"])} if job["restarts"] else {}),
    }
    code = subprocess.run(["bash", job["script"]], env=os.environ | own).returncode
    after = jobs(folder)[name]
    if after["state"] == "REQUEUED":
        _put(folder, name, state="PENDING", restarts=job["restarts"] + 1)
        _start(folder, name)
    elif after["state"] == "RUNNING":
        _put(folder, name, state="FAILED" if code else "COMPLETED")
    return 0


def _srun(folder: Path, *words: str) -> int:
    """Run the command once for each task, with SLURM's signals passed on to all of them."""
    rest = [word for word in words if word != "--unbuffered"]
    patterns = {}
    while rest[0] in ("--output", "--error"):
        patterns[rest[0]] = rest[1]
        rest = rest[2:]
    array = os.environ.get("SLURM_ARRAY_JOB_ID", "")
    tasks = []
    for rank in map(str, range(int(os.environ["SLURM_NTASKS"]))):
        filled = {"%t": rank, "%j": os.environ["SLURM_JOB_ID"], "%A": array}
        filled["%a"] = os.environ.get("SLURM_ARRAY_TASK_ID", "")
        streams = []
        for pattern in (patterns["--output"], patterns["--error"]):
            for short, value in filled.items():
                pattern = pattern.replace(short, value)
            streams.append(open(pattern, "a"))  # noqa: SIM115
        own = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        tasks.append(subprocess.Popen(rest, env=os.environ | own, stdout=streams[0], stderr=streams[1]))
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: [task.send_signal(number) for task in tasks])
    return max(abs(task.wait()) for task in tasks)


def _scancel(folder: Path, *words: str) -> int:
    names = [word for word in words if not word.startswith("--")]
    known = jobs(folder)
    for name in names:
        job = known.get(name)
        if job is None or job["state"] not in IDLE:
            print(
                f"scancel: error: Kill job error on job id {name}: Invalid job id specified", file=sys.stderr
            )
            return 1
        wanted = next((word.partition("=")[2] for word in words if word.startswith("--signal=")), "")
        if wanted and job["state"] == "PENDING":
            print(
                f"scancel: error: Kill job error on job id {name}: Job is pending execution", file=sys.stderr
            )
            return 1
        if not wanted:
            _put(folder, name, state="CANCELLED by 1000")
        if job["state"] == "RUNNING":
            _signal(job["pid"], signal.Signals[f"SIG{wanted or 'TERM'}"])
    return 0


def _signal(node: int, number: signal.Signals) -> None:
    """Signal the srun of a job, which passes it on."""
    import psutil

    for process in psutil.Process(node).children(recursive=True):
        if __file__ in process.cmdline() and "srun" in process.cmdline():
            process.send_signal(number)


def _sacct(folder: Path, *words: str) -> int:
    print("JobID|State|NodeList")
    for name, job in jobs(folder).items():
        print(f"{name}|{job['state']}|node1")
    return 0


def _scontrol(folder: Path, verb: str, name: str) -> int:
    assert verb == "requeue"
    _put(folder, name, state="REQUEUED")
    return 0


def _squeue(folder: Path, *words: str) -> int:
    return 0


def _put(folder: Path, name: str, **changes: Any) -> None:
    path = folder / f"{name}.job"
    before = json.loads(path.read_text()) if path.exists() else {}
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(before | changes))
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
