"""The logged losses of runs, ready to be drawn or downloaded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from moco_core.config import TrainConfig
from moco_core.dashboard.figures.loss_curves import LossCurve
from moco_core.dashboard.legend import in_order
from moco_core.dashboard.loaders import history
from moco_core.dashboard.selection import labels
from moco_core.runs import Run
from moco_core.theory import chance_loss, loss_floor
from moco_core.trace import RECIPE, authors_beside


def logged_losses(runs: Sequence[Run]) -> list[LossCurve]:
    """One curve for each readable run that has logged anything, called as in pickers."""
    readable = in_order(run for run in runs if run.problem is None)
    names = labels(readable)
    curves = []
    for place, run in enumerate(readable):
        logged = comparable(history(run), run.config)
        if not len(logged.get("step", ())):
            continue
        config = run.config
        curves.append(
            LossCurve(
                names[run.id],
                logged["step"],
                logged["loss"],
                chance_loss(config.negatives),
                loss_floor(config.negatives, config.temperature, config.dim),
                authors_losses(run),
                place,
            )
        )
    return curves


def authors_losses(run: Run) -> tuple[tuple[int, float], ...]:
    """(step, loss) of the authors' trace within a run on their task; none at another K or τ, where losses differ."""
    config = run.config
    if (config.queue_size, config.temperature) != (RECIPE.queue_size, RECIPE.temperature):
        return ()
    return tuple(
        (step, point.loss)
        for step, point in authors_beside(run).items()
        if step <= config.steps and point.loss is not None
    )


def comparable(logged: dict[str, np.ndarray], config: TrainConfig) -> dict[str, np.ndarray]:
    """The part of a history in which queries met all K negatives; all of it when they never did.

    With fewer negatives the loss is lower at the same quality: its rise while the queue fills says nothing.
    """
    full = logged["filled"] >= config.negatives
    return {name: values[full] for name, values in logged.items()} if full.any() else logged


def loss_rows(curves: Sequence[LossCurve]) -> pd.DataFrame:
    """What the chart shows, one row a logged step: run, step, loss, chance, floor."""
    parts = [
        pd.DataFrame(
            {
                "run": curve.name,
                "step": curve.step.astype(np.int64),
                "loss": curve.loss,
                "chance": curve.chance,
                "floor": curve.floor,
            }
        )
        for curve in curves
    ]
    return pd.concat(parts, ignore_index=True)
