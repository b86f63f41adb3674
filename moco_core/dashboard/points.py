"""What explorers draw: points that stand for samples, and what their colours mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from moco_core.dashboard.packs import Pack, pack
from moco_core.dashboard.palette import DIVERGING, NEUTRAL, SEQUENTIAL_STOPS, class_colour, class_symbol

Array = np.ndarray

UNKNOWN = 2**16 - 1  # code of a class that is not known, on its way to the browser


@dataclass(frozen=True)
class Points:
    """P points at S frames (steps) of an animation; one frame where there is none. Sorted by kind."""

    frames: Array  # S×P×dim float, dim 2 or 3
    samples: Array  # P, the row of the evaluation set that a point stands for, −1 for none
    axes: tuple[str, ...]  # dim titles
    kinds: Array | None = None  # P: 0 query, 1 key, 2 queue, ascending; all queries when None
    fade: Array | None = None  # P opacities in (0, 1]
    frame_names: tuple[str, ...] = ("",)  # S

    @cached_property
    def packed(self) -> Pack:
        """These points as the browser takes them."""
        count = len(self.samples)
        kinds = np.zeros(count, np.uint8) if self.kinds is None else self.kinds.astype(np.uint8)
        frames = np.ascontiguousarray(np.swapaxes(self.frames, 1, 2), np.float32)  # one axis after another
        arrays: dict[str, Array] = {
            "frames": frames,
            "samples": self.samples.astype(np.int32),
            "kinds": kinds,
        }
        if self.fade is not None:
            arrays["fade"] = self.fade.astype(np.float32)
        return pack(
            arrays, {"dim": frames.shape[1], "axes": list(self.axes), "frames": list(self.frame_names)}
        )


@dataclass(frozen=True)
class Colour:
    """What the colour of each of P points means: a class, or a number on a scale."""

    title: str
    values: Array  # P class codes (negative: unknown), or P floats (NaN: unknown)
    names: tuple[str, ...] | None = None  # of the classes; None for numbers
    colours: tuple[str, ...] = ()  # of the classes
    limits: tuple[float, float] = (0.0, 1.0)  # of the scale
    diverging: bool = False
    details: Mapping[str, Array] = field(default_factory=dict)  # further numbers for the hover label, P each
    # P codes (negative: none) and their names, for the hover label
    labels: Mapping[str, tuple[Array, tuple[str, ...]]] = field(default_factory=dict)

    @classmethod
    def by_class(cls, title: str, codes: Array, names: Sequence[str], **more: Any) -> Colour:
        """Classes in the colours that they have on every page."""
        return cls(title, codes, tuple(names), tuple(class_colour(i) for i in range(len(names))), **more)

    @classmethod
    def by_value(cls, title: str, values: Array, **more: Any) -> Colour:
        """Numbers on a scale from the 1st to the 99th percentile, so that outliers don't wash it out."""
        known = values[np.isfinite(values)]
        low, high = np.percentile(known, [1, 99]) if len(known) else (0.0, 1.0)
        return cls(title, values, **{"limits": (float(low), float(high)), **more})

    @cached_property
    def packed(self) -> Pack:
        """These colours as the browser takes them."""
        details: list[dict[str, Any]] = []
        arrays: dict[str, Array] = {}
        for i, (name, numbers) in enumerate(self.details.items()):
            details.append({"name": name, "array": f"detail{i}"})
            arrays[f"detail{i}"] = numbers.astype(np.float32)
        for i, (name, (codes, names)) in enumerate(self.labels.items()):
            details.append({"name": name, "array": f"label{i}", "names": list(names)})
            arrays[f"label{i}"] = _codes(codes)
        meta: dict[str, Any] = {"title": self.title, "unknown": NEUTRAL, "details": details}
        if self.names is not None:
            symbols = [class_symbol(i) for i in range(len(self.names))]
            meta |= {"names": list(self.names), "colours": list(self.colours), "symbols": symbols}
            return pack({"values": _codes(self.values), **arrays}, meta)
        low, high = self.limits
        stops = DIVERGING if self.diverging else SEQUENTIAL_STOPS
        meta |= {"low": low, "high": high, "stops": [list(stop) for stop in stops]}
        return pack({"values": self.values.astype(np.float32), **arrays}, meta)


@dataclass(frozen=True)
class Pane:
    """One picture: its points and their colours."""

    points: Points
    colour: Colour
    title: str = ""


def _codes(codes: Array) -> Array:
    return np.where(codes < 0, UNKNOWN, codes).astype(np.uint16)
