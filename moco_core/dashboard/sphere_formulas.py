"""The formulas of one step with its numbers in them, so that it can be followed by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from moco_core.dashboard.sphere_scene import LETTERS
from moco_core.sphere import SphereStep, tangential


def formulas(step: SphereStep) -> str:
    """Markdown with formulas: loss, weights, direction, the move of q and of k."""
    scored, anchor = step.contrast, LETTERS[step.anchor]
    if not len(scored.negatives):
        return (
            f"Anchor: class **{anchor}**. The queue was still empty, so there was nothing to tell $k^+$ from: "
            r"$p^+ = 1$, the loss is 0 and nothing moved. Its key was enqueued."
        )
    tau = number(scored.temperature)
    positive, others = math.exp(scored.positive_cosine / scored.temperature), _others(step)
    across = tangential(scored.direction, scored.query)
    length = float(np.linalg.norm(step.displacement))
    return "\n\n".join(
        (
            f"Anchor: class **{anchor}**, against the {len(scored.negatives)} keys in the queue.",
            rf"$$p^+ = \frac{{e^{{q\cdot k^+/\tau}}}}{{e^{{q\cdot k^+/\tau}} + \sum_i e^{{q\cdot k_i/\tau}}}}"
            rf" = \frac{{e^{{{scored.positive_cosine:.3f}/{tau}}}}}"
            rf"{{{number(positive)} + {number(others)}}} = {number(scored.weights[0])}$$",
            rf"$$L = -\ln p^+ = {number(step.loss)}$$",
            heaviest(step),
            rf"$$g = (1-p^+)\,k^+ - \sum_i p_i k_i,\qquad \lVert g\rVert = {_length(scored.direction)}$$",
            rf"$$t = g - (g\cdot q)\,q,\qquad \lVert t\rVert = {_length(across)}$$",
            rf"$$\eta\lVert t\rVert = {number(step.step_size)}\times{_length(across)}"
            rf" = {number(length)}$$",
            rf"$$q \leftarrow \mathrm{{normalize}}(q + \eta\,t):\ \text{{turns by }}"
            rf"{_degrees(scored.query, step.query)}$$",
            rf"$$k \leftarrow \mathrm{{normalize}}({step.momentum:.3f}\,k + {1 - step.momentum:.3f}\,q):"
            rf"\ \text{{turns by }}{_degrees(scored.positive, step.key)}$$",
        )
    )


def heaviest(step: SphereStep) -> str:
    """A sentence on the negative with the largest weight."""
    scored = step.contrast
    i = int(np.argmax(scored.weights[1:]))
    age = len(scored.negatives) - i  # the newest was written by the step before
    whose = int(step.negative_classes[i])
    note = " (the anchor's own class: a *false negative*)" if whose == step.anchor else ""
    return (
        rf"Heaviest negative: $p_j = {number(scored.weights[1 + i])}$, a key of class **{LETTERS[whose]}**{note}, "
        rf"written {age} step{'s' if age > 1 else ''} before, $q\cdot k_j = {scored.cosines[1 + i]:.3f}$."
    )


def vectors(step: SphereStep) -> pd.DataFrame:
    """The vectors of the step, a row each: what it is, and its x, y and z."""
    scored = step.contrast
    rows = {
        "q": scored.query,
        "k⁺": scored.positive,
        "(1−p⁺)·k⁺ (pull)": scored.pull,
        "−Σ pᵢ·kᵢ (push)": scored.push,
        "g": scored.direction,
        "η·t": step.displacement,
        "q after": step.query,
        "k⁺ after": step.key,
    }
    table: dict[str, list[object]] = {"vector": list(rows)}
    return pd.DataFrame(
        table | {axis: [float(row[i]) for row in rows.values()] for i, axis in enumerate("xyz")}
    )


def number(value: float) -> str:
    """Three significant digits, as LaTeX writes them."""
    plain = f"{value:.3g}"
    if "e" not in plain:
        return plain
    mantissa, exponent = plain.split("e")
    return rf"{mantissa}\cdot10^{{{int(exponent)}}}"


def _others(step: SphereStep) -> float:
    scored = step.contrast
    return float(np.exp(scored.cosines[1:] / scored.temperature).sum())


def _length(vector: np.ndarray) -> str:
    return number(float(np.linalg.norm(vector)))


def _degrees(before: np.ndarray, after: np.ndarray) -> str:
    """The angle between two unit vectors, exact also when it is small."""
    angle = 2 * math.asin(min(float(np.linalg.norm(after - before)) / 2, 1.0))
    return rf"{number(math.degrees(angle))}^\circ"
