"""Queue: how stale the stored keys are, and what that does to learning."""

import streamlit as st

from moco_core.dashboard import measured, readings
from moco_core.dashboard.figures import staleness as figures
from moco_core.dashboard.selection import (
    STEP,
    current_run,
    run_multipicker,
    step_slider,
    store,
    sweep_of,
    trained_runs,
)
from moco_core.dashboard.text import number
from moco_core.dashboard.widgets import chart, guide, nothing, numbers, one_of, problem, tiles
from moco_core.runs import RunError

LIVE_SECONDS = 5.0

PURPOSE = "How far stored keys have fallen behind the encoder that reads them, and how long a queue may therefore be."
HOW_TO_READ = """
Each key in a queue was written by an **older key encoder**. Here the identical views (same images, same
augmentation, same batch) are encoded again by the current one, and what the queue holds is compared with what an
ideal queue would hold now.

- **Drift** of a key: 1 − cosine between the stored key and the same view now. A key written by the current
  weights reads 0; that is the *control*.
- **Gradient cosine**: does a query learn in the same direction from stale keys as from fresh ones? 1 means yes.
  It is taken between the two gradients along the sphere and averaged over queries.
- **Consistent length K\\***: the longest queue, newest keys first, up to which that cosine stays at 0.99. It
  answers *how long may my queue be?*

Raw drift misleads once a run collapses: with all keys in one place, none can be far from its own. So it is also
shown divided by the **spread** of the keys, 1 − mean cosine between different samples.
"""
CITATION = "He et al. 2019, section 3.2: a dictionary must be large *and* consistent."


def live() -> None:
    """Everything that changes while runs train, from top to bottom."""
    run = current_run()
    checkpoint = step_slider(run) if run else None
    if run is None or checkpoint is None:
        return
    if run.config.imported:
        return nothing(measured.IMPORTED)
    below_slider = st.container()
    shown = measured.gather(
        run, checkpoint, run_multipicker("Compare with", runs=trained_runs(), default=sweep_of(run))
    )
    for sentence in shown.problems:
        problem(RunError(sentence), "Left out")
    if (worst := shown.least_consistent) and worst.step != checkpoint.step:
        below_slider.button(
            readings.least_consistent(worst),
            key="least_consistent",
            type="tertiary",
            icon=":material/trending_down:",
            on_click=show_step,
            args=(worst.step,),
        )

    own, drifts = shown.own, shown.drifts
    if collapse := readings.collapse(checkpoint.metrics):
        st.warning(collapse, icon=":material/compress:")
    if own is None:
        nothing(measured.why_not_measured(checkpoint, shown.queue))
    else:
        st.markdown(readings.consistency(own, shown.size))
        tiles(
            {
                "Consistent length K*": own.k_star_text,
                "Queue filled": f"{own.filled / shown.size:.0%}",
                "Gradient cosine, all keys": number(own.final_cosine),
                "Oldest keys' drift ÷ spread": number(own.oldest_relative),
                "Spread of the keys": number(own.spread),
            }
        )
        st.caption(f"{readings.measured_share(own)} {readings.control(own.control)}")
        if run.config.method == "memory-bank":
            st.caption(readings.bank(shown.size, run.config.queue_size))

    if drifts:
        st.subheader("Does learning still see the right direction?")
        chart(
            figures.gradient_cosine_by_length(drifts),
            "Cosine between the query's gradient with stored keys and with the same keys encoded now, for the "
            "newest keys up to each length. A line that stays at the dashed 0.99 is consistent; ★ marks K\\*, "
            "where it last did.",
            lambda: measured.length_table(drifts),
            key="gradient_cosine",
        )
        if len(drifts) > 1:
            numbers(measured.summary_table(drifts), "summary", column_config=measured.SUMMARY_COLUMNS)

        st.subheader("What age does to keys")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            unit = one_of("Drift", {"÷ spread": "÷ spread", "raw": "raw"}, "unit")
            log = st.toggle("Log scale", key="log", bind="query-params")
        chart(
            figures.drift_by_age(drifts, relative=unit == "÷ spread", log=log),
            "Drift of keys by the steps since they were written: the mean, with a band from the 10th to the "
            "90th percentile. Divided by the spread, 1 is as far as between two random samples. The × is the "
            "control; it must lie at 0, which a log scale leaves out." + readings.collapsed_runs(drifts),
            lambda: measured.slot_table(drifts),
            key="drift_by_age",
        )
        left, right = st.columns(2)
        with left:
            chart(
                figures.lag_by_age(drifts),
                "Distance of keys from what the *query* encoder now makes of their view. At age 0 it is the "
                "lag of the key encoder behind the query encoder; the rise from there is drift.",
                lambda: measured.slot_table(drifts),
                key="lag_by_age",
            )
            chart(
                figures.weight_by_age(drifts),
                "How much of the softmax over the negatives falls on keys of an age, against an even share (1). "
                "Above 1, keys of that age push harder than their number; a line that falls with age means "
                "that stale keys are hardly heard any more.",
                lambda: measured.slot_table(drifts),
                key="weight_by_age",
            )
        with right:
            chart(
                figures.logit_error_by_age(drifts),
                "How far the logit of a stored key is off: |q·Δk|/τ, mean over queries. Near 1, a stale "
                "negative counts e times too much or too little.",
                lambda: measured.slot_table(drifts),
                key="logit_error",
            )
            chart(
                figures.kl_by_length(drifts),
                "Divergence of the softmax with stored keys from the softmax with fresh ones, in nats, by queue "
                "length, the positive included. 0 means that the loss sees no difference.",
                lambda: measured.length_table(drifts),
                key="kl",
            )

    if shown.queue and shown.queue.filled:
        queue = shown.queue
        st.subheader("The queue itself")
        classes = measured.label_names(run, queue)
        picked = None
        if classes:
            picked = st.selectbox(
                "Mark the slots of class",
                list(classes),
                index=None,
                format_func=classes.__getitem__,
                key="class",
                bind="query-params",
            )
        marked = (queue.labels == picked).nonzero()[0] if picked is not None else queue.labels[:0]
        chart(
            figures.queue_strip(
                queue.size, measured.slot_drift(queue.filled, own), queue.ages(checkpoint.step), marked
            ),
            "Every slot from the oldest (top left) to the newest, coloured by drift; grey was not measured, blank is "
            "not filled yet. "
            + readings.false_negatives(len(marked), queue.filled, picked, classes)
            + readings.thinned(queue.filled, queue.size),
            lambda: measured.queue_table(queue, checkpoint.step, own),
            key="strip",
            of=[checkpoint],
        )

    if any(len(found) > 1 for found in shown.series):
        st.subheader("Over training")
        st.markdown(readings.over_training(shown.history))
        left, right = st.columns(2)
        with left:
            chart(
                figures.k_star_by_step(shown.series),
                "Consistent length at each snapshot; dotted, the keys there were. Where the two meet, the whole "
                "queue was consistent.",
                lambda: measured.steps_table(shown.series),
                key="k_star_steps",
            )
        with right:
            chart(
                figures.oldest_drift_by_step(shown.series),
                "Drift of the oldest keys in units of the spread. It is high while training moves fast and falls "
                "as it settles.",
                lambda: measured.steps_table(shown.series),
                key="oldest_steps",
            )
    elif own is not None:
        st.caption(readings.over_training(shown.history))

    if own is not None:
        st.subheader("Is first in, first out the right eviction?")
        st.markdown(readings.order_of_age(own.rank))
        if own.evictions:
            st.markdown(readings.best_eviction(own, figures.POLICY_NAMES))
            chart(
                figures.gradient_cosine_by_eviction(own),
                "Had the same number of keys been evicted by another rule: the gradient cosine of those it would "
                "have kept, against the same keys encoded now. Higher is better; at the right edge nothing is "
                "evicted and all rules meet.",
                lambda: measured.eviction_table(own),
                key="eviction",
                of=[checkpoint],
            )


def show_step(step: int) -> None:
    """Move the slider to this step."""
    st.query_params[STEP] = str(step)


st.title("Queue staleness")
guide(PURPOSE, HOW_TO_READ, CITATION)
training = any(run.status.active for run in store())
st.fragment(live, run_every=LIVE_SECONDS if training else None)()
