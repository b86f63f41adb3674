"""One snapshot's staleness as the charts take it: drift.safetensors checked, gaps named, nothing trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moco_core.analysis.staleness import COLLAPSED, EVICTIONS, RankCorrelation

Array = np.ndarray


LARGEST = 2.0**53  # whole numbers below it are exact in a float


class DriftError(ValueError):
    """A drift file can't be shown; the message says what is wrong with it."""


@dataclass(frozen=True)
class Drift:
    """Staleness at one step of one run: M slots newest first, L queue lengths, E kept numbers.

    What a file may lack (it holds more than the contract asks for) is empty, or NaN for a single number.
    """

    name: str
    step: int
    age: Array  # M, steps
    drift: Array  # M, 1 − cos(stored, current key encoder)
    lag: Array  # M, 1 − cos(stored, current query encoder)
    slot: Array  # M or 0, row in queue.safetensors
    logit_error: Array  # M or 0
    weight_share: Array  # M or 0
    stands_for: Array  # M, slots of the queue that each measured one stands for
    length: Array  # L, slots of the queue, newest first
    gradient_cosine: Array  # L; NaN where there is no gradient
    kl: Array  # L or 0, nats
    k_star: int
    spread: float
    filled: int
    control: float
    rank: RankCorrelation
    kept: Array  # E or 0
    evictions: Mapping[str, Array]  # policy → E
    place: int = 0  # place of the run among those drawn together: its colour

    @property
    def collapsed(self) -> bool:
        """Whether all keys lie in one place, so that nothing can be divided by their spread."""
        return self.spread < COLLAPSED

    @property
    def k_star_at_least(self) -> bool:
        """Whether K* is a lower bound: keys between the batches measured were counted as staler than they are."""
        return len(self.age) < self.filled and 0 < self.k_star < self.filled

    @property
    def k_star_text(self) -> str:
        """K*, behind ≥ where it is a lower bound."""
        return f"{'≥ ' * self.k_star_at_least}{self.k_star:,}"

    @property
    def relative(self) -> Array:
        """Drift in units of the spread of the keys (M): 1 means as far as between two random samples.

        All NaN where the spread is unknown or has collapsed.
        """
        if self.collapsed or not np.isfinite(self.spread):
            return np.full(len(self.drift), np.nan)
        return self.drift / self.spread

    @property
    def oldest(self) -> float:
        """Mean drift of the oldest slots."""
        return float(self.drift[self.age == self.age.max()].mean())

    @property
    def oldest_relative(self) -> float:
        """`oldest` in units of the spread; NaN where that is unknown or has collapsed."""
        return float(self.relative[self.age == self.age.max()].mean())

    @property
    def final_cosine(self) -> float:
        """Gradient cosine with the whole queue."""
        return float(self.gradient_cosine[-1])


def read_drift(arrays: Mapping[str, Array], name: str, step: int, place: int = 0) -> Drift | None:
    """The contents of drift.safetensors; None when nothing was measured at this step.

    Raises DriftError when a required array is missing, empty, of the wrong shape or not finite.
    """
    if not arrays:
        return None
    age = _column(arrays, "age", required=True)
    slots = len(age)
    length = _column(arrays, "length", required=True)
    kept = _column(arrays, "kept")
    filled = _count(arrays, "filled", slots)
    slot = _column(arrays, "slot", slots)
    if len(slot) and not (slot.min() >= 0 and slot.max() < filled):
        raise DriftError(f"the drift file's 'slot' must count from 0 to below {filled}, got {slot.max():.0f}")
    return Drift(
        name=name,
        step=step,
        age=age,
        drift=1 - _column(arrays, "cosine_key", slots, required=True),
        lag=1 - _column(arrays, "cosine_query", slots, required=True),
        slot=slot.astype(np.int64),
        logit_error=_column(arrays, "logit_error", slots),
        weight_share=_column(arrays, "weight_share", slots),
        stands_for=_column(arrays, "stands_for", slots) if "stands_for" in arrays else np.ones(slots),
        length=length,
        gradient_cosine=_column(arrays, "gradient_cosine", len(length), required=True, gaps=True),
        kl=_column(arrays, "kl", len(length)),
        k_star=_count(arrays, "k_star"),
        spread=_scalar(arrays, "spread", required=True),
        filled=filled,
        control=_scalar(arrays, "control"),
        rank=RankCorrelation(
            _scalar(arrays, "rank_correlation"),
            _scalar(arrays, "rank_low"),
            _scalar(arrays, "rank_high"),
            _count(arrays, "rank_ages", len(np.unique(age))),
        ),
        kept=kept,
        evictions={
            policy: _column(arrays, f"evict_{policy}", len(kept), gaps=True)
            for policy in EVICTIONS
            if len(kept) and f"evict_{policy}" in arrays
        },
        place=place,
    )


def _column(
    arrays: Mapping[str, Array],
    name: str,
    length: int | None = None,
    *,
    required: bool = False,
    gaps: bool = False,
) -> Array:
    if name not in arrays:
        if required:
            raise DriftError(f"the drift file lacks {name!r}; it holds {', '.join(sorted(arrays))}")
        return np.zeros(0)
    column = arrays[name]
    if column.ndim != 1 or len(column) == 0 or (length is not None and len(column) != length):
        wanted = "at least one number" if length is None else f"{length} numbers"
        raise DriftError(f"the drift file's {name!r} must hold {wanted}, got shape {column.shape}")
    column = column.astype(np.float64)
    most = np.abs(column[np.isfinite(column)]).max(initial=0)
    if most >= LARGEST:
        raise DriftError(f"the drift file's {name!r} holds {most:.3g}; accepted are numbers below 2^53")
    if not np.isfinite(column).all() and not (gaps and not np.isinf(column).any()):
        raise DriftError(f"the drift file's {name!r} holds numbers that are not finite")
    return column


def _scalar(arrays: Mapping[str, Array], name: str, *, required: bool = False) -> float:
    if name not in arrays:
        if required:
            raise DriftError(f"the drift file lacks {name!r}; it holds {', '.join(sorted(arrays))}")
        return float("nan")
    if arrays[name].size != 1:
        raise DriftError(f"the drift file's {name!r} must be one number, got shape {arrays[name].shape}")
    value = float(arrays[name].reshape(-1)[0])
    if np.isinf(value):
        raise DriftError(f"the drift file's {name!r} must be finite, got {value}")
    return value


def _count(arrays: Mapping[str, Array], name: str, default: int | None = None) -> int:
    if name not in arrays and default is not None:
        return default
    value = _scalar(arrays, name, required=True)
    if not 0 <= value < LARGEST:
        raise DriftError(f"the drift file's {name!r} must count slots, got {value:g}")
    return int(value)
