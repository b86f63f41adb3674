"""The projection head beside a backbone, where a file holds one: MoCo's linear layer, or two of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torch import Tensor, nn

# Ends the prefix of MoCo's encoders, whose `fc` is no classifier.
ENCODER = re.compile(r"(^|\.)encoder_[qk]\.$")
OWN = re.compile(r"(^|\.)(query|key)\.$")  # what ours are called
LAST = re.compile(r"[^.]*\.$")


def find_head(tensors: Mapping[str, Tensor], prefix: str, features: int) -> tuple[str, nn.Sequential] | None:
    """The name in the file and the layers (B×F → B×D) of the head of the backbone at `prefix`; None without one.

    `fc` of MoCo v1, `fc.0` and `fc.2` of v2 with a ReLU between; a `head`, `projector` or `projection_head` of the
    same two layers beside the backbone (ours, solo-learn's, lightly's). A classifier is no head, nor are layers
    with batch norm between.
    """
    for name, layers in _places(tensors, prefix):
        head = nn.Sequential()
        width = features
        for layer in layers:
            weight, bias = tensors[f"{layer}.weight"], tensors.get(f"{layer}.bias")
            if weight.ndim != 2 or weight.shape[1] != width:
                break
            width = len(weight)
            linear = nn.Linear(weight.shape[1], width, bias=bias is not None)
            linear.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
            head.extend([nn.ReLU(), linear] if len(head) else [linear])
        else:
            return name, head
    return None


def _places(tensors: Mapping[str, Tensor], prefix: str) -> Iterator[tuple[str, list[str]]]:
    """Where a head may be: its name, and those of its layers."""
    beside = LAST.sub("", prefix)
    for name in (f"{prefix}fc", f"{beside}head", f"{beside}projector", f"{beside}projection_head.layers"):
        two = [f"{name}.0", f"{name}.2"]
        if {there.rpartition(".")[0] for there in tensors if there.startswith(f"{name}.")} == set(two):
            yield name, two
    for name, marked in ((f"{prefix}fc", ENCODER.search(prefix)), (f"{beside}head", OWN.search(beside))):
        if marked and f"{name}.weight" in tensors:
            yield name, [name]
