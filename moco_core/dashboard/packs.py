"""Columns on their way to the browser: arrays in one binary message, named after their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

TYPES = ("<f4", "<i8", "<i4", "<u2", "|u1")  # what the browser has typed arrays for
ALIGN = 8


@dataclass(frozen=True)
class Pack:
    """Bytes as the browser unpacks them: u32 length of the header, the header, then the arrays.

    The header is JSON: `id`, `meta`, and for each array its type, shape and offset behind the header.
    """

    id: str
    data: bytes


def pack(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Pack:
    """Arrays (of `TYPES`) and JSON values in one message; ValueError for a type the browser can't read."""
    entries, parts, offset = {}, [], 0
    for name, array in arrays.items():
        if array.dtype.str not in TYPES:
            raise ValueError(f"{name} must be of one of the types {', '.join(TYPES)}, got {array.dtype.str}")
        content = array.tobytes()
        padding = -len(content) % ALIGN
        entries[name] = [array.dtype.str, list(array.shape), offset]
        parts += [content, bytes(padding)]
        offset += len(content) + padding
    described = json.dumps({"meta": dict(meta), "arrays": entries}, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(described.encode())
    for part in parts:
        digest.update(part)
    header = f'{{"id":"{digest.hexdigest()[:24]}",{described[1:]}'.encode()
    header += b" " * (-(4 + len(header)) % ALIGN)
    return Pack(digest.hexdigest()[:24], b"".join([len(header).to_bytes(4, "little"), header, *parts]))
