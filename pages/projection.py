"""Projection: the embedding space as a picture to look around in."""

import streamlit as st

from moco_core.dashboard import loaders, projection_view
from moco_core.dashboard.explorer import explorer, picked
from moco_core.dashboard.points import Pane
from moco_core.dashboard.projection_controls import projection_controls
from moco_core.dashboard.projection_downloads import projection_downloads
from moco_core.dashboard.projections import follow, follow_snapshots, shown_projection
from moco_core.dashboard.search import find_samples
from moco_core.dashboard.selected import chosen_gallery, clicked_sample
from moco_core.dashboard.selection import current_run, step_slider
from moco_core.dashboard.text import plain
from moco_core.dashboard.widgets import guide, problem

PURPOSE = "A map of the embedding space: what the encoder finds alike lies together."
HOW_TO_READ = """
Each point is an evaluation image, or an imported vector, placed so that those with similar embeddings lie together.
**Point** at one to see it or its name; **lasso** some to see them below with their true nearest neighbours; **click**
one to see where its neighbours went; click a class in the legend to select it. Zoom and selection stay when you change
colour or step.

A good encoder has classes apart without having seen a label. One blob without order: not trained, or collapsed
(compare the *Geometry* page). Clusters that are no classes: what else do they share? Colour by *cosine to own key* to
see where both encoders disagree, by *kNN right or wrong* for the mistakes.
"""
CITATION = (
    "UMAP: McInnes, Healy & Melville 2018, arXiv:1802.03426. Trustworthiness and continuity: Venna & Kaski 2001. "
    "kNN vote: Wu et al. 2018. What such pictures can't show: Wattenberg, Viégas & Johnson 2016; Chari & Pachter 2023."
)
KEY = "projection"


def page() -> None:
    """Everything below the guide, from top to bottom."""
    run = current_run()
    checkpoint = step_slider(run) if run else None
    if run is None or checkpoint is None:
        return
    follow_snapshots(run)
    images, images_id = loaders.eval_set(run), str(run.info.get("eval_set_sha256"))
    wanted = projection_controls(run, checkpoint)
    shown = shown_projection(run, checkpoint, wanted.settings)
    follow(run, checkpoint, wanted.settings, shown)

    picture = shown.picture
    frame = projection_view.frame_of(run, checkpoint, wanted.settings, picture)
    points = projection_view.points_of(run, checkpoint, wanted.settings, picture)
    with st.spinner("Finding all nearest neighbours …", show_time=True):
        colour = projection_view.colour_of(wanted.colour, run, checkpoint, picture, wanted.k)
    found = find_samples(wanted.search, images)
    done = picked(KEY, images_id, len(images))
    if collapsed := projection_view.collapse_line(checkpoint):
        st.warning(collapsed)
    distances = projection_view.distance_line(wanted.settings, shown.preview)
    meaning = f"{projection_view.MEANING[wanted.colour]} {distances}"
    st.caption(f"{meaning} {projection_view.HANDLING[wanted.settings.dim]}")
    explorer(
        KEY,
        [Pane(points, colour)],
        images,
        images_id,
        frame=frame,
        view=f"{images_id} {wanted.settings}",
        caption=f"{run.name}, step {checkpoint.step}",
        rings=projection_view.ringed(found, done.row),
        links=projection_view.links(run, checkpoint, done.row, wanted.settings.layer),
        on_frame=lambda left: st.query_params.update(
            projection_view.address_of(run, checkpoint, wanted.settings, left)
        ),
    )
    faithfulness = projection_view.faithfulness_line(picture, frame)
    st.caption(faithfulness)
    for line in projection_view.sampling_lines(picture, images, checkpoint):
        st.caption(line)
    projection_downloads(run, checkpoint, picture, frame, points, colour, f"{meaning} {faithfulness}")

    layer = wanted.settings.layer
    if done.row is not None:
        clicked_sample(run, checkpoint, done.row, layer)
    if len(done.rows):
        chosen_gallery(run, checkpoint, done.rows, layer, "Selected", "page_selected")
    if len(found):
        chosen_gallery(run, checkpoint, found, layer, f"Found: {plain(wanted.search)}", "page_found")
    elif wanted.search:
        st.info(f"No class and no sample is called {plain(wanted.search)}.")


st.title("Projection")
guide(PURPOSE, HOW_TO_READ, CITATION)
try:
    page()
except ValueError as error:
    problem(error)
