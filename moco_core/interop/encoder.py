"""An encoder from elsewhere, in evaluation mode: its weights in an architecture that they fill completely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from moco_core.config import ConfigError, some
from moco_core.interop.heads import find_head
from moco_core.interop.matching import find_backbone, suggestion
from moco_core.interop.weights import Weights, WeightsError, form, plain


@dataclass(frozen=True)
class Loaded:
    """A backbone with the weights of a file, and the projection head beside it."""

    backbone: nn.Module  # B×C×H×W → B×F, or B×F×1×1
    head: nn.Module | None  # B×F → B×D
    channels: int  # C
    facts: dict[str, Any]  # what was found where, for run.json
    sentence: str  # the same for people

    def to(self, device: torch.device) -> Loaded:
        """The same encoder; its modules move to `device`."""
        for module in filter(None, (self.backbone, self.head)):
            module.to(device)
        return self

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features B×F and projections B×D, which without a head are the features."""
        features = self.backbone(images).flatten(1)
        return features, features if self.head is None else self.head(features)


def load_encoder(weights: Weights, arch: str, prefix: str, image_size: int) -> Loaded:
    """Fill the backbone called `arch` with the weights of a file (see `find_backbone` for `prefix`).

    Raises `ConfigError` for an unknown architecture, `WeightsError` when the file doesn't hold it whole and finite,
    and when it takes no images of `image_size` pixels.
    """
    if not arch:
        likely = suggestion(weights)
        raise ConfigError(
            f"--arch must name the architecture of {weights.path.name}"
            + (f"; its weights fit --arch {likely}" if likely else ", such as --arch resnet50")
        )
    match, others = find_backbone(weights, arch, prefix)
    state = match.state(weights.tensors)
    backbone = match.build()
    floats = {
        n: state[n] for n, own in backbone.state_dict().items() if n in state and own.is_floating_point()
    }
    odd = [name for name, tensor in floats.items() if not plain(tensor)]
    if odd:
        raise WeightsError(
            f"{weights.path} holds {len(odd)} tensors in a form that isn't read ({odd[0]} is {form(floats[odd[0]])}): "
            f"{arch} takes dense ones of floats, of 16, 32 or 64 bits each"
        )
    broken = [name for name, tensor in floats.items() if not tensor.isfinite().all()]
    if broken:
        raise WeightsError(
            f"{weights.path} holds weights that are not finite, in {len(broken)} of its tensors ({some(broken)}): its "
            "training has broken down"
        )
    backbone.load_state_dict(state, strict=False)  # all but counters is there
    backbone.eval()
    channels = next((m.in_channels for m in backbone.modules() if isinstance(m, nn.Conv2d)), 3)
    try:
        with torch.inference_mode():
            width = backbone(torch.zeros(1, channels, image_size, image_size)).flatten(1).shape[1]
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WeightsError(f"{arch} takes no images of {image_size} pixels: {reason}") from error
    found = find_head({n: t for n, t in weights.tensors.items() if plain(t)}, match.prefix, width)
    name, head = found or ("", None)
    left = [there for there in match.others if not (name and there.startswith(f"{name}."))]
    dim = width if head is None else head[-1].out_features
    facts = {
        "arch": arch,
        "prefix": match.prefix,
        "matched": match.expected,
        "missing": 0,
        "unexpected": len(left),
        "head": name,
        "features": width,
        "dim": dim,
    }
    where = f"under prefix {match.prefix!r}" if match.prefix else "at its top level"
    sentence = (
        f"{weights.path.name}: all {match.expected} tensors of {arch} {where}, "
        + (f"head {name!r} ({width} → {dim})" if name else f"no projection head ({width} features)")
        + (f"; {len(left)} others left aside ({some(left)})" if left else "")
        + (f"; --prefix also takes {some(others)}" if others else "")
    )
    return Loaded(backbone, None if head is None else head.eval(), channels, facts, sentence)
