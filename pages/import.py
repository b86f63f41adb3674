"""Import: vectors of your own become a run that every page shows."""

import streamlit as st

from moco_core.dashboard import import_form as form
from moco_core.dashboard.import_file import named_file, opened
from moco_core.dashboard.selection import RUN, choose_run, store
from moco_core.dashboard.text import plain
from moco_core.dashboard.widgets import guide, problem

PURPOSE = "Vectors from any encoder: a file becomes a run that the other pages show."
HOW_TO_READ = """
Bring a file of vectors from any encoder: one row a sample. It becomes a run with one step, and the pages that can say
something about vectors show it: **Projection**, **Geometry**, **Similarity** and **Compare**.

- **Labels** colour the points and make kNN votes, tolerance and the confusion matrix possible; text or whole numbers,
  empty or negative where unknown.
- **Names** are shown on hover and in galleries, and can be searched for. Two files are compared by name.
- **Images** are shown instead of names: a column of paths (relative to the file), or a folder.
- A **second view** of each row, such as the vector of a changed image or of a paraphrase, makes positive pairs: with
  it, alignment and the positives of *Similarity* can be measured.
- Vectors are scaled to length 1, as cosines need it; spectrum and effective rank also show them as they came.

What belongs to training, such as queue, momentum and loss, can't be told from vectors, and those pages say so.
"""
FORMATS = (
    "Read are .npy, .npz, Parquet, CSV and TSV (TensorBoard projector files among them) and safetensors. Pickles, "
    "which .pt and .pkl files are, can run any code when they are read, and are never opened."
)
NUMPY = """
import numpy as np

found = {"embeddings": x, "labels": y, "names": names}
np.savez("mine.npz", **found)
"""
PANDAS = """
import pandas as pd

table = pd.DataFrame(x).add_prefix("x")
table = table.assign(label=y, name=names)
table.to_parquet("mine.parquet")
"""
DONE = "_import_done"


def page() -> None:
    """Everything below the guide, from top to bottom."""
    files = named_file()
    if files is None:
        st.caption(
            "Two ways to save vectors (`x`, N×D), labels and names (`y`, `names`, N each) so that all is found:"
        )
        left, right = st.columns(2)
        left.code(NUMPY.strip(), language="python")
        right.code(PANDAS.strip(), language="python")
        st.caption(
            "The same on the command line, for files of any size: `python -m moco_core import mine.npz`."
        )
        return
    content = opened(files, form.reserved(files))
    st.markdown(form.facts(content))
    st.dataframe(form.first_rows(content), hide_index=True, key="first_rows")
    chosen = form.choices(content, files)
    if chosen.labels in content.used:
        st.rerun()  # the column is no longer one of the vectors'
    st.caption(form.label_line(content, chosen))
    name = st.text_input("Name of the run", value=content.path.stem, key=f"import_name-{content.path}")
    if st.button("Import", type="primary", icon=":material/upload_file:", disabled=not name.strip()):
        make(content, chosen, name.strip())
    done(content)


def make(content: form.Content, chosen: form.Choices, name: str) -> None:
    """Import, and show the way to the pictures."""
    with st.spinner("Measuring and writing …", show_time=True):
        run_id = form.imported(store().root, content, chosen, name)
    choose_run(run_id)
    st.session_state[DONE] = content.path, run_id
    st.rerun()  # the sidebar offers the new run


def done(content: form.Content) -> None:
    """Where to look at the run that was made of this file, once it was."""
    path, run_id = st.session_state.get(DONE, (None, ""))
    if path != content.path or run_id not in store():
        return
    run = store()[run_id]
    st.success(f"{plain(run.name)} is imported: {len(run.eval_set):,} vectors.", icon=":material/check:")
    with st.container(horizontal=True):
        for target, label, icon in (
            ("projection", "Projection", ":material/scatter_plot:"),
            ("geometry", "Geometry", ":material/straighten:"),
            ("similarity", "Similarity", ":material/bar_chart:"),
        ):
            st.page_link(f"pages/{target}.py", label=label, icon=icon, query_params={RUN: run_id})


st.title("Import vectors")
guide(PURPOSE, HOW_TO_READ, FORMATS)
try:
    page()
except (ValueError, OSError) as error:
    problem(error, "This file can't be imported")
