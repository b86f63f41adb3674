"""Geometry: how an embedding space is spread out, and whether it has collapsed."""

import streamlit as st

from moco_core.dashboard import geometry_data as data
from moco_core.dashboard import geometry_view as view
from moco_core.dashboard import loaders
from moco_core.dashboard.clicks import news
from moco_core.dashboard.explorer import explorer
from moco_core.dashboard.figures.alignment_plane import alignment_plane
from moco_core.dashboard.figures.circle import circle_density_chart
from moco_core.dashboard.figures.class_profile import SHOWN, class_profile
from moco_core.dashboard.figures.confusion import confusion_chart
from moco_core.dashboard.figures.hubness import hubness_chart
from moco_core.dashboard.figures.spectrum import spectrum_chart
from moco_core.dashboard.gallery import gallery, rows
from moco_core.dashboard.legend import in_order
from moco_core.dashboard.sections import section
from moco_core.dashboard.selected import chosen_gallery
from moco_core.dashboard.selection import current_run, labels, run_multipicker, step_slider, sweep_of
from moco_core.dashboard.sphere_run import draw_run
from moco_core.dashboard.widgets import chart, downloads, guide, nothing, one_of
from moco_core.runs import Checkpoint, Run

PURPOSE = "Whether views of one sample lie together and different samples apart, or everything in one place."
HOW_TO_READ = """
A good embedding does two things at once: it puts two views of one sample **close together** (alignment, lower is
better) and it **spreads** different samples over the whole sphere (uniformity, lower is better). A network can get
perfect alignment by mapping everything to one point. That is *complete collapse*. It can also use only a few of its
directions: *dimensional collapse*, seen as a spectrum that drops to the floor and a low **effective rank**.

- **Tolerance** is the mean cosine between different samples of one class. High tolerance with good uniformity means
  that classes hold together while the space stays spread out.
- A **hub** is a sample that is among the nearest of very many others. Hubs spoil nearest-neighbour search; they
  come with high dimensions and with poor spread.
- The **confusion matrix** lets each sample's neighbours vote for its class. Its off-diagonal cells are the pairs of
  classes that the space doesn't keep apart.

Alignment, uniformity and tolerance are taken on the query embeddings (the projector's output) at unit length, the
spectrum and the effective rank on the vectors as they are. The collapse check counts *directions in use* on unit
vectors around their mean, so its number is not the effective rank: features that share a large mean rank low and may
still vary in many directions.
"""
CITATION = (
    "Alignment and uniformity: Wang & Isola 2020 (α = 2, t = 2). Tolerance: Wang & Liu 2021. Spectrum and dimensional "
    "collapse: Jing et al. 2022. Effective rank: RankMe, Garrido et al. 2023. Hubness: Radovanović et al. 2010. "
    "Weighted kNN vote: Wu et al. 2018."
)
VERDICTS = {"complete": st.error, "dimensional": st.warning, "none": st.success}


def step(run: Run, checkpoint: Checkpoint) -> None:
    """What one step of one run looks like, from top to bottom."""
    dim, layers, images = data.dimension(run, checkpoint), data.layers(run, checkpoint), loaders.eval_set(run)
    with section("Has it collapsed?"):
        for layer in layers:
            found = data.collapse(run, checkpoint, layer)
            VERDICTS[found.verdict](f"{loaders.layer_name(run, layer).capitalize()}. {found.sentence}")

    if dim == 2:
        with section("On the circle, undistorted"):
            left, right = st.columns(2)
            with left:
                st.caption(
                    "The embeddings have two dimensions, so this is where they are, not a projection. Hover for the "
                    "samples, lasso some to see them below."
                )
                done = explorer(
                    "circle",
                    [view.circle_pane(run, checkpoint)],
                    images,
                    str(run.info.get("eval_set_sha256")),
                    height=520,
                )
                downloads("circle_points", lambda: view.coordinates_table(run, checkpoint), of=[checkpoint])
            with right:
                circle = data.circle(run, checkpoint)
                chart(
                    circle_density_chart(circle.angle, circle.density),
                    "How densely they lie by angle: the further out the band, the more. The dashed ring is an even "
                    "spread.",
                    circle.table,
                    key="circle_density",
                    of=[checkpoint],
                )
            if len(done.rows):
                chosen_gallery(run, checkpoint, done.rows, "query", "Selected", "page_selected")
    elif dim == 3:
        with section("On the sphere, undistorted"):
            st.caption(
                "The embeddings have three dimensions, so this is where they are, not a projection. Drag to "
                "turn it, hover for the samples."
            )
            draw_run(run, checkpoint, key="sphere")
            downloads("sphere_points", lambda: view.coordinates_table(run, checkpoint), of=[checkpoint])

    with section("Spectrum"):
        spectra = data.spectra(run, checkpoint)
        chart(
            spectrum_chart(spectra),
            "Natural log of the singular values of the covariance, largest first. A flat line means that all "
            "directions are used alike, a cliff that those beyond it are dead. The dotted lines are the effective "
            "ranks (RankMe, of the vectors as they are, mean included).",
            lambda: view.spectrum_table(spectra),
            key="spectrum",
            of=[checkpoint],
        )

    with section("Class by class"):
        if not images.labelled:
            nothing("The samples of this run have no labels, so there are no classes to compare.")
        else:
            classes = data.classes(run, checkpoint)
            many = f" Of {len(classes.names):,} classes the {SHOWN} at the two ends are drawn." * (
                len(classes.names) > SHOWN
            )
            chart(
                class_profile(classes.names, classes.alignment, classes.tolerance),
                "Tolerance (right: the class holds together)"
                + " and alignment (left: its views agree)" * (classes.alignment is not None)
                + f" of each class; dashed, the mean over classes.{many}",
                classes.table,
                key="classes",
                of=[checkpoint],
            )

    left, right = st.columns(2)
    with left:
        layer = one_of("Neighbours in the", {name: loaders.layer_name(run, name) for name in layers}, "layer")
    k = right.slider("Neighbours k", 1, 100, 20, key="k", bind="query-params")

    with section("Hubs"):
        with st.spinner("Finding all nearest neighbours …", show_time=True):
            hubs = data.hubness(run, checkpoint, k, layer)
        st.markdown(view.hubness_reading(hubs))
        chart(
            hubness_chart(hubs.occurrence, hubs.k),
            f"How many samples have how many others that count them among their {hubs.k} nearest. The mean is always "
            f"{hubs.k}; a long tail to the right means hubs.",
            lambda: view.hubness_table(hubs, images),
            key="hubness",
            of=[checkpoint],
        )
        st.caption("The samples that are neighbours of the most others.")
        gallery(view.hub_cards(hubs, images))

    with section("Which classes are confused?"):
        if not images.labelled:
            nothing("The samples of this run have no labels, so neighbours have nothing to vote for.")
        else:
            matrix = data.confusion(run, checkpoint, k, layer)
            click = chart(
                confusion_chart(matrix.counts, matrix.totals, matrix.names),
                view.confusion_reading(matrix, loaders.layer_name(run, layer)),
                matrix.table,
                key="confusion",
                of=[checkpoint],
                clickable=True,
            )
            pick_cell(run, checkpoint, k, layer, matrix, click)


def pick_cell(
    run: Run, checkpoint: Checkpoint, k: int, layer: str, matrix: data.Confusion, click: list[int] | None
) -> None:
    """Choose a cell by click or by name, and see its samples beside the neighbours that voted."""
    options = dict(zip(matrix.choices, matrix.labels.tolist(), strict=True))
    if news("_cell", click):
        st.session_state["true"], st.session_state["vote"] = (matrix.choices[i] for i in click[:2])
    left, right = st.columns(2)
    true = left.selectbox("True class", options, index=None, key="true", bind="query-params")
    vote = right.selectbox("Vote of the neighbours", options, index=None, key="vote", bind="query-params")
    if true is None or vote is None:
        st.caption("Click a cell, or choose two classes, to see its samples.")
        return
    found = data.cell(run, checkpoint, k, layer, options[true], options[vote])
    if not len(found):
        nothing("No sample of that class has that vote.")
        return
    st.caption(view.cell_reading(len(found)))
    rows(view.cell_cards(run, checkpoint, k, layer, found))


st.title("Geometry of the embedding space")
guide(PURPOSE, HOW_TO_READ, CITATION)
run = current_run()
if run is not None:
    with section("Alignment and uniformity over training"):
        runs = in_order(run_multipicker("Runs in the plane", default=sweep_of(run)))
        paths = [data.path(one, name) for one, name in zip(runs, labels(runs).values(), strict=True)]
        if missing := view.no_plane(runs, paths):
            nothing(missing)
        elif runs:
            chart(
                alignment_plane(paths, data.ideals(runs)),
                "Each line is a run, from its first snapshot to its newest (the large marker). Down and to the left is "
                "better. A run whose line ends far to the right has collapsed. A dashed line is the uniformity of "
                "points spread evenly over the sphere: no large set can be further left."
                + view.left_out(paths),
                lambda: view.path_table(paths),
                key="plane",
            )
    checkpoint = step_slider(run)
    if checkpoint is not None:
        with section():
            step(run, checkpoint)
