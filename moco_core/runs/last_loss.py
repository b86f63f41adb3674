"""The loss that a run ended with: one definition for the command line, the tables and the charts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def last_loss(history: Mapping[str, np.ndarray]) -> float | None:
    """Mean loss, in nats, over the last tenth of the logged steps, at least one; None before the first."""
    loss = history["loss"]
    return float(np.mean(loss[-max(1, len(loss) // 10) :])) if len(loss) else None
