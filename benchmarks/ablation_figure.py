"""The figure of the momentum ablation, as plain SVG that needs no browser to make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from moco_core import paper
from moco_core.dashboard.palette import NEUTRAL, series_colour
from moco_core.dashboard.sweeps import Group

LEFT, TOP, WIDTH, HEIGHT = 55, 45, 265, 200  # of a panel's plot, in pixels from the panel's corner
PANEL_WIDTH, PANEL_HEIGHT = 345, 310
STYLE = f"text{{font:12px sans-serif;fill:{NEUTRAL}}} .title{{font-size:13px;font-weight:bold}}"


def figure(momentum: Sequence[Group], methods: Sequence[Group]) -> str:
    """Linear-probe accuracy: along momentum, the paper's row, by method. Every run a dot. Reads on light and dark."""
    steps = max((group.config.steps for group in momentum), default=0)
    theirs = {f"{m:g}": [] if a is None else [a] for m, a in sorted(paper.MOMENTUM_ABLATION.items())}
    panels = [
        _panel(
            f"Fashion-MNIST, {steps:,} steps: linear probe, %",
            {f"{g.momentum:g}": _percent(g) for g in sorted(momentum, key=lambda g: g.momentum)},
            "momentum m",
            series_colour(0),
            joined=True,
        ),
        _panel(
            "He et al. 2019, ImageNet: linear probe, %",
            theirs,
            "momentum m",
            NEUTRAL,
            joined=True,
            absent="fails",
        ),
        _panel(
            "Fashion-MNIST: linear probe, %",
            {_method_label(g): _percent(g) for g in methods},
            "",
            series_colour(2),
            joined=False,
        ),
    ]
    placed = (f'<g transform="translate({i * PANEL_WIDTH},0)">{panel}</g>' for i, panel in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PANEL_WIDTH * len(panels)} {PANEL_HEIGHT}" role="img">'
        f"<title>Linear-probe accuracy by momentum, ours and the paper's, and by method</title>"
        f"<style>{STYLE}</style>{''.join(placed)}</svg>\n"
    )


def _method_label(group: Group) -> str:
    """The method over its K, one word a line: five of them stand side by side."""
    return f"K = {group.config.negatives:,}\n" + group.config.method.replace("-", "\n")


def _percent(group: Group) -> list[float]:
    return [100 * value for value in group.values("linear")]


def _panel(
    title: str,
    values: Mapping[str, Sequence[float]],
    axis: str,
    colour: str,
    *,
    joined: bool,
    absent: str = "not finished",
) -> str:
    """Values by category: dots, a dash at their mean, and a line from mean to mean when `joined`."""
    low, high, step = _scale([value for each in values.values() for value in each])
    bottom = TOP + HEIGHT

    def y(value: float) -> float:
        return bottom - HEIGHT * (value - low) / (high - low)

    parts = [_text(LEFT, 20, title, "start", "title")]
    for i in range(round((high - low) / step) + 1):
        level = low + i * step
        parts.append(_line(LEFT, y(level), LEFT + WIDTH, y(level), NEUTRAL, 0.4))
        parts.append(_text(LEFT - 6, y(level) + 4, f"{level:g}", "end"))
    means = []
    for i, (category, each) in enumerate(values.items()):
        x = LEFT + WIDTH * (i + 0.5) / len(values)
        for row, words in enumerate(category.split("\n")):
            parts.append(_text(x, bottom + 18 + 15 * row, words, "middle"))
        if not each:
            parts.append(_text(x, bottom - 8, absent, "middle"))
            continue
        mean = sum(each) / len(each)
        means.append((x, y(mean)))
        parts.append(_line(x - 12, y(mean), x + 12, y(mean), colour, 3))
        parts += [f'<circle cx="{x:.1f}" cy="{y(v):.1f}" r="4" fill="{colour}"/>' for v in each]
    if joined:
        parts += [_line(*a, *b, colour, 2) for a, b in pairwise(means)]
    parts.append(_text(LEFT + WIDTH / 2, bottom + 45, axis, "middle"))
    return "".join(parts)


def _scale(values: Sequence[float]) -> tuple[float, float, float]:
    """Round ends around the values, and the distance of the lines between them."""
    low, high = (min(values), max(values)) if values else (0.0, 100.0)
    step = next(s for s in (0.5, 1, 2, 5, 10, 20) if (high - low) / s <= 5 or s == 20)
    return step * math.floor(low / step - 0.1), step * math.ceil(high / step + 0.1), step


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'
