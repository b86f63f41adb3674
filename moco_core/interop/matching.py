"""Which tensors of a file are the weights of a backbone: found by their names and shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from moco_core.interop.architectures import CLASSIFIERS, COMMON, Build, Outline, builds, outline
from moco_core.interop.weights import Weights, WeightsError

COUNTER = "num_batches_tracked"  # of batch norm; not a weight, and absent in old files
TRANSFORMERS = re.compile(
    r"(patch_embeddings|embedder|encoder\.(layer|stages)\.\d+\.(attention|layers))\."
)  # in names of its models
SLOW = {"k", "key", "momentum", "teacher", "target", "ema"}  # words in the names of slow copies of an encoder


@dataclass(frozen=True)
class Match:
    """The tensors of a file below one prefix, beside what a backbone expects."""

    build: Build
    prefix: str  # ends with a dot, or is empty
    found: dict[str, str]  # the backbone's name → that in the file, where both have the same shape
    expected: int  # tensors that the backbone has, counters left out
    missing: tuple[str, ...]  # the backbone's names
    misshapen: tuple[str, ...]  # sentences
    strangers: tuple[str, ...]  # names of the file that a larger backbone of this kind would have
    others: tuple[str, ...]  # all other names below the prefix: heads and classifiers

    @property
    def whole(self) -> bool:
        """Whether these are the weights of this backbone, all of them and no larger one's."""
        return not (self.missing or self.misshapen or self.strangers)

    def state(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights under the backbone's names."""
        return {name: tensors[there] for name, there in self.found.items()}


def find_backbone(weights: Weights, arch: str, prefix: str = "") -> tuple[Match, list[str]]:
    """Where in a file the weights of `arch` are, and the other prefixes that would do as well.

    Of several, the encoder that is trained comes before its slow copy (key encoder, teacher, average), and then
    the shortest prefix; `prefix` names another. Raises `WeightsError` when none holds the whole backbone: with
    the one that comes closest, and another architecture where the file holds one that is known here.
    """
    matches = [match for build in builds(arch) for match in _matches(weights.tensors, build)]
    wanted = f"{prefix.rstrip('.')}." if prefix else ""
    if prefix:
        chosen = [match for match in matches if match.prefix == wanted]
        if not chosen:
            there = sorted({repr(match.prefix) for match in matches if match.whole})
            raise WeightsError(
                f"{weights.path} has nothing of {arch} under prefix {wanted!r}"
                + (f"; it has under {', '.join(there)}" if there else "")
            )
        matches = chosen
    whole = sorted((match for match in matches if match.whole), key=_rank)
    if not whole:
        raise WeightsError(_refusal(weights, arch, matches))
    return whole[0], sorted({match.prefix for match in whole[1:]} - {whole[0].prefix})


def suggestion(weights: Weights) -> str:
    """The name of an architecture whose weights the file holds, or nothing."""
    for name in COMMON:
        if any(match.whole for build in builds(name) for match in _matches(weights.tensors, build)):
            return name
    return ""


def _matches(tensors: Mapping[str, Tensor], build: Build) -> list[Match]:
    """A match for every prefix below which at least one tensor has a name that the backbone knows."""
    plan = outline(build)
    namings = _namings(plan)
    found: dict[tuple[int, str], dict[str, str]] = {}  # naming and prefix → names as in `Match.found`
    for there in tensors:
        starts = [0, *(i + 1 for i, letter in enumerate(there) if letter == ".")]
        for start in starts:
            for which, naming in enumerate(namings):
                name = naming.get(there[start:])
                if name is not None:
                    found.setdefault((which, there[:start]), {})[name] = there
    return [
        _match(tensors, build, plan, prefix, names, namings[which])
        for (which, prefix), names in found.items()
    ]


def _namings(plan: Outline) -> list[dict[str, str]]:
    """The backbone's names by what files call them: the same, or numbered as in a Sequential of its parts."""
    numbers = {name: str(number) for number, name in enumerate(plan.children)}
    numbered = {}
    for name in plan.shapes:
        first, dot, rest = name.partition(".")
        numbered[numbers.get(first, first) + dot + rest] = name
    return [{name: name for name in plan.shapes}, numbered]


def _match(
    tensors: Mapping[str, Tensor],
    build: Build,
    plan: Outline,
    prefix: str,
    names: dict[str, str],
    naming: Mapping[str, str],
) -> Match:
    fitting = {name: there for name, there in names.items() if tensors[there].shape == plan.shapes[name]}
    weights = [name for name in plan.shapes if not name.endswith(COUNTER)]
    misshapen = tuple(
        f"{names[name]} is {_shape(tensors[names[name]].shape)} where {_shape(plan.shapes[name])} is expected"
        for name in weights
        if name in names and name not in fitting
    )
    parts = {called.partition(".")[0] for called in naming} - set(CLASSIFIERS)
    taken = set(names.values())
    beside = [there for there in tensors if there.startswith(prefix) and there not in taken]
    strangers = [there for there in beside if there.removeprefix(prefix).partition(".")[0] in parts]
    return Match(
        build=build,
        prefix=prefix,
        found=fitting,
        expected=len(weights),
        missing=tuple(name for name in weights if name not in names),
        misshapen=misshapen,
        strangers=tuple(strangers),
        others=tuple(there for there in beside if there not in set(strangers)),
    )


def _rank(match: Match) -> tuple[bool, int]:
    return bool(SLOW & set(re.split(r"[._]", match.prefix))), len(match.prefix)


def _refusal(weights: Weights, arch: str, matches: list[Match]) -> str:
    other = suggestion(weights)
    hint = f"; they fit --arch {other}" if other else ""
    if any(map(TRANSFORMERS.search, weights.tensors)):
        hint = (
            "; these names are those of Hugging Face's transformers, which aren't read: timm has many of the same "
            "models, whose weights go with --arch timm:NAME"
        )
    if not any(map(_fitting, matches)):
        some = ", ".join(list(weights.tensors)[:3])
        return f"{weights.path} holds no weight of {arch}: its {len(weights.tensors)} tensors are {some}, …{hint}"
    best = max(matches, key=lambda match: (_fitting(match), -len(match.strangers)))
    problems = [
        f"{len(best.missing)} are missing, as {best.missing[0]}" if best.missing else "",
        best.misshapen[0] if best.misshapen else "",
        f"{len(best.strangers)} belong to another, as {best.strangers[0]}" if best.strangers else "",
    ]
    return (
        f"{weights.path} doesn't hold the weights of {arch}: closest is prefix {best.prefix!r} with "
        f"{_fitting(best)} of {best.expected} tensors ({'; '.join(filter(None, problems))}){hint}"
    )


def _fitting(match: Match) -> int:
    return sum(not name.endswith(COUNTER) for name in match.found)


def _shape(shape: torch.Size) -> str:
    return "×".join(map(str, shape)) or "a single number"
