"""Input checks shared by the analysis: what can't be answered is refused in one sentence."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator

import numpy as np

Array = np.ndarray

BLOCK = 2**23  # entries of a rows × N block: 32 MB of float32


def as_rows(x: object, name: str, *, unit: bool = False, minimum: int = 2) -> Array:
    """`x` as an N×D array of finite numbers: float32 stays float32, any wider type becomes float64.

    With `unit` the rows are scaled to length 1, and a zero row is refused because it has no direction.
    Raises ValueError, naming the argument, for another shape, fewer than `minimum` rows, and NaN or infinity.
    """
    array = _as_array(x, name)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"{name} must be an N×D array with D at least 1, got shape {array.shape}")
    if len(array) < minimum:
        raise ValueError(f"{name} must have at least {minimum} rows, got {len(array)}")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, got {array.dtype}")
    narrow = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    rows = array.astype(np.float32 if narrow else np.float64, copy=False)
    peak = np.maximum(rows.max(1), -rows.min(1))  # NaN and infinity come through
    _refuse(~np.isfinite(peak), name, "is not finite", "every value must be a finite number")
    if not unit:
        return rows
    _refuse(peak == 0, name, "is zero", "every row needs a length above 0")
    scaled = rows / peak[:, None]  # squares can neither overflow nor vanish
    scaled /= np.sqrt(np.einsum("nd,nd->n", scaled, scaled))[:, None]
    return scaled


def as_pair(
    x: object, y: object, names: tuple[str, str], *, unit: bool = False, minimum: int = 2
) -> tuple[Array, Array]:
    """Two arrays whose rows belong together: as many rows each. Raises ValueError as `as_rows` does."""
    first, second = (
        as_rows(a, name, unit=unit, minimum=minimum) for a, name in zip((x, y), names, strict=True)
    )
    if len(first) != len(second):
        raise ValueError(f"{names[1]} must have as many rows as {names[0]} ({len(first)}), got {len(second)}")
    return first, second


def check_width(x: Array, width: int, name: str, other: str) -> None:
    """Raises ValueError unless the rows of `x` have as many numbers as those of `other`."""
    if x.shape[1] != width:
        raise ValueError(f"{name} must have rows as long as those of {other} ({width}), got {x.shape[1]}")


def as_labels(labels: object, count: int, name: str = "labels") -> Array:
    """Class indices as int64 of length `count`; negative ones mean *unknown*. Raises ValueError otherwise."""
    if labels is None:
        raise ValueError(f"{name} must give the class of each row; there are none")
    array = _as_array(labels, name)
    if array.shape != (count,):
        raise ValueError(f"{name} must be one number a row, {count} in all, got shape {array.shape}")
    if array.dtype.kind not in "iub":
        raise ValueError(f"{name} must be whole numbers, got {array.dtype}")
    return array.astype(np.int64)


def as_count(value: object, name: str, most: int | None = None, what: str = "") -> int:
    """A whole number from 1 to `most`; `what` says where that limit comes from. Raises ValueError."""
    limit = "" if most is None else f" and at most {most}{what and ' (' + what + ')'}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"{name} must be a whole number of at least 1{limit}, got {value!r}") from None
    if number < 1 or (most is not None and number > most):
        raise ValueError(f"{name} must be at least 1{limit}, got {number}")
    return number


def as_positive(value: float, name: str) -> float:
    """A finite number above 0. Raises ValueError."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value}")
    return float(value)


def blocks(rows: int, width: int, most: int = 1024) -> Iterator[slice]:
    """Slices over `rows` whose rows × `width` block stays within `BLOCK` entries and `most` rows."""
    step = max(1, min(most, BLOCK // max(1, width)))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def evenly(count: int, most: int) -> Array:
    """At most `most` of `count` rows, ascending int64, evenly spaced from the first to the last."""
    return np.linspace(0, count - 1, min(most, count)).round().astype(np.int64)


def _as_array(x: object, name: str) -> Array:
    try:
        return np.asarray(x)
    except ValueError:
        raise ValueError(f"{name} must be an array; its rows differ in length") from None


def _refuse(bad: Array, name: str, state: str, accepted: str) -> None:
    if bad.any():
        raise ValueError(
            f"{name} {state} in row {int(bad.argmax())} ({int(bad.sum())} such in all); {accepted}"
        )
