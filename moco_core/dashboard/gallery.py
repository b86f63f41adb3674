"""Thumbnails with captions, or names where the samples are no images.

Names come from outside: they are escaped here, and nowhere can they be markup.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import streamlit as st

from moco_core.dashboard.palette import RIGHT, WRONG
from moco_core.dashboard.text import plain_html
from moco_core.runs import EvalSet

SIDE = 72  # pixels on screen
WIDER = 1.75  # times as wide is the card of a sample without an image
NARROWEST = 360  # pixels of one column of lines
# Of a title, four lines are shown below a picture, and eight where there is nothing else.
CLAMP = "display:-webkit-box;-webkit-box-orient:vertical;overflow:hidden;-webkit-line-clamp:"
LOSSLESS = 32  # up to this side thumbnails are sent as PNG, beyond as JPEG


@dataclass(frozen=True)
class Card:
    """One sample with what is said about it."""

    image: np.ndarray  # H×W×C uint8, C 1 or 3; empty where there is none
    title: str
    detail: str = ""
    mark: str = ""  # colour of its frame; none when empty


def card(images: EvalSet, row: int, detail: str = "", mark: str = "") -> Card:
    """The card of one evaluation sample: its class and sample id, or its name and class; then `detail`."""
    return Card(images.thumbnails[row], images.title(row), detail, mark)


def neighbour(images: EvalSet, row: int, other: int, detail: str) -> Card:
    """The card of a neighbour of sample `row`: framed blue if of its class, orange if of another, not if unknown."""
    own, theirs = images.labels[row], images.labels[other]
    mark = (RIGHT if theirs == own else WRONG) if min(own, theirs) >= 0 else ""
    return card(images, other, detail, mark)


def gallery(cards: Sequence[Card]) -> None:
    """Cards one after another, wrapping to the page's width."""
    st.html(gallery_html([cards]))


def rows(groups: Sequence[Sequence[Card]], side: int = SIDE, columns: int = 1) -> None:
    """One line a group, its first card (the sample in question) set apart from the others (its neighbours).

    Lines fill `columns` beside each other, or one where the page is narrow.
    """
    st.html(gallery_html(groups, side, columns, apart=True))


def gallery_html(
    groups: Sequence[Sequence[Card]], side: int = SIDE, columns: int = 1, *, apart: bool = False
) -> str:
    """The HTML of one or more lines of cards."""
    lines = ""
    for cards in groups:
        figures = [_figure(card, side) for card in cards]
        if apart and len(figures) > 1:
            first, *others = figures
            arrow = f'<span style="line-height:{side}px;opacity:.5">→</span>'
            lines += f'<div style="display:flex;gap:10px">{first}{arrow}{_wrapping(others)}</div>'
        else:
            lines += _wrapping(figures)
    least = f"max({NARROWEST}px, calc({100 / columns}% - 1rem))"
    grid = f"display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,{least}),1fr));gap:12px 1rem"
    return f'<div class="gallery" style="{grid}">{lines}</div>'


def data_uri(image: np.ndarray) -> str:
    """An image (H×W×C uint8) as a data URI."""
    from PIL import Image

    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image[..., :3])
    buffer = io.BytesIO()
    kind = "png" if max(picture.size) <= LOSSLESS else "jpeg"
    picture.save(buffer, kind, **({} if kind == "png" else {"quality": 85}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _wrapping(figures: Sequence[str]) -> str:
    style = "display:flex;flex-wrap:wrap;gap:10px;align-content:start"
    return f'<div style="{style}">{"".join(figures)}</div>'


def _figure(card: Card, side: int) -> str:
    title, detail = plain_html(card.title), plain_html(card.detail)
    frame = f"outline:3px solid {card.mark};" if card.mark else ""
    alt = title.replace('"', "&quot;")
    if not card.image.size:
        return (
            f'<figure title="{alt}" style="margin:0;flex:none;width:{WIDER * side:.0f}px;min-height:{side / 2:.0f}px;'
            f"padding:6px 8px;box-sizing:border-box;border:1px solid rgba(128,128,128,.35);border-radius:4px;"
            f'font-size:12px;line-height:1.3;overflow-wrap:anywhere;{frame}">'
            f'<span style="{CLAMP}8">{title}</span><span style="font-size:11px;opacity:.7">{detail}</span></figure>'
        )
    return (
        f'<figure style="margin:0;flex:none;width:{side}px" title="{alt}">'
        f'<img src="{data_uri(card.image)}" alt="{alt}" width="{side}" height="{side}" '
        f'style="display:block;image-rendering:pixelated;object-fit:contain;border-radius:4px;{frame}">'
        f'<figcaption style="font-size:11px;line-height:1.3;margin-top:4px;overflow-wrap:anywhere">'
        f'<span style="{CLAMP}4">{title}</span><span style="opacity:.7">{detail}</span></figcaption></figure>'
    )
