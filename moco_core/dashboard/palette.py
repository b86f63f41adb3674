"""Colours and marker shapes of every chart; each colour holds on the light and on the dark background."""

from __future__ import annotations

import colorsys

NEUTRAL = "#8a8f98"  # unlabelled samples, reference lines, context

# The first six are those of Okabe & Ito (2008). Each further one is the farthest (in OKLab; normal sight and
# protan, deutan, tritan sight by Machado 2009, the nearest of the four counts) from all before it, among
# colours with a contrast of at least 1.7 on white and 2.9 on the dark background.
CLASS_COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#795555", "#7900ff", "#92ce9e"),
    *("#9279ff", "#c2000c", "#c21892", "#00dbe7", "#ff496d", "#db24ce", "#b6aab6", "#c2ce55", "#556186"),
    *("#8655ff", "#79c261", "#3d9224", "#616124", "#799eff", "#e7b6ce", "#4979db", "#aa86ce", "#9e00ce"),
    *("#c21861", "#aa6d9e", "#92aa92", "#b67955", "#c29218", "#86c2ff", "#b631b6", "#ce92ce", "#ffaa86"),
    *("#aa6155", "#ff7992", "#86559e", "#aa2479", "#7986e7", "#9e6179", "#249eb6", "#aa3d3d", "#6155e7"),
    *("#e7b600", "#c27979", "#e761c2", "#e79ece", "#ff9255"),
)
SYMBOLS = ("circle", "square", "diamond", "cross", "x", "circle-open", "diamond-open")  # in 2-D and in 3-D
GROUP = 10  # classes that share a marker shape

SEQUENTIAL = "Viridis"
SEQUENTIAL_STOPS = tuple(  # Viridis, as stops from 0 to 1
    (i / 8, colour)
    for i, colour in enumerate(
        ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
    )
)
DIVERGING = ((0.0, "#0072b2"), (0.5, NEUTRAL), (1.0, "#d55e00"))
RIGHT, WRONG = "#0072b2", "#d55e00"


def class_colour(label: int) -> str:
    """Colour of a class: 50 distinct ones, then the same again, darker and lighter in turn; grey if unknown.

    `class_symbol` changes every ten classes, so that colour and shape together stay apart for 350 classes.
    """
    if label < 0:
        return NEUTRAL
    lap, index = divmod(label, len(CLASS_COLOURS))
    return CLASS_COLOURS[index] if lap == 0 else _shade(CLASS_COLOURS[index], 0.75 if lap % 2 else 1.25)


def class_symbol(label: int) -> str:
    """Plotly's name of the marker shape of a class; a circle if unknown."""
    return SYMBOLS[label // GROUP % len(SYMBOLS)] if label >= 0 else SYMBOLS[0]


def series_colour(index: int) -> str:
    """Colour of the index-th series of a chart (a run, a setting)."""
    return class_colour(index)


def series_symbol(index: int) -> str:
    """Marker shape of the index-th series of a chart: a new one each time, for readers without colour."""
    return SYMBOLS[index % len(SYMBOLS)]


def _shade(colour: str, factor: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    shaded = colorsys.hls_to_rgb(hue, min(light * factor, 0.85), saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in shaded)
