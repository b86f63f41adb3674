"""A chart comes with its sentence, its downloads and nothing from the network; refusals are plain sentences."""

import io

import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from moco_core.dashboard import widgets
from moco_core.dashboard.palette import CLASS_COLOURS
from moco_core.runs import Run
from tests.charts import charts
from tests.synthetic import write_run

TABLE = pd.DataFrame({"name": ["<b>ä</b>", "a,b"], "value": [1.5, float("nan")]})


def script():
    import pandas as pd
    import plotly.graph_objects as go
    import streamlit as st

    from moco_core.dashboard import widgets

    st.session_state.setdefault("made", 0)

    def table():
        st.session_state.made += 1
        return pd.DataFrame({"x": [1]})

    widgets.guide("What for.", "The *one* sentence.", "Somebody 2020")
    widgets.chart(go.Figure(go.Bar(x=[1], y=[2])), "What it **shows**.", table, "some_key")
    widgets.nothing("Nothing yet.")
    widgets.problem(ValueError("x must be <b>1</b>, got `2`"))


def test_what_stands_on_a_page():
    app = AppTest.from_function(script).run()
    assert not app.exception
    assert app.markdown[0].value == "What for."
    assert [caption.value for caption in app.caption] == ["Somebody 2020", "What it **shows**."]
    assert [button.label for button in app.get("download_button")] == ["CSV", "Parquet", "HTML"]
    assert len(charts(app)) == 1
    assert app.info[0].value == "Nothing yet."
    assert app.error[0].value == "This can't be shown: x must be \\<b\\>1\\</b\\>, got \\`2\\`"
    assert app.session_state.made == 0  # a table is made once someone asks for it


def test_a_table_writes_its_numbers_alike_and_keeps_them_unrounded():
    def page():
        import pandas as pd

        from moco_core.dashboard import widgets

        table = {"pairs": ["a", "b", "c"], "count": [1, 2, 3], "cosine": [0.65, -0.25891, 1.04e-6]}
        widgets.numbers(pd.DataFrame(table), "some")

    (shown,) = AppTest.from_function(page).run().dataframe
    assert shown.value["cosine"].tolist() == [0.65, -0.25891, 1.04e-6]
    written = pa.ipc.open_stream(shown.proto.arrow_data.styler.display_values).read_pandas()
    assert written.iloc[:, 2].tolist() == ["0.650", "−0.259", "1.0×10⁻⁶"]


def test_a_figure_download_needs_no_network():
    page = widgets._page(go.Figure(go.Bar(x=["a"], y=[2])), "bars-1", "Bars < lines: higher is more.")
    assert "<title>bars-1</title>" in page
    assert ">Bars &lt; lines: higher is more.</p>" in page
    assert "<script src" not in page
    assert '"showSendToCloud": false' in page
    assert len(page) > 3e6  # plotly.js itself is inside


def test_a_figure_download_has_colours_of_its_own():
    import streamlit  # noqa: F401  sets a template of stand-ins that only its own pages fill in

    figure = go.Figure(go.Bar(x=["a"], y=[2]))
    page = widgets._page(figure, "bars", "")
    assert "#000001" not in page.rpartition("Plotly.newPlot")[2]
    assert CLASS_COLOURS[0] in page.rpartition("Plotly.newPlot")[2]


def test_tables_come_back_from_parquet():
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(widgets._parquet(TABLE))), TABLE)


@pytest.mark.parametrize(
    ("key", "name"),
    [("queue_drift", "moco-lens-queue-drift"), ("../../etc x", "moco-lens-etc-x"), ("§", "moco-lens-chart")],
)
def test_file_names_are_harmless(key, name):
    assert widgets.file_name(key) == name


def test_files_are_named_after_the_checkpoints_that_they_are_of(tmp_path):
    first, second = (Run(write_run(tmp_path, name)) for name in ("m=0.99", "m=0.9"))
    assert widgets.file_name("spectrum", [first.step(0)]) == "moco-lens-spectrum-m0.99-step-0"
    both = [first.step(0), second.step(20)]
    assert widgets.file_name("class_changes", both) == "moco-lens-class-changes-m0.99-step-0-m0.9-step-20"
