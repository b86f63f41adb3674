"""Galleries of chosen samples with their nearest neighbours in the full space."""

from __future__ import annotations

import numpy as np
import streamlit as st

from moco_core.dashboard import loaders
from moco_core.dashboard.gallery import Card, card, neighbour, rows
from moco_core.dashboard.text import numeral, plain
from moco_core.runs import Checkpoint, EvalSet, Run

PAGE = 12  # samples shown at once
BESIDE = 8  # neighbours beside each
BESIDE_ONE = 16  # neighbours of a sample that was clicked
NAMED = 6  # classes named in the summary


def chosen_gallery(
    run: Run, checkpoint: Checkpoint, chosen: np.ndarray, layer: str, title: str, key: str
) -> None:
    """What was chosen (rows of the evaluation set), page by page, each with its nearest neighbours."""
    images = loaders.eval_set(run)
    st.subheader(f"{title}: {len(chosen):,}")
    st.caption(
        f"{class_summary(chosen, images)} Beside each are its nearest neighbours in "
        f"the full space ({loaders.layer_name(run, layer)}) by cosine, of its own class in blue, of another in orange."
    )
    page = 1
    if len(chosen) > PAGE:
        page = st.pagination(-(-len(chosen) // PAGE), key=key)
    shown = chosen[(page - 1) * PAGE : page * PAGE]
    found, cosines = loaders.neighbours_of(run, checkpoint, shown, BESIDE, layer)
    rows([_line(images, row, *near) for row, *near in zip(shown, found, cosines, strict=True)], side=64)


def clicked_sample(run: Run, checkpoint: Checkpoint, row: int, layer: str) -> None:
    """One sample and its nearest neighbours."""
    images = loaders.eval_set(run)
    st.subheader(f"Clicked: {plain(images.title(row))}")
    st.caption(
        "Red lines in the picture lead to its nearest neighbours in the full space "
        f"({loaders.layer_name(run, layer)}), here with their cosines. Long lines are where the picture misleads."
    )
    found, cosines = loaders.neighbours_of(run, checkpoint, np.array([row]), BESIDE_ONE, layer)
    rows([_line(images, row, found[0], cosines[0])], side=80)


def class_summary(chosen: np.ndarray, images: EvalSet) -> str:
    """The classes among the chosen, most frequent first, as Markdown; empty without labels."""
    labels = images.labels[chosen]
    known, counts = np.unique(labels[labels >= 0], return_counts=True)
    if not len(known):
        return ""
    order = np.argsort(-counts, kind="stable")
    parts = [f"{plain(images.name_of(int(known[i])))}: {counts[i]:,}" for i in order[:NAMED]]
    others = len(order) - NAMED
    more = f" and {others} more class{'es' * (others > 1)}" if others > 0 else ""
    return f"{', '.join(parts)}{more}."


def _line(images: EvalSet, row: int, found: np.ndarray, cosines: np.ndarray) -> list[Card]:
    others = zip(found.tolist(), cosines.tolist(), strict=True)
    near = [neighbour(images, row, other, f"cosine {numeral(cosine, '.3f')}") for other, cosine in others]
    return [card(images, row), *near]
