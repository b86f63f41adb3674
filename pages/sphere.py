"""MoCo on a sphere: six classes, each a query and a key, that can be watched while they learn."""

import streamlit as st

from moco_core import jobs
from moco_core.config import ConfigError, TrainConfig
from moco_core.dashboard import curves_view
from moco_core.dashboard import sphere_controls as controls
from moco_core.dashboard.selection import store
from moco_core.dashboard.sphere_curves import panels, table
from moco_core.dashboard.sphere_formulas import formulas, vectors
from moco_core.dashboard.sphere_lessons import lesson_of
from moco_core.dashboard.sphere_readouts import SIDES, readouts, series
from moco_core.dashboard.sphere_run import is_active, live_run, on_the_sphere
from moco_core.dashboard.sphere_scene import draw_experiment
from moco_core.dashboard.text import plain
from moco_core.dashboard.widgets import downloads, nothing, numbers
from moco_core.runs.files import reason

FAST, SLOW, CALM = 1 / 8, 1.0, 2.0  # seconds between looks: at points; curves; formulas and training

st.title("MoCo on a sphere")
st.markdown(
    "Momentum contrast with the images and the networks taken away. Six classes; each has a query **q** and a "
    "key **k**, points on a sphere. A step picks one class, pulls its q towards its own k, pushes it away from "
    "all keys in the queue, lets k follow q slowly, and puts k in the queue; *How it works*, below, says why. Start "
    "with a lesson, then move a slider while it runs. Drag the sphere to turn it, scroll or pinch to zoom, hover to "
    "name a point."
)
controls.lessons()
rate, seed, two = controls.transport()
settings = [controls.sliders(number, SIDES[number] if two else "") for number in range(1 + two)]
for side, each in zip(SIDES, settings, strict=False):
    if lesson := lesson_of(each):
        st.info(f"**{lesson.name}{f' ({side})' if two else ''}.** {lesson.watch}")
lab = controls.lab(settings, seed)


def spheres() -> None:
    """What moves."""
    controls.tick(rate)
    for number, (column, experiment) in enumerate(
        zip(st.columns(len(lab.experiments)), lab.experiments, strict=True)
    ):
        with column:
            draw_experiment(experiment, key=f"sphere{number}")
            readouts(experiment)


def explanation() -> None:
    """The last step, in numbers."""
    st.subheader("The last step, by hand")
    for column, side, experiment in zip(
        st.columns(len(lab.experiments)), SIDES, lab.experiments, strict=False
    ):
        with column:
            if two:
                st.markdown(f"**{side.capitalize()}**")
            if experiment.last is None:
                nothing("No step yet: press Step, and its numbers appear here.")
            else:
                st.markdown(formulas(experiment.last))
                with st.expander("Its vectors"):
                    numbers(vectors(experiment.last), f"vectors_{side}")


def curves() -> None:
    """All steps so far."""
    drawn = series(lab.experiments)
    st.subheader("Curves")
    if not len(drawn[0].columns["step"]):
        nothing("Nothing to draw yet: the curves begin with the second step, the first that has a negative.")
        return
    st.caption(
        "**Left:** the loss, between *chance* ln(K+1), where nothing is told apart, and *octahedron*, its value "
        "once the classes are as far apart as six can be and the queue is full; both move with K and τ, so losses "
        "at different K or τ do not compare. **Middle:** the cosine of q with its positive and, on average, with "
        "the queue. **Right:** the cosine between two classes' queries, for the closest two and on average."
    )
    curves_view.draw(
        panels(drawn),
        x_title="step",
        summary=f"Loss and cosines over {lab.experiments[0].sphere.steps} steps.",
        key="sphere-curves",
    )
    downloads("sphere-curves", lambda: table(drawn))


moving = controls.running()
left, right = (st.container(), st.container()) if two else st.columns([3, 2], gap="medium")
with left:
    st.fragment(spheres, run_every=FAST if moving else None)()
with right:
    st.fragment(explanation, run_every=CALM if moving else None)()
st.fragment(curves, run_every=SLOW if moving else None)()

st.header("The same on real images")
st.markdown(
    "An encoder whose embedding has three numbers puts real images on the same sphere. It is the same algorithm: "
    "a step takes a batch instead of one class, the two points of a pair are two distorted views of one image, "
    "and what moves is the encoder's weights, so that all points move at once."
)
if st.button("Train digits in 3-D", icon=":material/play_circle:", key="sphere.train"):
    try:
        st.session_state["real"] = jobs.submit(TrainConfig(dim=3, name="digits in 3-D"), store().root)
        st.rerun()  # the sidebar shows its progress
    except (ConfigError, OSError) as error:
        st.error(f"This run can't be started: {plain(reason(error))}")
runs = on_the_sphere(store())
if not runs:
    nothing("No run with D = 3 yet. Train one with the button: it takes about half a minute on a laptop.")
else:
    chosen = st.selectbox("Run", runs, format_func=runs.__getitem__, key="real", bind="query-params")
    training = is_active(chosen)

    def real() -> None:
        """The chosen run as it is now."""
        live_run(chosen, key="sphere-real")
        if training and not is_active(chosen):
            st.rerun()  # nothing more to wait for

    st.fragment(real, run_every=CALM if training else None)()

st.header("How it works")
st.markdown(
    r"""
Contrastive learning needs no labels: two views of one image shall lie together, and views of other images, the
*negatives*, apart. The more negatives, the more an encoder must see in an image to tell it from all of them; but to
encode thousands anew at each step costs too much. MoCo therefore keeps the keys of past steps, in a **queue**. These
were written by older encoders, and are of use only as long as those agree: hence a second encoder for the keys, which
follows the first one **slowly**.

Each class has two points: its query $q$, which learns, and its key $k$, which only follows. A step draws one class
as the **anchor** and asks: among my own key and the $K$ keys in the queue, which is mine? The softmax of the
cosines over $\tau$ is the answer, $p^+$ the share that the right one gets, and $-\ln p^+$ the loss.

- **Pull and push.** The step moves $q$ along $g = (1-p^+)\,k^+ - \sum_i p_i k_i$, which is the loss's downhill
  direction times $\tau$. The surer the answer, the weaker the pull; each negative pushes with its own share. Only
  the part along the sphere counts, for length means nothing to a cosine.
- **Temperature.** $p_i$ falls by a factor $e$ for every $\tau$ of cosine. A small $\tau$ listens to the nearest
  negatives alone; a large one lets all of them push alike, near or far.
- **Momentum.** $k$ closes $1-m$ of the distance to $q$ at a time. Slow keys are what makes the queue consistent: keys
  written long ago still lie where their class is now.
- **Queue.** Negatives cost nothing, because they were computed for earlier steps. A longer queue knows more of
  the space and is older on average; what matters is how far keys travel while they wait, which goes with $(1-m)\,K$.
- **False negatives.** A sixth of the queue belongs to the anchor's own class and pushes it away from itself.
  That is why the loss comes to rest near the *octahedron* line, however well the classes are separated.
"""
)
carries, differs = st.columns(2, gap="large")
carries.markdown(
    r"""
**What carries over to 128 or 2048 dimensions**

- The loss, its gradient, the momentum update and the queue: training runs these very formulas.
- What $\tau$ does, and that losses at different $K$ or $\tau$ do not compare.
- The trade between $m$ and $K$: keys must not travel far while they wait in the queue.
- That false negatives push apart what belongs together, in proportion to their share.
"""
)
differs.markdown(
    r"""
**What doesn't**

- *Room.* Six classes are crowded in 3-D. In $D$ dimensions $D+1$ directions can all be apart by the same cosine,
  $-1/D$, and random ones are nearly at right angles: cosines of $0 \pm 0.09$ at $D = 128$, $\pm 0.02$ at 2048.
- *Freedom.* Here every point moves alone. A network's weights move all points at once: that is how it learns
  about images it never saw, and also how it collapses. With $m = 0$ these points only wander; a network ends with
  every image in one place and its loss at $\ln(K+1)$.
- *Classes.* Here an anchor knows its class. In training the positive is another view of the same image, and
  classes form, if they do, because like images are encoded alike.
- *Pace.* Here a step writes one key and moves one of six. In training a step writes $B$ keys and moves them all, so
  a key waits $K/B$ steps, during which every key moves.
"""
)
