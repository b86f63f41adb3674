"""Colours can be told apart, by everyone, on light and on dark."""

import itertools

import numpy as np
import pytest

from moco_core.dashboard import palette

# Machado, Oliveira & Fernandes 2009, severity 1: linear RGB as protanopes and deuteranopes see it.
PROTAN = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
DEUTAN = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
DARK = "#191919"


def linear(colour):
    s = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIELAB (D65) of linear RGB."""
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    t = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def luminance(colour):
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("sight", [np.eye(3), PROTAN, DEUTAN], ids=["normal", "protan", "deutan"])
def test_the_first_ten_classes_are_told_apart_by_everyone(sight):
    seen = [lab(sight @ linear(colour)) for colour in palette.CLASS_COLOURS[:10]]
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert nearest > 9  # CIELAB units; 2.3 is just noticeable


def test_fifty_colours_differ_and_stand_out_on_both_backgrounds():
    assert len(set(palette.CLASS_COLOURS)) == len(palette.CLASS_COLOURS) == 50
    for colour in (*palette.CLASS_COLOURS, palette.NEUTRAL):
        assert 1.05 / (luminance(colour) + 0.05) >= 1.6
        assert (luminance(colour) + 0.05) / (luminance(DARK) + 0.05) >= 2.3


def test_beyond_fifty_shape_and_colour_together_stay_distinct():
    pairs = {(palette.class_colour(i), palette.class_symbol(i)) for i in range(350)}
    assert len(pairs) == 350
    assert palette.class_colour(0) != palette.class_colour(50)


def test_an_unknown_class_is_grey():
    assert palette.class_colour(-1) == palette.NEUTRAL
    assert palette.class_symbol(-1) == "circle"


def test_sequential_stops_are_plotlys_scale():
    from plotly.colors import get_colorscale, sample_colorscale

    ours = sample_colorscale([list(stop) for stop in palette.SEQUENTIAL_STOPS], [0, 0.1, 0.5, 0.9, 1])
    theirs = sample_colorscale(get_colorscale(palette.SEQUENTIAL), [0, 0.1, 0.5, 0.9, 1])

    def numbers(colour):
        return np.array([float(part) for part in colour[4:-1].split(",")])

    assert max(np.abs(numbers(a) - numbers(b)).max() for a, b in zip(ours, theirs, strict=True)) < 6
