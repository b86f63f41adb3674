"""All that a run needs to go on bit for bit: weights, dictionary and optimizer, as flat arrays.

Batches and augmentation are pure functions of (seed, step), so there is no random state to keep.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from moco_core.contrast.method import Method
from moco_core.runs.schema import RunError
from moco_core.training.snapshots import weights

BUFFER = "momentum_buffer"


def pack(method: Method, optimizer: torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """Arrays named `query.*`, `key.*`, `dictionary.*` and `optimizer.<parameter number>`."""
    arrays = weights(method)
    arrays |= {f"dictionary.{name}": t.cpu().numpy() for name, t in method.dictionary_state().items()}
    for number, parameter in enumerate(_parameters(optimizer)):
        buffer = optimizer.state[parameter].get(BUFFER)
        if buffer is not None:
            arrays[f"optimizer.{number}"] = buffer.cpu().numpy()
    return arrays


def unpack(arrays: dict[str, np.ndarray], method: Method, optimizer: torch.optim.Optimizer) -> None:
    """Put the arrays of `pack` back in place; `RunError` when they belong to another network."""
    groups: dict[str, dict[str, Tensor]] = {"query": {}, "key": {}, "dictionary": {}, "optimizer": {}}
    for name, array in arrays.items():
        kind, _, rest = name.partition(".")
        groups.setdefault(kind, {})[rest] = torch.from_numpy(array.copy())
    try:
        method.query.load_state_dict(groups["query"])
        if method.key is not method.query:
            method.key.load_state_dict(groups["key"])
        method.load_dictionary_state(groups["dictionary"])
    except (RuntimeError, KeyError, ValueError) as error:
        raise RunError(f"the resume state doesn't fit the run's encoder: {error}") from error
    parameters = _parameters(optimizer)
    for number, buffer in groups["optimizer"].items():
        parameter = parameters[int(number)]
        laid_out_alike = torch.empty_like(parameter)  # the fused step reads both in the order of memory
        optimizer.state[parameter][BUFFER] = laid_out_alike.copy_(buffer)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
