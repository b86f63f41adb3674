"""What a training process that did not record its own end has left to say."""

from __future__ import annotations

import re
import signal
from pathlib import Path

TAIL_BYTES = 4096
LONGEST = 500  # characters


def last_words(log: Path, code: int | None = None) -> str:
    """How a process ended, in a sentence: by which signal, or what it said last. `code` as `subprocess` gives it."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ", perhaps because memory ran out" if name == "SIGKILL" else ""
        return f"its process was killed by {name}{hint}"
    line = last_line(log).removeprefix("error: ")
    return line or "its process ended without a word" + (f" (exit code {code})" if code else "")


def last_line(log: Path) -> str:
    """The last line of a log that isn't blank; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    return lines[-1][:LONGEST] if lines else ""
