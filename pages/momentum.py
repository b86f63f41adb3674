"""Momentum: what m, K and the method did to runs, beside the paper's own numbers."""

import streamlit as st

from moco_core.dashboard import loaders, readings, sweep_views, sweeps
from moco_core.dashboard.figures import momentum as figures
from moco_core.dashboard.figures import sweep_panels
from moco_core.dashboard.selection import run_multipicker, store, trained_runs
from moco_core.dashboard.sweep_picker import sweep_picker
from moco_core.dashboard.widgets import chart, downloads, guide, nothing, problem
from moco_core.runs import RunError

LIVE_SECONDS = 5.0

PURPOSE = "What momentum, queue length and the source of negatives did to runs, beside the figures of He et al. (2019)."
HOW_TO_READ = """
The key encoder follows the query encoder slowly: θ_k ← m·θ_k + (1 − m)·θ_q. Two questions decide m and K:

- **Are the keys in the queue consistent?** While a key waits K/B steps, the encoder moves by about (1 − m)·K/B, the
  *turnover*. Far below 1 the whole queue comes from one encoder. The gradient cosine and K\\* measure it.
- **Does the key encoder keep up?** It needs about ln ½ / ln m steps to forget half of its past, its *half-life*. After
  a run as long as that, half of the key encoder is still the random weights of its start.

Runs that differ only in their seed are averaged; ± is their standard deviation. Losses compare only at equal K and τ.
"""
CITATION = (
    "He et al. 2019, section 4.1: momentum ablation (K = 4096) and the comparison of three ways to get negatives; "
    "ImageNet, ResNet-50, linear probe. Memory bank: Wu et al. 2018."
)


def live() -> None:
    """Everything that changes while runs train, from top to bottom."""
    sweep_picker(list(store()))
    offered = trained_runs()
    runs = run_multipicker("Runs", runs=offered)
    if not runs:
        if offered:
            nothing("No run is chosen: choose one or more above.")
        return
    outcomes = [sweeps.outcome(run, loaders.history, loaders.drift) for run in runs]
    for one in outcomes:
        if one.problem:
            problem(RunError(one.problem), f"The staleness of {one.run_id} is left out")
    groups = sweeps.grouped(outcomes)

    st.subheader("All settings")
    st.markdown(readings.best_setting(groups))
    table = sweep_views.table(groups)
    st.caption(
        "Each setting at its newest snapshot; the lowest K\\* and gradient cosine are those of the worst one, early "
        "as a rule; the loss is the mean of the last tenth of the logged steps."
        + ("" if sweep_views.along_negatives_alone(groups) else readings.GREY_COLUMN)
        + readings.lower_bounds(groups)
    )
    st.dataframe(sweep_views.styled(table), hide_index=True, key="settings")
    downloads("momentum_table", lambda: sweep_views.numbers(groups))

    scales = sweep_views.timescales(groups)
    by_momentum = sweep_views.momentum_panels(groups)
    by_negatives = sweep_views.negatives_panels(groups)
    by_method = sweep_views.methods(groups)
    if scales and not by_momentum and not by_negatives and len(by_method) == 1:
        nothing(
            "There is only one momentum here: to see what momentum does, choose runs that differ in it, or start a "
            "**Momentum sweep** under **Train** in the sidebar."
        )
    if by_momentum:
        st.subheader("Along momentum")
        chart(
            sweep_panels.along_momentum(by_momentum),
            "Each quantity against 1 − m: the slower the key encoder, the further left. Dots are runs, lines their "
            "means. The grey dashed panel is the paper's own, on ImageNet; compare the shapes."
            + readings.lower_bounds(groups),
            lambda: sweep_views.curve_table(groups),
            key="by_momentum",
        )
    if by_negatives:
        st.subheader("Along queue length")
        chart(
            sweep_panels.along_negatives(by_negatives),
            readings.ALONG_NEGATIVES + readings.lower_bounds(groups),
            lambda: sweep_views.curve_table(groups),
            key="by_negatives",
        )
    if scales:
        st.subheader("Which m, which K?")
        chart(
            figures.turnover_map(sweep_views.placed(groups)),
            "Every run by momentum and queue length, coloured by the gradient cosine of its whole queue at the worst "
            "snapshot (1: as good as fresh keys). Along a grey line the encoder moves equally far while a key waits; "
            "the solid one is turnover 1: queues near it or to its upper right are stale.",
            lambda: sweep_views.curve_table(groups),
            key="turnover_map",
        )
        st.subheader("Three clocks")
        chart(
            figures.timescales(scales),
            "How long the key encoder remembers, how long a key waits, and how long the run lasts, in steps. A "
            "consistent queue wants the half-life well right of the span; a key encoder that keeps up wants it well "
            "left of the run's end. At m = 0 it is 0 and drawn at the left edge, at m = 1 endless and at the right.",
            lambda: sweep_views.timescale_table(scales),
            key="timescales",
        )
        st.markdown(readings.clocks(scales))
    else:
        nothing("None of these runs has a momentum encoder, so there is nothing to draw along momentum.")

    if len(by_method) > 1:
        st.subheader("Three ways to get negatives")
        chart(
            figures.by_method([sweeps.label(g, groups) for g in groups], sweep_views.method_panels(groups)),
            readings.METHODS + readings.lower_bounds(groups),
            lambda: sweep_views.curve_table(groups),
            key="methods",
        )


st.title("Momentum")
guide(PURPOSE, HOW_TO_READ, CITATION)
training = any(run.status.active for run in store())
st.fragment(live, run_every=LIVE_SECONDS if training else None)()
