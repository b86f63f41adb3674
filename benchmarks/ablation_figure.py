"""The figures of the ablations, as plain SVG that needs no browser to make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from moco_core import paper
from moco_core.dashboard.palette import NEUTRAL, series_colour
from moco_core.dashboard.sweeps import Group

LEFT, TOP, WIDTH, HEIGHT = 55, 45, 265, 200  # of a panel's plot, in pixels from the panel's corner
PANEL_WIDTH, PANEL_HEIGHT = 345, 310
STYLE = f"text{{font:12px sans-serif;fill:{NEUTRAL}}} .title{{font-size:13px;font-weight:bold}}"


@dataclass(frozen=True)
class Panel:
    """Values by category: every one a dot, a dash at their mean, and a line from mean to mean when `joined`."""

    title: str
    values: Mapping[str, Sequence[float]]
    axis: str
    colour: str
    joined: bool = True
    absent: str = "not finished"  # what stands where a category has no value


def figure(momentum: Sequence[Group], methods: Sequence[Group]) -> str:
    """Linear-probe accuracy: along momentum, the paper's row, by method."""
    steps = max((group.config.steps for group in momentum), default=0)
    ours = {f"{g.momentum:g}": percent(g) for g in sorted(momentum, key=lambda g: g.momentum)}
    theirs = {f"{m:g}": [] if a is None else [a] for m, a in sorted(paper.MOMENTUM_ABLATION.items())}
    by_method = {_method_label(g): percent(g) for g in methods}
    return side_by_side(
        "Linear-probe accuracy by momentum, ours and the paper's, and by method",
        [
            Panel(f"Fashion-MNIST, {steps:,} steps: linear probe, %", ours, "momentum m", series_colour(0)),
            Panel("He et al. 2019, ImageNet: linear probe, %", theirs, "momentum m", NEUTRAL, absent="fails"),
            Panel("Fashion-MNIST: linear probe, %", by_method, "", series_colour(2), joined=False),
        ],
    )


def side_by_side(title: str, panels: Sequence[Panel]) -> str:
    """The panels in a row. Reads on light and dark."""
    placed = (
        f'<g transform="translate({i * PANEL_WIDTH},0)">{_drawn(panel)}</g>' for i, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PANEL_WIDTH * len(panels)} {PANEL_HEIGHT}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>{''.join(placed)}</svg>\n"
    )


def percent(group: Group) -> list[float]:
    """The linear probe's accuracy in each run of a group, in %."""
    return [100 * value for value in group.values("linear")]


def _method_label(group: Group) -> str:
    """The method over its K, one word a line: five of them stand side by side."""
    return f"K = {group.config.negatives:,}\n" + group.config.method.replace("-", "\n")


def _drawn(panel: Panel) -> str:
    values, colour = panel.values, panel.colour
    low, high, step = _scale([value for each in values.values() for value in each])
    bottom = TOP + HEIGHT

    def y(value: float) -> float:
        return bottom - HEIGHT * (value - low) / (high - low)

    parts = [_text(LEFT, 20, panel.title, "start", "title")]
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
            parts.append(_text(x, bottom - 8, panel.absent, "middle"))
            continue
        mean = sum(each) / len(each)
        means.append((x, y(mean)))
        parts.append(_line(x - 12, y(mean), x + 12, y(mean), colour, 3))
        parts += [f'<circle cx="{x:.1f}" cy="{y(v):.1f}" r="4" fill="{colour}"/>' for v in each]
    if panel.joined:
        parts += [_line(*a, *b, colour, 2) for a, b in pairwise(means)]
    parts.append(_text(LEFT + WIDTH / 2, bottom + 45, panel.axis, "middle"))
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
