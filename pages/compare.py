"""Compare: two checkpoints side by side, and what changed between them."""

import numpy as np
import streamlit as st

from moco_core.dashboard import compare_data as data
from moco_core.dashboard import compare_view as view
from moco_core.dashboard.compare_data import Common, Neighbourhoods, Side
from moco_core.dashboard.explorer import explorer
from moco_core.dashboard.figures.class_changes import class_changes
from moco_core.dashboard.figures.metric_differences import metric_differences, metric_text
from moco_core.dashboard.figures.neighbour_overlap import overlap_chart
from moco_core.dashboard.gallery import rows
from moco_core.dashboard.projection_controls import METHOD_NAMES
from moco_core.dashboard.projections import follow, shown_projection
from moco_core.dashboard.sections import section
from moco_core.dashboard.selection import current_run, pick_run, step_slider, store
from moco_core.dashboard.text import plain
from moco_core.dashboard.widgets import chart, downloads, guide, nothing, numbers, one_of, tiles
from moco_core.projections import ProjectionSettings

PURPOSE = "What changed between two runs, or between two steps of one, and which of the two is better."
HOW_TO_READ = """
Choose any two checkpoints: two runs, or two steps of one. What is compared is what both did with the **same samples**.

- **Shared neighbours** (Jaccard index): of the nearest neighbours that a sample has in A or in B, the share that it has
  in both. 1: nothing changed for it. Two runs that only differ by their seed share far fewer than one expects.
- **CKA** asks whether the two spaces have the same *shape*, however turned or scaled: 1 alike, near 0 unrelated. The
  **Procrustes distance** is what stays apart after the best turn: 0 the same, 2 nothing in common.
- Two spaces may be equally good and quite different. That is why metrics, neighbourhoods and samples stand
  side by side.
"""
CITATION = (
    "Linear CKA: Kornblith et al. 2019. Procrustes distance: Schönemann 1966; Ding et al. 2021. Neighbour overlap of "
    "embeddings: Wang et al. 2020, Hryniowski & Wong 2020. Weighted kNN vote: Wu et al. 2018."
)


def pick(letter: str, default: str | None) -> Side | None:
    """Choose one of the two checkpoints; None, with a sentence, when there is nothing to choose."""
    param = letter.lower()
    if pick_run(letter, param, default=default) is None:
        return None
    if (run := current_run(param)) is None:
        return None
    alone = "b" not in st.query_params and data.counterpart(run, store()) == run.id
    first = (
        letter == "A" and alone
    )  # a run with nothing to compare it with but itself: what has training changed?
    checkpoint = step_slider(run, label=f"Step of {letter}", param=f"{param}_step", first=first)
    return Side(run, checkpoint) if checkpoint else None


def compare(a: Side, b: Side) -> None:
    """Everything below the choice, from top to bottom."""
    common, layers = data.match(a, b), data.layers(a, b)
    both = [a.checkpoint, b.checkpoint]
    st.caption(common.sentence)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        method = one_of("Picture", METHOD_NAMES, "method")
        colour = st.selectbox(
            "Colour",
            view.colourings(common),
            format_func=view.COLOURINGS.__getitem__,
            key="compare_colour",
            bind="query-params",
            width=220,
        )
        layer = st.selectbox(
            "Layer",
            layers,
            format_func=lambda name: data.layer_name(a, b, name),
            key="layer",
            bind="query-params",
            width=220,
        )
        k = st.slider("Neighbours k", 1, 100, 20, key="k", bind="query-params", width=260)
    settings = ProjectionSettings(method=method, layer=layer)
    at_once = colour == view.OVERLAP or data.quickly_found(a, b, common, k, layer)
    near = data.neighbourhoods(a, b, common, k, layer) if at_once else None

    with section("Side by side"):
        chosen = linked_pictures(a, b, common, near, settings, colour, k)
        if near is None:  # the pictures don't wait for the search, but their tips want what it finds
            data.neighbourhoods(a, b, common, k, layer)
            st.rerun()
        if len(chosen):
            st.markdown(f"**Selected: {len(chosen):,}**")
            changed_gallery(chosen[: view.LINES], near, common)

    with section("Which one is better?"):
        metrics = data.metrics(a, b, common)
        st.markdown(view.metrics_reading(metrics))
        for letter, side in zip("AB", (a, b), strict=True):
            if collapsed := view.collapse_reading(letter, side):
                st.warning(collapsed)
        if metrics:
            chart(
                metric_differences(metrics),
                "Every metric that both have under one definition. A bar to the right: B is better; to the left: A is; "
                "grey: neither by itself (tolerance is bought with uniformity). Its length is the difference as a "
                "share of the larger value. Noise alone raises rank and improves uniformity: where there are labels, "
                "accuracy decides.",
                lambda: view.metrics_table(metrics),
                key="metrics",
                of=both,
            )
            numbers(view.metrics_table(metrics), "metrics_table", metric_text)

    with section("How alike are the two spaces?"):
        cka, procrustes = data.likeness(a, b, common, layer)
        tiles(
            {
                "Linear CKA": f"{cka:.3f}",
                "Procrustes distance": f"{procrustes:.3f}",
                "Shared neighbours, mean Jaccard": f"{near.jaccard.mean():.3f}",
            },
            (
                "1: the same shape; near 0: unrelated.",
                "0: the same; 2: nothing in common.",
                "1: the same; 0: none in common.",
            ),
        )
        st.markdown(view.overlap_reading(near))
        chart(
            overlap_chart(near.jaccard, near.k),
            f"How many samples keep how many of their {near.k} nearest neighbours. Left: an entirely new "
            "neighbourhood; right: the same one. Dotted: the mean of unrelated spaces.",
            lambda: view.overlap_table(near, common.images),
            key="overlap",
            of=both,
        )

    with section("Classes that improved and got worse"):
        if common.images.labelled:
            votes = data.votes(a, b, common, k, layer)
            st.markdown(view.class_reading(votes, common))
            chart(
                class_changes(*view.class_columns(votes, common)),
                "Change of each class's kNN accuracy from A to B, in percentage points. To the right: B is better.",
                lambda: view.class_table(votes, common),
                key="class_changes",
                of=both,
            )
        else:
            nothing("These samples have no labels, so there are no classes to compare.")

    with section("Whose neighbourhood changed most?"):
        page = st.pagination(-(-len(common) // view.LINES), key="page_changed")
        changed_gallery(view.most_changed(near, (page - 1) * view.LINES), near, common)


def linked_pictures(
    a: Side,
    b: Side,
    common: Common,
    near: Neighbourhoods | None,
    settings: ProjectionSettings,
    colour: str,
    k: int,
) -> np.ndarray:
    """Both pictures, linked; returns the common samples selected in either."""
    shown = tuple(shown_projection(side.run, side.checkpoint, settings) for side in (a, b))
    for side, one in zip((a, b), shown, strict=True):
        follow(side.run, side.checkpoint, settings, one)
    st.caption(
        "The same samples in A and in B. Point at one to see where it is in the other; lasso some on either side to "
        "see them on both, and below with their neighbours. B's picture is turned to lie on A's as closely as it can, "
        "which changes no distance."
    )
    panes = view.panes(a, b, shown, settings, common, near is not None, colour, k)
    done = explorer(
        "compare",
        panes,
        common.images,
        common.images_id,
        view=f"{a.key} {b.key} {settings}",
        caption=" and ".join(data.called(a, b)),
        height=560,
    )
    downloads("compare", lambda: view.panes_table(panes, common, near), of=[a.checkpoint, b.checkpoint])
    return done.rows if len(done.rows) or done.row is None else np.array([done.row])


def changed_gallery(found: np.ndarray, near: Neighbourhoods, common: Common) -> None:
    """Samples with their nearest neighbours in A and in B."""
    st.caption(
        "Each sample with its nearest neighbours, first in A, then in B (beside it or, on a narrow page, below). Blue "
        "frames mark neighbours of its own class, orange ones others."
    )
    rows(
        [line for row in found.tolist() for line in view.neighbour_cards(row, near, common)],
        side=56,
        columns=2,
    )


st.title("Two checkpoints side by side")
guide(PURPOSE, HOW_TO_READ, CITATION)
left, right = st.columns(2)
with left:
    a = pick("A", st.query_params.get("run"))
if len(store()):
    with right:
        b = pick("B", data.counterpart(a.run, store()) if a else None)
    if a and b and a.key == b.key:
        nothing(
            f"A and B are the same checkpoint, {plain(data.called(a, b)[0])}: choose another run or step for one "
            "of them."
        )
    elif a and b:
        with section():
            compare(a, b)
