"""Similarity: how alike positive and negative pairs are, and what the softmax makes of it."""

import streamlit as st

from moco_core.dashboard import loaders
from moco_core.dashboard import similarity_data as data
from moco_core.dashboard import similarity_view as view
from moco_core.dashboard.clicks import news
from moco_core.dashboard.figures.cosine_histograms import (
    SCALES,
    cosine_histograms,
    histogram_grid,
    histogram_overlay,
)
from moco_core.dashboard.gallery import gallery, rows
from moco_core.dashboard.legend import in_order
from moco_core.dashboard.sections import section
from moco_core.dashboard.selection import current_run, labels, run_multipicker, step_slider, sweep_of
from moco_core.dashboard.widgets import chart, guide, nothing, numbers, one_of, problem
from moco_core.runs import Checkpoint, Run, RunError

PURPOSE = "How alike the pairs are that the loss pulls together and pushes apart, and where its force goes."
HOW_TO_READ = """
Contrastive learning pulls **positive** pairs (two views of one sample) together and pushes **negative** pairs apart.
Here are the cosines of all such pairs. In a good encoder the positives stand far to the right, the bulk of the
negatives around 0, and the two hardly overlap. When everything piles up at 1, the run has collapsed.

- **Hardest negatives**: the ten most similar negatives of each query. The loss is decided between them and the
  positives.
- **False negatives**: negatives of the query's own class. The loss pushes them away although they should be near; how
  far to the right they stay says how much the encoder resists.
- **Softmax weight**: a negative counts in proportion to exp(cosine / τ). A small τ looks at the few hardest alone, a
  large one at all alike. The lower panel shows where that weight lies. Move τ to see.
"""
CITATION = (
    "InfoNCE: van den Oord et al. 2018; He et al. 2019, eq. 1. What τ does: Wang & Liu 2021. Hard negatives: Robinson "
    "et al. 2021. False negatives: Chuang et al. 2020. Overlap coefficient: Inman & Bradley 1989."
)
LAYOUTS = {"grid": "side by side", "overlay": "overlaid"}


def step(run: Run, checkpoint: Checkpoint) -> None:
    """One step of one run and its neighbours in other runs, from top to bottom."""
    loaders.embeddings(run, checkpoint)  # a step that can't be read gets one sentence, not one a section
    if "tau" not in st.query_params:
        st.session_state.setdefault("tau", data.own_temperature(run))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        sources = {source: view.SOURCES[source] for source in data.sources(checkpoint)}
        source = one_of("Negatives from", sources, "negatives")
        scale = one_of("Height", SCALES, "height")
        temperature = data.own_temperature(run)
        if data.paired(run, checkpoint):
            temperature = st.slider(
                "Temperature τ",
                data.LEAST_TAU,
                data.MOST_TAU,
                step=0.01,
                key="tau",
                bind="query-params",
                width=300,
                help=view.temperature_help(run),
            )
    if missing := view.why_no_queue(checkpoint):
        st.caption(missing)

    with section("Positive and negative cosines"):
        found = data.cosines(run, checkpoint, source)
        weights = data.weights(run, checkpoint, source, temperature)
        drawn = data.bars(weights, temperature)
        st.markdown(view.reading(found, weights, temperature))
        click = chart(
            cosine_histograms(data.edges(), found.histograms(), drawn, scale),
            ("Above: how often" if drawn else "How often")
            + " a cosine occurs among each kind of pair. "
            + "Below: the share of the softmax that each bar carries. " * bool(drawn)
            + f"{view.sampling(found)} Click a bar to see its pairs.",
            lambda: view.bar_table([found], drawn),
            key="cosines",
            of=[checkpoint],
            clickable=True,
        )
        numbers(view.quantile_table(found), "quantiles")
        st.caption("Under 1%, 5%, …: the cosine below which that share of the pairs lies.")
        pick_bar(run, checkpoint, source, found, click)

    with section("Other runs" if run.config.imported else "Other runs at this step"):
        runs = in_order(run_multipicker("Runs", default=sweep_of(run)))
        shown, problems = data.others(run, checkpoint, runs, list(labels(runs).values()), source)
        for sentence in problems:
            problem(RunError(sentence), "Left out")
        if shown:
            layout = one_of("Runs", LAYOUTS, "runs_as", label_visibility="collapsed")
            builder = histogram_grid if layout == "grid" else histogram_overlay
            chart(
                builder(data.edges(), view.panels(shown), scale),
                view.others_reading(run, found),
                lambda: view.bar_table(shown),
                key="other_runs",
            )
            numbers(view.overlap_table(shown), "overlaps")


def pick_bar(
    run: Run, checkpoint: Checkpoint, source: str, found: data.Cosines, click: list[str | int] | None
) -> None:
    """Choose a bar by click or by name, and see the pairs behind it."""
    kinds = list(found.counts())
    if news("_bar", click):
        st.session_state["pairs"], st.session_state["bar"] = click[0], data.bar_start(int(click[1]))
    left, right = st.columns(2)
    kind = left.selectbox(
        "Pairs", kinds, index=None, key="pairs", bind="query-params", placeholder="Click a bar"
    )
    start = right.slider("Cosine from", -1.0, 0.99, 0.5, 0.01, key="bar", bind="query-params")
    if kind is None:
        st.caption("Click a bar, or choose a kind of pair and a cosine, to see the samples behind it.")
        return
    bar = data.bar_at(start)
    if kind == data.POSITIVES:
        cards, count = view.positive_cards(run, checkpoint, bar)
        if not cards:
            nothing("No positive pair has this cosine.")
            return
        st.caption(view.positives_reading(found, count))
        gallery(cards)
        return
    pairs = view.pair_cards(run, checkpoint, kind, bar)
    if pairs:
        st.caption(view.pairs_reading(kind, source, len(pairs)))
        for number, column in enumerate(st.columns(3)):
            with column:
                rows(pairs[number::3])
    else:
        nothing("No two evaluation samples of this kind have this cosine.")
    if source == data.QUEUE:
        slots = view.slot_table(run, checkpoint, kind, bar)
        st.caption(view.slots_reading(len(slots)))
        if len(slots):
            numbers(slots, "slots")


st.title("Similarity of positives and negatives")
guide(PURPOSE, HOW_TO_READ, CITATION)
run = current_run()
checkpoint = step_slider(run) if run else None
if run is not None and checkpoint is not None:
    with section():
        step(run, checkpoint)
