"""RunStore: reads run directories without torch, treating everything in them as untrusted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load

from moco_core.config import ConfigError, TrainConfig
from moco_core.runs import schema
from moco_core.runs.files import NO_ARRAYS, reason, sha256
from moco_core.runs.history import History
from moco_core.runs.reading import read, read_json
from moco_core.runs.schema import QueueSnapshot, RunError, RunStatus

Arrays = dict[str, np.ndarray]
KINDS = {"f": "fractional numbers", "i": "whole numbers", "u": "bytes"}  # of numpy, in words


@dataclass(frozen=True)
class EvalSet:
    """The fixed evaluation samples of a run: images, or anything else that has vectors and perhaps names."""

    thumbnails: np.ndarray  # N×H×W×C uint8; N×0×0×0 where the samples are no images
    labels: np.ndarray  # N int64, −1 where unknown
    sample_ids: np.ndarray  # N int64
    class_names: tuple[str, ...]
    names: tuple[str, ...] | None = None  # N, what the samples are called; None where they have no names

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def pictured(self) -> bool:
        """Whether the samples are images."""
        return self.thumbnails.size > 0

    @property
    def labelled(self) -> bool:
        """Whether the class of any sample is known."""
        return bool((self.labels >= 0).any())

    def title(self, row: int) -> str:
        """What a sample is called: its name, with its class; or its class and id where it has no name."""
        label = int(self.labels[row])
        if self.names is None or not self.names[row]:
            return f"{self.name_of(label)} #{self.sample_ids[row]}"
        return f"{self.names[row]} ({self.name_of(label)})" if label >= 0 else self.names[row]

    def name_of(self, label: int) -> str:
        """The class name of a label, or `unlabelled`."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else "unlabelled"


@dataclass(frozen=True)
class Checkpoint:
    """One step of a run. Arrays are read, and their checksums compared, on access."""

    path: Path
    run_id: str
    step: int
    manifest: Mapping[str, Any] = field(repr=False)
    metrics: Mapping[str, Mapping[str, Any]] = field(repr=False)

    @property
    def checksum(self) -> str:
        """Identifies what this step shows; the key of everything cached from it. Weights may come or go."""
        shown = {
            name: e["sha256"] for name, e in self.manifest["files"].items() if name != schema.WEIGHTS_FILE
        }
        return sha256(json.dumps(shown, sort_keys=True).encode())

    @property
    def query(self) -> np.ndarray:
        """Query-encoder embeddings of the evaluation images, N×D, unit length."""
        return self._embedding("query")

    @property
    def key(self) -> np.ndarray:
        """Key-encoder embeddings of the evaluation images, N×D, unit length."""
        return self._embedding("key")

    @property
    def features(self) -> np.ndarray:
        """Backbone outputs of the query encoder, N×F."""
        return self._embedding("features")

    @property
    def second_view(self) -> np.ndarray:
        """Query-encoder embeddings of one augmented view of each evaluation image, N×D, unit length."""
        return self._embedding("second_view")

    @property
    def has_queue(self) -> bool:
        """Whether the method keeps a queue (in-batch training has none)."""
        return schema.QUEUE_FILE in self.manifest["files"]

    @property
    def queue(self) -> QueueSnapshot:
        """The queue at this step, oldest slot first; `RunError` for a method without one."""
        if not self.has_queue:
            raise RunError(
                f"step {self.step} of {self.run_id} has no queue: its method takes negatives from the batch, or "
                "its vectors were imported"
            )
        arrays, file = self.arrays(schema.QUEUE_FILE), f"{schema.QUEUE_FILE} of step {self.step}"
        keys = _column(arrays, "keys", file, dims=2, kinds="f")
        written, samples, labels, size = (
            _column(arrays, name, file, dims=1, kinds="i")
            for name in ("written_step", "sample_id", "label", "size")
        )
        if not len(keys) == len(written) == len(samples) == len(labels):
            raise RunError(f"{file} holds arrays of different lengths")
        if len(size) != 1 or size[0] < max(len(keys), 1):
            raise RunError(f"{file} holds {len(keys)} keys of a queue of size {size.tolist()}")
        return QueueSnapshot(keys, written, samples, labels, int(size[0]))

    @property
    def drift(self) -> Arrays:
        """The staleness measured at this step; empty when none was measured."""
        if schema.DRIFT_FILE not in self.manifest["files"]:
            return {}
        return self.arrays(schema.DRIFT_FILE)

    def arrays(self, name: str) -> Arrays:
        """All arrays of one safetensors file; `RunError` when it is missing or fails its checksum."""
        entry = self.manifest["files"].get(name)
        if entry is None:
            raise RunError(f"step {self.step} of {self.run_id} has no {name}")
        data = read(self.path / name)
        if sha256(data) != entry["sha256"]:
            raise RunError(f"{name} of step {self.step} in {self.run_id} is damaged: its checksum differs")
        try:
            return load(data)
        except NO_ARRAYS as error:
            raise RunError(f"{name} of step {self.step} in {self.run_id} can't be read: {error}") from error

    @cached_property
    def _embeddings(self) -> Arrays:
        arrays = self.arrays(schema.EMBEDDINGS_FILE)
        rows = {len(array) if array.ndim == 2 else -1 for array in arrays.values()}
        if len(rows) != 1 or -1 in rows or not all(array.shape[1] for array in arrays.values()):
            raise RunError(
                f"{schema.EMBEDDINGS_FILE} of step {self.step} holds arrays of different lengths, or without columns"
            )
        return arrays

    def _embedding(self, name: str) -> np.ndarray:
        file = f"{schema.EMBEDDINGS_FILE} of step {self.step}"
        return _column(self._embeddings, name, file, dims=2, kinds="f")


class Run:
    """One run directory. `problem` is None, or the reason why it can't be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = schema.run_id(path)
        self.problem: str | None = None
        self.info: Mapping[str, Any] = {}
        self.status = RunStatus("failed")
        self._config: TrainConfig | None = None
        try:
            schema.check_folder(path)
            self.info = read_json(path / schema.RUN_FILE)
            self.status = RunStatus.from_dict(read_json(path / schema.STATUS_FILE))
            version = self.info.get("schema")
            if version != schema.SCHEMA_VERSION:
                raise RunError(
                    f"{schema.RUN_FILE} has schema {version!r}; this version reads {schema.SCHEMA_VERSION}"
                )
            config = self.info.get("config")
            if not isinstance(config, dict):
                raise RunError(f"{schema.RUN_FILE} holds no config")
            self._config = TrainConfig.from_dict(config)
        except (RunError, ConfigError, TypeError) as error:
            self.problem = str(error)

    @property
    def config(self) -> TrainConfig:
        """The settings of the run; `RunError` when they can't be read."""
        if self._config is None:
            raise RunError(f"run {self.id}: {self.problem}")
        return self._config

    @property
    def name(self) -> str:
        """What a person calls the run."""
        name = self.info.get("name")
        return name if isinstance(name, str) and name else self.id

    def facts(self, about: str) -> Mapping[str, Any]:
        """What run.json says about `dataset`, `source` or `seconds`; empty where it says nothing."""
        found = self.info.get(about)
        return found if isinstance(found, dict) else {}

    @property
    def origin(self) -> str:
        """The file that imported vectors came from; empty for a run that was trained."""
        return str(self.facts("source").get("file", ""))

    @property
    def sweep(self) -> str:
        """The tag shared by the runs of one sweep, or an empty string."""
        tag = self.info.get("sweep")
        return tag if isinstance(tag, str) else ""

    @property
    def created(self) -> str:
        """When the run was made (UTC, ISO 8601)."""
        return str(self.info.get("created", ""))

    @cached_property
    def steps(self) -> list[Checkpoint]:
        """The snapshots that can be read, in order; `damaged_steps` names the others."""
        return [step for step in self._scan.values() if isinstance(step, Checkpoint)]

    @cached_property
    def damaged_steps(self) -> dict[str, str]:
        """Folder name → reason, for each snapshot that can't be read."""
        return {name: reason for name, reason in self._scan.items() if isinstance(reason, str)}

    def step(self, number: int) -> Checkpoint:
        """The snapshot of one step; `RunError` naming those there are."""
        for checkpoint in self.steps:
            if checkpoint.step == number:
                return checkpoint
        there = ", ".join(str(c.step) for c in self.steps) or "none yet"
        raise RunError(f"run {self.id} has no readable step {number}; there are: {there}")

    def resume_state(self) -> Checkpoint | None:
        """The newest state that training can go on from, None when there is none; `RunError` when all are damaged."""
        damage: RunError | None = None
        for folder in sorted(self.path.glob(f"{schema.RESUME_DIR}/step-*"), reverse=True):
            match = schema.STEP_PATTERN.fullmatch(folder.name)
            if match is None:
                continue
            try:
                state = self._open_step(folder, int(match[1]))
                state.arrays(schema.STATE_FILE)  # compares the checksum
            except RunError as error:
                damage = damage or error
            else:
                return state
        if damage:
            folder = self.path / schema.RESUME_DIR
            raise RunError(f"the resume state is damaged: {damage}; without {folder} the run begins again")
        return None

    def history(self) -> dict[str, np.ndarray]:
        """Equally long arrays of the logged quantities; lines that can't be read are left out."""
        return History(self.path).read()

    @cached_property
    def eval_set(self) -> EvalSet:
        """The evaluation images; `RunError` when they can't be read."""
        path = self.path / schema.EVAL_FILE
        if sha256(read(path)) != self.info.get("eval_set_sha256"):
            raise RunError(f"{schema.EVAL_FILE} of {self.id} is damaged: its checksum differs")
        try:
            with safe_open(path, "numpy") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                names = json.loads((file.metadata() or {}).get("class_names", "[]"))
        except (*NO_ARRAYS, OSError, RecursionError) as error:
            raise RunError(f"{schema.EVAL_FILE} of {self.id} can't be read: {error}") from error
        file = f"{schema.EVAL_FILE} of {self.id}"
        images = _column(arrays, "thumbnails", file, dims=4, kinds="u")
        labels, ids = (_column(arrays, name, file, dims=1, kinds="i") for name in ("labels", "sample_ids"))
        if images.dtype != np.uint8 or not len(images) == len(labels) == len(ids):
            raise RunError(f"{file} needs N×H×W×C bytes with N labels and ids")
        if not isinstance(names, list):
            raise RunError(f"{schema.EVAL_FILE} of {self.id} lists its class names wrongly")
        called = None
        if schema.NAMES in arrays:
            called = schema.unpacked_names(_column(arrays, schema.NAMES, file, dims=1, kinds="u"))
            if len(called) != len(labels):
                raise RunError(
                    f"{schema.EVAL_FILE} of {self.id} names {len(called)} samples where there are {len(labels)}"
                )
        class_names = tuple(schema.readable(str(name)) for name in names)
        return EvalSet(images, labels.astype(np.int64), ids.astype(np.int64), class_names, called)

    @cached_property
    def _scan(self) -> dict[str, Checkpoint | str]:
        found: dict[int, tuple[str, Checkpoint | str]] = {}
        try:
            folders = list(self.path.iterdir())
        except OSError:
            folders = []
        for folder in folders:
            match = schema.STEP_PATTERN.fullmatch(folder.name)
            if match is None:
                continue
            try:
                found[int(match[1])] = folder.name, self._open_step(folder, int(match[1]))
            except RunError as error:
                found[int(match[1])] = folder.name, str(error)
        return {name: step for _, (name, step) in sorted(found.items())}

    def _open_step(self, folder: Path, number: int) -> Checkpoint:
        manifest = read_json(folder / schema.MANIFEST_FILE)
        files = manifest.get("files")
        if not isinstance(files, dict) or manifest.get("step") != number:
            raise RunError(f"{schema.MANIFEST_FILE} does not describe {folder.name}")
        for name, entry in files.items():
            if not schema.FILE_PATTERN.fullmatch(name):
                raise RunError(
                    f"{schema.MANIFEST_FILE} of {folder.name} lists {name[:99]!r}, which is no file's name"
                )
            if not isinstance(entry, dict) or not isinstance(entry.get("sha256"), str):
                raise RunError(f"{schema.MANIFEST_FILE} of {folder.name} lists {name!r} without a checksum")
            try:
                size = os.stat(f"{folder}/{name}").st_size
            except OSError as error:
                raise RunError(f"{name} of {folder.name} is missing") from error
            if size != entry.get("bytes"):
                raise RunError(
                    f"{name} of {folder.name} has {size} bytes where {entry.get('bytes')} were written"
                )
        metrics = dict(read_json(folder / schema.METRICS_FILE)) if schema.METRICS_FILE in files else {}
        for name, entry in metrics.items():
            if not isinstance(entry, dict) or "value" not in entry:
                raise RunError(f"{schema.METRICS_FILE} of {folder.name} gives {name!r} without a value")
            if not _is_number(entry["value"]):
                metrics[name] = {**entry, "value": None}
        return Checkpoint(folder, self.id, number, MappingProxyType(manifest), MappingProxyType(metrics))


class RunStore:
    """All runs below one folder, newest first. `MOCO_RUNS` or `checkpoints/` when no root is given."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root) if root is not None else schema.default_root()

    @property
    def problem(self) -> str | None:
        """Why the folder can't be listed; None when it can, or when there is none yet."""
        try:
            os.scandir(self.root).close()
        except FileNotFoundError:
            pass
        except OSError as error:
            return reason(error)
        return None

    def __iter__(self) -> Iterator[Run]:
        runs = [Run(folder) for folder in self._folders()]
        runs.sort(key=lambda run: run.id)
        runs.sort(key=lambda run: run.created, reverse=True)
        return iter(runs)

    def __getitem__(self, run_id: str) -> Run:
        """The run with this id; `KeyError` when there is none."""
        for folder in self._folders():
            if run_id in (folder.name, schema.run_id(folder)):
                return Run(folder)
        raise KeyError(f"there is no run {run_id!r} in {self.root}")

    def __contains__(self, run_id: str) -> bool:
        return any(run_id in (folder.name, schema.run_id(folder)) for folder in self._folders())

    def __len__(self) -> int:
        return len(self._folders())

    def _folders(self) -> list[Path]:
        """Sub-folders that hold a run.json, readable or not; hidden ones are nobody's runs."""
        try:
            entries = list(self.root.iterdir())
        except OSError:
            return []
        return [e for e in entries if not e.name.startswith(".") and _exists(e / schema.RUN_FILE)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _is_number(value: object) -> bool:
    """Whether a metric can have this value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _column(arrays: Mapping[str, np.ndarray], name: str, file: str, *, dims: int, kinds: str) -> np.ndarray:
    """One array of a file if it has `dims` dimensions and one of numpy's `kinds` of numbers; else `RunError`."""
    if name not in arrays:
        raise RunError(f"{file} lacks {name!r}; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    array = arrays[name]
    if array.ndim != dims or array.dtype.kind not in kinds:
        shape = "×".join(map(str, array.shape)) or "one number"
        raise RunError(
            f"{file} holds {name!r} as {array.dtype}, {shape}; it must be {KINDS[kinds]} in {dims} dimension"
            f"{'' if dims == 1 else 's'}"
        )
    return array
