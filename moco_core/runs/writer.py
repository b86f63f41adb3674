"""RunWriter: the only code that changes a run directory."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import os
import re
import shutil
import socket
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors.numpy import save

from moco_core.config import TrainConfig
from moco_core.runs import schema
from moco_core.runs.files import (
    clear_abandoned,
    fsync_dir,
    json_bytes,
    make_folder,
    naming,
    replace_bytes,
    replace_json,
    sha256,
    write_bytes,
)
from moco_core.runs.process import this_process
from moco_core.runs.reading import read_json
from moco_core.runs.schema import RunError, RunStatus, step_name
from moco_core.runs.store import Run

Arrays = Mapping[str, np.ndarray]
LOCK_FILE = ".lock"
BEAT_SECONDS = 10.0  # between signs of life that need no step, as during a snapshot


class RunWriter:
    """Writes one run. Every write is atomic; a step counts once its manifest is in place."""

    def __init__(self, path: Path) -> None:
        """Open an existing run; `RunError` when there is none at `path`."""
        self.path = path
        self.run_id = path.name
        self._status_lock = threading.Lock()
        if not (path / schema.RUN_FILE).exists():
            raise RunError(f"there is no run {path.name!r} in {path.parent}")
        try:
            schema.check_folder(path)
            self._info = read_json(path / schema.RUN_FILE)
            self.status = RunStatus.from_dict(read_json(path / schema.STATUS_FILE))
        except RunError as error:
            raise RunError(f"run {path.name!r} can't be opened: {error}") from error

    @classmethod
    def create(cls, root: Path, config: TrainConfig, *, sweep: str = "") -> Self:
        """Make the directory of a new, queued run, its id taken from the config's title."""
        make_folder(root)
        path = _claim_folder(root, slug(config.title()))
        info = {
            "schema": schema.SCHEMA_VERSION,
            "id": path.name,
            "name": config.title(),
            "sweep": sweep,
            "created": schema.now(),
            "config": config.to_dict(),
        }
        status = RunStatus(
            "queued", total_steps=config.steps, heartbeat=schema.now(), host=socket.gethostname()
        )
        try:
            replace_json(path / schema.STATUS_FILE, dataclasses.asdict(status))
            replace_json(path / schema.RUN_FILE, info)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)  # a claim without a run
            raise
        fsync_dir(path)
        return cls(path)

    def move_to(self, root: Path) -> None:
        """Move a run that was written in a hidden folder into `root`, under the first free of its names."""
        place = _claim_folder(root, self.run_id)
        self.describe(id=place.name)
        os.rename(self.path, place)  # the claimed folder is empty, so it is replaced in one move
        fsync_dir(root)
        self.path, self.run_id = place, place.name

    @contextmanager
    def training(self) -> Iterator[None]:
        """Hold the run for this process and keep its heart beating; `RunError` while another process trains it."""
        with (self.path / LOCK_FILE).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunError(f"run {self.run_id!r} is being trained by another process") from error
            self.clear_unfinished()
            self.set_status(state="running", step=self.status.step, error="", **this_process())
            with self._beating():
                yield

    @property
    def config(self) -> TrainConfig:
        """The run's settings; `ConfigError` if they are not acceptable."""
        return TrainConfig.from_dict(self._info["config"])

    def describe(self, **fields: Any) -> None:
        """Merge facts (data-set fingerprint, device, versions, a new name) into run.json.

        A file that was damaged since it was opened is written anew.
        """
        with suppress(RunError):
            self._info = read_json(self.path / schema.RUN_FILE)  # others rename runs
        self._info = {**self._info, **fields}
        replace_json(self.path / schema.RUN_FILE, self._info)

    def add_seconds(self, **parts: float) -> None:
        """Add to the wall-clock seconds that each part of the run has taken, in run.json."""
        before = self.seconds
        self.describe(seconds={name: round(before.get(name, 0) + value, 3) for name, value in parts.items()})

    @property
    def seconds(self) -> dict[str, float]:
        """Wall-clock seconds by part: `run` in all, of it `snapshots`, of these `drift`."""
        seconds = self._info.get("seconds")
        parts = seconds.items() if isinstance(seconds, dict) else ()
        return {name: value for name, value in parts if isinstance(value, int | float)}

    def set_status(self, **changes: Any) -> None:
        """Change fields of status.json and renew its heartbeat; whoever names the step says that it was just taken."""
        with self._status_lock:
            self._write_status(**changes)

    def append_history(self, records: Sequence[Mapping[str, float]]) -> None:
        """Add logged steps to history.jsonl, one JSON object a line; what isn't finite becomes null."""
        lines = "".join(
            json.dumps({key: value if math.isfinite(value) else None for key, value in record.items()}) + "\n"
            for record in records
        )
        path = self.path / schema.HISTORY_FILE
        with naming(path), path.open("a") as file:
            file.write(lines)

    def truncate_history(self, step: int) -> None:
        """Drop entries after `step` and half-written lines: what a crash left beyond the resume state."""
        path = self.path / schema.HISTORY_FILE
        if not path.exists():
            return
        kept = [line for line in path.read_bytes().splitlines() if _logged_step(line) <= step]
        replace_bytes(path, b"".join(line + b"\n" for line in kept))

    def write_eval_set(self, arrays: Arrays, class_names: Sequence[str]) -> None:
        """Store the evaluation images: `thumbnails` N×H×W×C uint8, `labels` N, `sample_ids` N.

        Samples that have names bring `names` along, as `schema.packed_names` makes it.
        """
        data = save(_contiguous(arrays), metadata={"class_names": json.dumps(list(class_names))})
        replace_bytes(self.path / schema.EVAL_FILE, data)
        self.describe(eval_set_sha256=sha256(data))

    def write_step(self, step: int, files: Mapping[str, Arrays], metrics: Mapping[str, Any]) -> None:
        """Write a snapshot: safetensors by file name, the metrics, and last the manifest of checksums."""
        contents = {name: save(_contiguous(arrays)) for name, arrays in files.items()}
        contents[schema.METRICS_FILE] = json_bytes(metrics)
        self._write_folder(self.path, step, contents)

    def drop_weights(self, before: int) -> None:
        """Remove the encoder weights of all steps before `before`, keeping each step valid throughout.

        A damaged step is left as it is, for `verify` to name.
        """
        for checkpoint in Run(self.path).steps:
            weights = checkpoint.path / schema.WEIGHTS_FILE
            with suppress(OSError):  # the next call tries again
                if checkpoint.step >= before or not weights.exists():
                    continue
                manifest = checkpoint.manifest
                files = {name: entry for name, entry in manifest["files"].items() if name != weights.name}
                replace_json(checkpoint.path / schema.MANIFEST_FILE, {**manifest, "files": files})
                weights.unlink()

    def write_resume(self, step: int, arrays: Arrays) -> None:
        """Store everything that training needs to go on from `step`, then drop older states."""
        folder = self.path / schema.RESUME_DIR
        folder.mkdir(exist_ok=True)
        self._write_folder(folder, step, {schema.STATE_FILE: save(_contiguous(arrays))})
        for old in folder.glob("step-*"):
            if old.name != step_name(step):
                shutil.rmtree(old, ignore_errors=True)  # the next call tries again

    def clear_unfinished(self) -> None:
        """Remove temporary files and folders that a kill left behind."""
        clear_abandoned(self.path)
        for folder in (self.path, self.path / schema.RESUME_DIR):
            for leftover in folder.glob(".step-*"):
                shutil.rmtree(leftover, ignore_errors=True)

    def _write_status(self, **changes: Any) -> None:
        """What `set_status` does; whoever calls this holds the lock."""
        now = schema.now()
        if "step" in changes:
            changes["stepped"] = now
        self.status = dataclasses.replace(self.status, heartbeat=now, **changes)
        replace_json(self.path / schema.STATUS_FILE, dataclasses.asdict(self.status))

    @contextmanager
    def _beating(self) -> Iterator[None]:
        """Renew the heartbeat, whatever this thread does, until the run has ended or this process dies."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(BEAT_SECONDS):
                with self._status_lock, suppress(OSError):  # storage that is away for a moment comes back
                    if self.status.active:
                        self._write_status()

        thread = threading.Thread(target=beat, name=f"heart of {self.run_id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _write_folder(self, parent: Path, step: int, contents: Mapping[str, bytes]) -> None:
        final, temporary = parent / step_name(step), parent / f".{step_name(step)}.{os.getpid()}"
        shutil.rmtree(temporary, ignore_errors=True)
        entries = {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in contents.items()}
        with naming(final):
            try:
                temporary.mkdir()
                for name, data in contents.items():
                    write_bytes(temporary / name, data)
                write_bytes(temporary / schema.MANIFEST_FILE, json_bytes({"step": step, "files": entries}))
                fsync_dir(temporary)
                if final.exists():
                    shutil.rmtree(final)
                os.rename(temporary, final)
                fsync_dir(parent)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)


def slug(title: str) -> str:
    """A folder name from a title: lower case letters, digits, dots and dashes, 60 characters at most."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain.replace("=", "")).strip("-.")[:60].strip("-.") or "run"


def _claim_folder(root: Path, name: str) -> Path:
    """Create the first free of name, name-2, name-3, …; safe when several processes claim at once."""
    number = 1
    while True:
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def _contiguous(arrays: Arrays) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _logged_step(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return float("inf")
