"""Encoder weights from a file, read without running any code that is in it."""

from __future__ import annotations

import hashlib
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.serialization import safe_globals

from moco_core.config import some
from moco_core.interop.problem import VectorsError

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
DEEPEST = 6  # dictionaries within dictionaries; a damaged file may hold one that contains itself
ACCEPTED = (
    "a whole file is accepted that torch.save or safetensors wrote, such as a state dict or a checkpoint"
)

# What training frameworks store beside the weights. None of it is needed, so each becomes an `_Unused`: that the
# names are known here runs nothing of the packages they come from.
BESIDE_WEIGHTS = (
    "argparse.Namespace",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "omegaconf.base.ContainerMetadata",
    "omegaconf.base.Metadata",
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.listconfig.ListConfig",
    "omegaconf.nodes.AnyNode",
    "omegaconf.nodes.BooleanNode",
    "omegaconf.nodes.FloatNode",
    "omegaconf.nodes.IntegerNode",
    "omegaconf.nodes.StringNode",
    "typing.Any",
    "builtins.dict",
    "builtins.list",
    "builtins.int",
    "builtins.float",
    "builtins.str",
    "builtins.bool",
)
PROGRAMS = {  # the last part of a name in the archive → what wrote it, and how its weights are got out
    "constants.pkl": ("TorchScript (torch.jit.save)", "torch.jit.load(path).state_dict()"),
    "archive_format": ("torch.export", "torch.export.load(path).state_dict"),
}
DICTIONARIES = (  # kinds that become plain ones
    "collections.defaultdict",
    "pytorch_lightning.utilities.parsing.AttributeDict",
    "lightning.pytorch.utilities.parsing.AttributeDict",
    "lightning_fabric.utilities.data.AttributeDict",
    "lightning.fabric.utilities.data.AttributeDict",
)


class WeightsError(VectorsError):
    """A file of weights can't be used; the message says why and what to do, in one sentence."""


@dataclass(frozen=True)
class Weights:
    """Every tensor of a file by its full name, dictionaries within dictionaries joined by dots."""

    path: Path
    format: str  # PyTorch or safetensors
    sha256: str
    tensors: dict[str, Tensor]


def read_weights(path: Path) -> Weights:
    """Read a file that `torch.save` or safetensors wrote; its content, not its name, says which.

    Raises `WeightsError` for a damaged file, for one without tensors, and for one that only running its code
    could read; `OSError` when it can't be opened.
    """
    with path.open("rb") as file:
        start = file.read(9)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    kind = "safetensors" if start[8:] == b"{" else "PyTorch"
    content = _safetensors(path) if kind == "safetensors" else _torch(path)
    tensors = dict(_flat(content, ""))
    if not tensors:
        keys = [str(key) for key in content] if isinstance(content, dict) else []
        raise WeightsError(
            f"{path} holds no named tensors but {f'keys {some(keys)}' if keys else f'a {type(content).__name__}'}: "
            "save a state dict, as in torch.save(model.state_dict(), 'weights.pt')"
        )
    return Weights(path, kind, digest, tensors)


def plain(tensor: Tensor) -> bool:
    """Whether a tensor can be computed with as it is: dense, of floats, not quantised."""
    return tensor.dtype in FLOATS and tensor.layout is torch.strided and not tensor.is_meta


def form(tensor: Tensor) -> str:
    """What kind of tensor it is, in words."""
    kind = str(tensor.dtype).removeprefix("torch.")
    sparse = "" if tensor.layout is torch.strided else ", sparse"
    return kind + sparse + (", without values" if tensor.is_meta else "")


class _Unused:
    """Stands for an object that isn't needed: takes whatever it is given and does nothing."""

    def __new__(cls, *args: object) -> _Unused:
        return super().__new__(cls)

    def __init__(self, *args: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class _Dictionary:
    """Stands for another kind of dictionary: what is made is a plain one."""

    def __new__(cls, *args: object) -> dict[Any, Any]:  # type: ignore[misc]
        return {}


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise WeightsError(f"{path} is damaged: {ACCEPTED}") from error


def _torch(path: Path) -> Any:
    _refuse_program(path)
    try:
        stands_for: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
            *((_Unused, name) for name in BESIDE_WEIGHTS),
            *((_Dictionary, name) for name in DICTIONARIES),
        ]
        with safe_globals(stands_for), warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of pickles that torch didn't write: they are read, or refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        names = _code_in(path, error)
        if names:
            raise WeightsError(
                f"{path} holds more than tensors ({some(names)}), and reading that could run code that is in the file: "
                "where the model is at hand, save its weights alone, torch.save(model.state_dict(), 'weights.pt')"
            ) from error
        raise WeightsError(f"{path} is damaged, or holds no weights: {ACCEPTED}") from error


def _refuse_program(path: Path) -> None:
    """Raise `WeightsError` for a model that was saved with its code."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.rpartition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return  # torch says what it is
    for member, (writer, weights) in PROGRAMS.items():
        if member in members:
            raise WeightsError(
                f"{path} is a program of {writer}, which holds code beside the weights and is never run here: where "
                f"you trust it, save its weights alone, torch.save({weights}, 'weights.pt')"
            )


def _code_in(path: Path, error: Exception) -> list[str]:
    """Names of the classes and functions that stand in the way."""
    try:
        names = set(torch.serialization.get_unsafe_globals_in_checkpoint(str(path)))
    except Exception:  # an old format, of which the error names the first
        names = set()
    known = {name for name in names if name not in (*BESIDE_WEIGHTS, *DICTIONARIES)}
    return sorted(known) or re.findall(r"GLOBAL ([\w.]+)", str(error))[:1]


def _flat(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor) and name:
        yield name, value.detach()
    elif isinstance(value, dict) and depth < DEEPEST:
        for key, below in value.items():
            if isinstance(key, str):
                yield from _flat(below, f"{name}.{key}" if name else key, depth + 1)
