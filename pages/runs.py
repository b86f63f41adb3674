"""Runs: what has been trained, how well, and what to do with it."""

import streamlit as st

from moco_core import jobs
from moco_core.dashboard.figures.loss_curves import loss_curves
from moco_core.dashboard.losses import logged_losses, loss_rows
from moco_core.dashboard.run_actions import run_actions
from moco_core.dashboard.runs_table import matching, pick_rows, runs_table
from moco_core.dashboard.selection import labels, newest_runs, store
from moco_core.dashboard.widgets import chart, nothing

LIVE_SECONDS = 3.0
LOSS_CAPTION = (
    "Loss of the selected runs, or of the newest sweep, the newest run and all that train now when none is selected, "
    "from the step at which the queue was full, or from the first while it isn't. **Chance** is what an encoder that "
    "tells nothing apart would get, ln(K + 1); the **floor** is what perfect positives and evenly spread negatives "
    "would reach. Compare losses only between runs of equal K and τ."
)

START_HERE = """
There are no runs here yet. To make one:

- open **Train** in the sidebar and press **Start**: the defaults train an encoder on handwritten digits in
  about a minute on two CPU cores. **Momentum sweep** trains four, at m = 0, 0.9, 0.99 and 0.999, and shows what
  the momentum encoder is for;
- bring vectors of your own on the **Import** page;
- or on the command line: `python -m moco_core train`, `python -m moco_core sweep`.

A run appears here as soon as it starts, and on every page with each snapshot it takes. The **Sphere** page
needs no run: it shows momentum contrast on three-dimensional unit vectors.
"""


def live() -> None:
    """Everything that changes while runs train, from top to bottom."""
    runs = list(store())
    tickets = jobs.tickets(store().root, runs)
    text = st.text_input("Filter", key="filter", bind="query-params", placeholder="name, data set, state, …")
    found = matching(runs, text)
    if not found:
        nothing("No run matches this filter.")
        return
    ids = pick_rows(runs_table(found, tickets, labels(runs)))
    chosen = [run for run in found if run.id in ids]
    run_actions(chosen, found)

    st.subheader("Loss")
    drawn = chosen or newest_runs(runs)
    curves = logged_losses(drawn)
    if curves:
        chart(loss_curves(curves), LOSS_CAPTION, lambda: loss_rows(curves), key="losses")
    elif drawn and all(run.problem is None and run.config.imported for run in drawn):
        nothing("Imported vectors have no loss curve: they were trained elsewhere.")
    else:
        nothing("Nothing logged yet: a curve appears with the first steps.")


st.title("Runs")
st.markdown("What has been trained or imported here, how far it came, and how good it is.")
runs = list(store())
if runs:
    active = any(run.status.active for run in runs)
    st.fragment(live, run_every=LIVE_SECONDS if active else None)()
else:
    st.markdown(START_HERE)
