"""A step of a run as files that other programs open: Parquet, or TensorBoard's projector."""

from __future__ import annotations

import glob
import io
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from moco_core.config import ConfigError, some
from moco_core.interop.projector_files import FILES, write_projector
from moco_core.runs import Checkpoint, EvalSet, Run, RunError, schema
from moco_core.runs.files import clear_abandoned, fsync_dir, make_folder, naming
from moco_core.runs.schema import step_name

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

FORMATS = ("parquet", "projector")
LAYERS = ("query", "features", "key", "second_view")  # in the order of the table's columns
METADATA = "moco_lens."  # before the names of what a Parquet file says about its origin


def export_step(
    run: Run,
    checkpoint: Checkpoint,
    to: str,
    *,
    layer: str | None = None,
    out: Path | None = None,
    force: bool = False,
) -> Path:
    """Write one step to `out`, which appears whole or not at all; returns its path.

    `to` is `parquet` (a file) or `projector` (a folder). Of the arrays the one called `layer` is written; without
    it the table gets all that there are, the projector the query embeddings. Without `out` the name is made from
    run and step, in the working directory. Raises `ConfigError` when `out` is there already and `force` doesn't
    allow replacing it, `RunError` when the run lacks what is asked for, `OSError` when nothing can be written.
    """
    if to not in FORMATS:
        raise ConfigError(f"to must be one of {', '.join(FORMATS)}; got {to!r}")
    if out is None:
        ending = ".parquet" if to == "parquet" else "-projector"
        out = Path(f"{export_name(run, checkpoint)}{f'-{layer}' if layer else ''}{ending}")
    _refuse_to_lose(out, folder=to == "projector", force=force)
    if to == "parquet":
        content = parquet(run, checkpoint, layer)
        with _in_place_of(out) as temporary:
            temporary.write_bytes(content)
    else:
        chosen = layer or "query"
        vectors, images = _arrays(run, checkpoint, chosen)[chosen], run.eval_set
        with _in_place_of(out) as temporary:
            temporary.mkdir()
            write_projector(temporary, vectors, images, f"{export_name(run, checkpoint)}-{chosen}")
    return out


def export_name(run: Run, checkpoint: Checkpoint) -> str:
    """What a step is called outside its run, e.g. `digits-step-00000400`."""
    return f"{run.id}-{step_name(checkpoint.step)}"


def parquet(run: Run, checkpoint: Checkpoint, layer: str | None = None) -> bytes:
    """`table` as a Parquet file. Raises `RunError` as it does."""
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table(run, checkpoint, layer), buffer, compression="zstd")
    return buffer.getvalue()


def table(run: Run, checkpoint: Checkpoint, layer: str | None = None) -> pa.Table:
    """One row an evaluation image: sample_id, name where there is one, label (−1 unknown), class, and vectors.

    Vectors are lists of float32 of one length, in a column for each array of the step, or for `layer` alone. The
    table's metadata give run id, run name, step and checksum. Raises `RunError` when run or array can't be read.
    """
    import pyarrow as pa

    images = run.eval_set
    columns: dict[str, pa.Array] = {"sample_id": pa.array(images.sample_ids)}
    if images.names is not None:
        columns["name"] = pa.array(images.names, pa.string())
    columns["label"] = pa.array(images.labels)
    columns["class"] = pa.array([_class_of(images, label) for label in images.labels.tolist()], pa.string())
    for name, rows in _arrays(run, checkpoint, layer).items():
        values = pa.array(rows.ravel(), pa.float32())
        columns[name] = pa.FixedSizeListArray.from_arrays(values, rows.shape[1])
    origin = {
        "run_id": run.id,
        "run_name": run.name,
        "step": str(checkpoint.step),
        "checksum": checkpoint.checksum,
    }
    return pa.table(columns).replace_schema_metadata({METADATA + key: text for key, text in origin.items()})


def _class_of(images: EvalSet, label: int) -> str | None:
    return images.name_of(label) if label >= 0 else None


def _arrays(run: Run, checkpoint: Checkpoint, layer: str | None) -> dict[str, np.ndarray]:
    """The step's arrays, each with a row for every evaluation image; `RunError` when there are none such."""
    if layer is not None and layer not in LAYERS:
        raise ConfigError(f"layer must be one of {', '.join(LAYERS)}; got {layer!r}")
    stored = checkpoint.arrays(schema.EMBEDDINGS_FILE)
    found = {name: getattr(checkpoint, name) for name in ([layer] if layer else LAYERS) if name in stored}
    if not found:
        raise RunError(
            f"step {checkpoint.step} of {run.id} has no {layer or 'query'}; it has {', '.join(sorted(stored))}"
        )
    for name, rows in found.items():
        if len(rows) != len(run.eval_set):
            raise RunError(
                f"{name} of step {checkpoint.step} in {run.id} has shape {rows.shape} "
                f"for {len(run.eval_set)} images"
            )
    return found


def _refuse_to_lose(out: Path, *, folder: bool, force: bool) -> None:
    """Raise `ConfigError` unless writing to `out` loses nothing, or only an earlier export that may go."""
    if not os.path.lexists(out):
        return
    if not force:
        raise ConfigError(f"{out} is there already: --force replaces it, --out PATH writes elsewhere")
    if not (out.is_file() or out.is_dir()):  # a device, a pipe, a link to nowhere
        raise ConfigError(f"{out} is neither a file nor a folder: choose another --out")
    if folder and not out.is_dir():
        raise ConfigError(f"{out} is a file, and the projector needs a folder: choose another --out")
    if not folder and out.is_dir():
        raise ConfigError(f"{out} is a folder, and Parquet is one file: choose another --out")
    others = sorted(entry.name for entry in out.iterdir() if entry.name not in FILES) if folder else []
    if others:
        raise ConfigError(f"{out} holds what no export wrote ({some(others)}): choose another --out")


@contextmanager
def _in_place_of(out: Path) -> Iterator[Path]:
    """A hidden path beside `out` to write to, moved there at the end; when something fails, `out` stays as it was.

    A link stays, and what it leads to is replaced.
    """
    out = Path(os.path.realpath(out))
    folder = out.parent
    make_folder(folder)
    temporary, old = (folder / f".{out.name}.{secrets.token_hex(4)}" for _ in range(2))
    try:
        with naming(out):
            yield temporary
            if out.is_dir():  # a folder can't be replaced in one move, so the old one steps aside
                os.rename(out, old)
            os.replace(temporary, out)
            fsync_dir(folder)
        clear_abandoned(folder, glob.escape(out.name))
    finally:
        if old.exists() and not out.exists():
            os.rename(old, out)
        for leftover in (temporary, old):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)
