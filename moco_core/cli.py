"""The command line: `python -m moco_core VERB`. Exit codes: 0 finished, 1 failed, 2 bad arguments,
129, 130 and 143 stopped by a signal after a final checkpoint was written."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg

from moco_core.config import ConfigError, TrainConfig, default, field_hints, nearest, variants
from moco_core.interop.problem import VectorsError
from moco_core.jobs import JobError, SlurmDesk, slurm, sweep_tag
from moco_core.paper import RECIPES
from moco_core.runs import Run, RunError, RunStore
from moco_core.runs.files import reason
from moco_core.runs.schema import default_root
from moco_core.runs.verify import damage

Root = Annotated[
    Path | None,
    arg(name="runs", metavar="PATH", help="Folder of runs; else the variable MOCO_RUNS, else checkpoints/."),
]
Projected = Annotated[
    bool, arg(help="Compute the newest projection at the end, so that the run opens at once.")
]
Launcher = Annotated[
    Literal["local", "slurm"],
    arg(help="Where to train: in this process, or as SLURM jobs, which needs submitit and returns at once."),
]
SlurmWords = Annotated[
    tuple[str, ...],
    arg(
        name="slurm",
        help="Options of the SLURM job, NAME=VALUE each, such as partition=gpu nodes=2 tasks_per_node=8 "
        "gpus_per_node=8. Unless given, timeout_min is a day, and signal_delay_s, how long before its end a "
        f"checkpoint is asked for, 90. Known are {', '.join(slurm.NAMES)}.",
    ),
]
Flags = Annotated[TrainConfig, arg(name="")]


def main() -> None:
    """Run the verb named on the command line."""
    # Threads that wait for each other must sleep: beside a busy program, spinning slows training tenfold.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    verbs: dict[str, Callable[..., Any]] = {
        "train": functools.partial(train, config=_starting_point(sys.argv[1:])),
        "sweep": sweep,
        "runs": list_runs,
        "verify": verify,
        "project": project,
        "import": import_vectors,
        "embed": embed,
        "export": export,
    }
    try:
        tyro.extras.subcommand_cli_from_dict(verbs, prog="python -m moco_core", config=(OmitArgPrefixes,))
        sys.stdout.flush()
    except ConfigError as error:
        _exit(2, str(error))
    except (RunError, JobError, VectorsError) as error:
        _exit(1, str(error))
    except KeyboardInterrupt:
        _exit(130, "stopped")
    except BrokenPipeError:  # whoever read the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains as it ends
        sys.exit(141)  # as if the signal had been left to do its work
    except OSError as error:  # a folder that can't be made or read, a full disk
        _exit(1, reason(error))


def train(
    config: Flags,
    root: Root = None,
    resume: Annotated[str, arg(help="Id of a stopped, failed or queued run to go on with.")] = "",
    stop_after: Annotated[
        int, arg(help="Write a checkpoint and stop after this step, to be resumed later; 0 runs to the end.")
    ] = 0,
    project: Projected = True,
    preset: Annotated[
        Literal["none", "moco-v1-imagenet", "moco-v2-imagenet", "moco-cifar10"],
        arg(help="The authors' settings as defaults; flags beside it still count."),
    ] = "none",
    launcher: Launcher = "local",
    slurm_words: SlurmWords = (),
) -> None:
    """Train one run; the last line printed is its directory."""
    if preset.endswith("imagenet") and config.dataset == default("dataset") and not resume:
        raise ConfigError(f"preset {preset} needs the images: add --dataset folder:PATH")
    if stop_after < 0:
        raise ConfigError(f"stop_after must be at least 0, got {stop_after}")
    folder = root or default_root()
    options = _slurm_options(launcher, slurm_words)
    if resume:
        _refuse_changes(config, _run(folder, resume))
    if launcher == "slurm":
        if stop_after:
            raise ConfigError(
                "stop_after is for runs of this process; a SLURM job trains to the end or its time limit"
            )
        if resume:
            slurm.resume(folder, resume, options, project)
        run_ids = [resume] if resume else slurm.queue([config], folder, options=options, project=project)
        _say_submitted(folder, run_ids)
        return
    from moco_core.training.command import project_newest, train_new, train_resumed

    outcome = train_resumed(folder, resume, stop_after) if resume else train_new(config, folder, stop_after)
    if outcome.leads:
        print(outcome.path, flush=True)  # first: the projection can be ended at once, and takes its time
        if project:
            project_newest(outcome)
    _exit_code(outcome.exit_code)


def sweep(
    config: Flags,
    over: Annotated[str, arg(help="The field that varies.")] = "momentum",
    values: Annotated[tuple[str, ...], arg(help="Its values, one run each.")] = ("0", "0.9", "0.99", "0.999"),
    seeds: Annotated[int, arg(help="Runs at each value, with seeds counting up from --seed.")] = 1,
    tag: Annotated[str, arg(help="What ties the runs together; empty makes one from the field.")] = "",
    project: Projected = True,
    root: Root = None,
    launcher: Launcher = "local",
    slurm_words: SlurmWords = (),
) -> None:
    """Train the same run at several settings of one field, tagged together, and print the results."""
    over = over.replace("-", "_")  # as its flag is spelled
    configs = _variants(config, over, values, seeds)
    folder = root or default_root()
    options = _slurm_options(launcher, slurm_words)
    tag = tag or sweep_tag(folder, over)
    if launcher == "slurm":
        _say_submitted(folder, slurm.queue(configs, folder, tag, options=options, project=project))
        return
    from moco_core.training.command import train_sweep

    _exit_code(train_sweep(configs, over, folder, tag, project))


def list_runs(
    root: Root = None,
    as_json: Annotated[bool, arg(name="json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the runs with their state and newest metrics."""
    runs = list(RunStore(_existing(root)))
    if as_json:
        print(json.dumps([_summary(run) for run in runs], indent=1))
        return
    from moco_core.tables import runs_table

    runs_table(runs)


def verify(runs: Positional[tuple[str, ...]] = (), root: Root = None) -> None:
    """Compare every file with its checksum; exit code 1 when anything is damaged. All runs when none is named."""
    folder = _existing(root)
    chosen = [_run(folder, run_id) for run_id in runs] or list(RunStore(folder))
    sentences = [sentence for run in chosen for sentence in damage(run)]
    for sentence in sentences:
        print(sentence)
    print(f"{_counted(len(chosen), 'run')} checked, {_counted(len(sentences), 'damaged file')}")
    _exit_code(1 if sentences else 0)


def project(
    run: Positional[str],
    aligned: Annotated[bool, arg(help="All steps together, points kept in place from step to step.")] = False,
    root: Root = None,
) -> None:
    """Compute and store the projections of a run's steps, so that viewing them needs no wait."""
    from moco_core.projections import precompute

    precompute(_run(_existing(root), run), aligned=aligned)


def import_vectors(
    file: Positional[
        Annotated[Path, arg(help="The vectors: .npy, .npz, .parquet, .csv, .tsv or .safetensors.")]
    ],
    labels: Annotated[
        str,
        arg(
            metavar="FILE|COLUMN",
            help="Classes: a column, or a file with one row a vector; 'none' takes none.",
        ),
    ] = "",
    images: Annotated[
        str,
        arg(
            metavar="DIR|COLUMN",
            help="Pictures: a column of paths relative to the file, or a folder, matched by name or else by order.",
        ),
    ] = "",
    names: Annotated[
        str, arg(metavar="COLUMN", help="What the samples are called: a column; 'none' takes none.")
    ] = "",
    columns: Annotated[
        tuple[str, ...],
        arg(help="The array, or the columns of a table, that hold the vectors; found when not given."),
    ] = (),
    second: Annotated[
        str, arg(metavar="FILE", help="The same samples seen another way, row by row: positive pairs.")
    ] = "",
    drop_bad: Annotated[
        bool, arg(help="Leave out rows that are zero or not finite instead of refusing.")
    ] = False,
    name: Annotated[str, arg(help="What to call the run; the file's name when empty.")] = "",
    root: Root = None,
) -> None:
    """Make a run of a file of vectors, for every page to show; the last line printed is its directory."""
    from moco_core.interop.imported import write_imported
    from moco_core.interop.vectors import Choices, read_vectors

    found = read_vectors(file, Choices(columns, labels, names, images, second, drop_bad))
    for sentence in found.sentences:
        print(sentence, file=sys.stderr)
    print(write_imported(root or default_root(), found.vectors, name=name or file.stem, source=found.source))


def embed(
    weights: Annotated[
        Path, arg(metavar="FILE", help="A state dict or checkpoint: PyTorch's format, or safetensors.")
    ],
    images: Annotated[
        Path, arg(metavar="DIR", help="Images: one sub-folder a class, or one flat folder; any size.")
    ],
    arch: Annotated[
        str,
        arg(
            help="small-cnn, a classification model of torchvision such as resnet50 or vit_b_16, or timm:NAME. Weights "
            "of a run that was trained here bring their own."
        ),
    ] = "",
    prefix: Annotated[
        str,
        arg(help="Of the weights' names in the file; found by itself, unless several encoders are there."),
    ] = "",
    image_size: Annotated[
        int,
        arg(
            help="Side in pixels of what the encoder sees: the middle seven eighths of the resized image. 0 stands for "
            "224, or for the run's own."
        ),
    ] = 0,
    mean: Annotated[
        tuple[float, ...], arg(help="Subtracted from values in [0, 1], by channel; ImageNet's unless given.")
    ] = (),
    std: Annotated[
        tuple[float, ...], arg(help="What values are then divided by; ImageNet's unless given.")
    ] = (),
    limit: Annotated[int, arg(help="Images, at most: the same share of every class.")] = 10_000,
    batch_size: Annotated[int, arg(help="Images that are encoded at a time.")] = 64,
    seed: Annotated[int, arg(help="Fixes which images are taken and how their second views look.")] = 0,
    device: Annotated[str, arg(help="auto (a GPU when there is one), cpu, cuda, cuda:N or mps.")] = "auto",
    name: Annotated[str, arg(help="What to call the run; empty makes a name from file and folder.")] = "",
    root: Root = None,
) -> None:
    """Run an encoder from elsewhere over a folder of images; the last line printed is the run's directory."""
    from moco_core.interop.embed import embed_folder
    from moco_core.training.device import memory_ran_out, pick_device

    try:
        path = embed_folder(
            root or default_root(),
            weights,
            images,
            arch=arch,
            prefix=prefix,
            image_size=image_size,
            mean=mean,
            std=std,
            limit=limit,
            batch_size=batch_size,
            seed=seed,
            name=name,
            device=pick_device(device),
        )
    except Exception as error:
        if memory_ran_out(error):
            raise RunError("out of memory: lower batch_size, image_size or limit") from error
        raise
    print(path)


def export(
    run: Positional[Annotated[str, arg(metavar="RUN_ID", help="The run, as `runs` lists it.")]],
    step: Annotated[int | None, arg(help="The step to write; the newest unless given.")] = None,
    to: Annotated[
        Literal["parquet", "projector"],
        arg(help="A table, or a folder for tensorboard --logdir and projector.tensorflow.org."),
    ] = "parquet",
    layer: Annotated[
        Literal["query", "features"] | None,
        arg(help="Which vectors; all in Parquet and the query embeddings for the projector unless given."),
    ] = None,
    out: Annotated[
        Path | None,
        arg(metavar="PATH", help="File or folder to write; named after run and step unless given."),
    ] = None,
    force: Annotated[bool, arg(help="Replace what an earlier export wrote.")] = False,
    root: Root = None,
) -> None:
    """Write the vectors of one step as Parquet or as TensorBoard projector files; prints the path."""
    from moco_core.interop.export import export_step

    found = _run(_existing(root), run)
    if found.problem is not None:
        raise RunError(f"run {run}: {found.problem}")
    if step is None and not found.steps:
        raise RunError(f"run {run} has no snapshot that can be read yet")
    checkpoint = found.steps[-1] if step is None else found.step(step)
    print(export_step(found, checkpoint, to, layer=layer, out=out, force=force))


def _existing(root: Path | None) -> Path:
    """The runs root; ConfigError when there is no such folder, or none that can be read."""
    folder = root or default_root()
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    if unlisted := RunStore(folder).problem:
        raise ConfigError(f"the folder of runs can't be read: {unlisted}")
    return folder


def _starting_point(words: Sequence[str]) -> TrainConfig:
    """The defaults of the flags: those of the preset that is among the words, which tyro checks later."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--preset", nargs="?")
    preset = parser.parse_known_args(words)[0].preset
    return TrainConfig(**RECIPES.get(preset, {}))


def _variants(config: TrainConfig, over: str, values: tuple[str, ...], seeds: int) -> list[TrainConfig]:
    """One config for each value and seed; all are checked before the first is trained."""
    hints = field_hints()
    if over not in hints or over in ("name", "seed"):
        choices = [name for name in hints if name not in ("name", "seed")]
        raise ConfigError(f"over must be a training setting, got {over!r}{nearest(over, choices)}")
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, got {seeds}")
    if not values:
        raise ConfigError(f"values must name at least one value of {over}")
    kind = hints[over].__origin__
    parsed: list[Any] = []
    for value in values:
        try:
            parsed.append(value.lower() in ("true", "yes", "1") if kind is bool else kind(value))
        except ValueError as error:
            raise ConfigError(f"values for {over} must be of type {kind.__name__}, got {value!r}") from error
    return [
        replace(one, seed=config.seed + i) for one in variants(config, over, parsed) for i in range(seeds)
    ]


def _refuse_changes(config: TrainConfig, run: Run) -> None:
    for name, value in config.to_dict().items():
        if value not in (default(name), getattr(run.config, name)):
            kept = getattr(run.config, name)
            raise ConfigError(
                f"a resumed run keeps its own settings: {name} is {kept!r} and can't become {value!r}"
            )


def _slurm_options(launcher: str, words: Sequence[str]) -> dict[str, Any]:
    if words and launcher != "slurm":
        raise ConfigError("--slurm gives options of a SLURM job: add --launcher slurm")
    return slurm.slurm_options(words)


def _say_submitted(root: Path, run_ids: Sequence[str]) -> None:
    """Job ids for people, on stderr; run directories for scripts."""
    desk = SlurmDesk(root)
    for run_id in run_ids:
        job = desk.job(run_id)
        if job is not None:
            print(f"{run_id}: {job}", file=sys.stderr)
        print(root / run_id)


def _run(root: Path, run_id: str) -> Run:
    store = RunStore(root)
    if run_id not in store:
        raise ConfigError(f"there is no run {run_id!r} in {root}{nearest(run_id, [run.id for run in store])}")
    return store[run_id]


def _summary(run: Run) -> dict[str, object]:
    newest = run.steps[-1].metrics if run.steps else {}
    return {
        "id": run.id,
        "name": run.name,
        "sweep": run.sweep,
        "state": run.status.state,
        "step": run.status.step,
        "total_steps": run.status.total_steps,
        "problem": run.problem,
        "config": None if run.problem else run.config.to_dict(),
        "source": run.info.get("source"),
        "metrics": {name: dict(entry) for name, entry in newest.items()},
    }


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _exit(code: int, sentence: str) -> NoReturn:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(code)


def _exit_code(code: int) -> None:
    if code:
        sys.exit(code)
