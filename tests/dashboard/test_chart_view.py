"""What a chart sends to the browser."""

import json

import numpy as np
import plotly.graph_objects as go
import pytest
import streamlit  # noqa: F401  sets a template of stand-ins that only its own charts fill in
from streamlit.testing.v1 import AppTest

from moco_core.dashboard.chart_view import COLUMN, _is_drawn, _written, plain_json
from tests.charts import charts


def test_a_figure_travels_without_a_template():
    figure = go.Figure(go.Bar(x=["a", "b"], y=np.array([1.5, np.nan])), {"height": 300, "template": "plotly"})
    spec = json.loads(plain_json(figure))
    assert "template" not in spec["layout"]
    assert spec["layout"]["height"] == 300
    assert spec["data"][0]["x"] == ["a", "b"]
    assert figure.layout.template.layout.colorway  # its own is left alone


def test_a_figure_is_written_once_and_another_one_anew():
    first = go.Figure(go.Bar(x=[1], y=[2]))
    written = _written(first)
    assert written == (first, plain_json(first))
    assert _written(first)[1] is written[1]
    assert _written(go.Figure(go.Bar(x=[1], y=[3])))[1] != written[1]


def script():
    import plotly.graph_objects as go
    import streamlit as st

    from moco_core.dashboard.chart_view import draw_chart

    figure = go.Figure(go.Bar(x=[1], y=[2], customdata=[[7, "x"]]))
    st.session_state["got"] = draw_chart(figure, key="c", summary="Bars.", clickable=True)


def test_a_chart_is_drawn_and_nothing_is_clicked_yet():
    app = AppTest.from_function(script).run()
    assert not app.exception
    assert app.session_state["got"] is None
    assert len(charts(app)) == 1
    sent = json.loads(app.get("bidi_component")[0].proto.json)
    assert (sent["summary"], sent["height"], sent["clickable"]) == ("Bars.", 450, True)
    assert sent["width"] == COLUMN


@pytest.mark.parametrize(
    ("click", "drawn"),
    [
        ([7, "x"], True),
        ([8, "y"], True),
        ([3, 4.5], True),
        ([7, "y"], False),  # of the figure that stood here before
        ([7], False),
        ([], False),
        ([[7, "x"]], False),
        ([None, {}], False),
        ("7x", False),
        ({"0": 7, "1": "x"}, False),
        (None, False),
    ],
)
def test_only_what_is_drawn_can_be_clicked(click, drawn):
    figure = go.Figure(
        [
            go.Bar(x=[1, 2], y=[2, 3], customdata=[[7, "x"], [8, "y"]]),
            go.Scatter(x=[1], y=[1], customdata=np.array([[3, 4.5]])),
            go.Scatter(x=[1, 2], y=[1, 2], customdata=[7, 8]),
            go.Scatter(x=[1], y=[1]),
        ]
    )
    assert _is_drawn(figure, click) is drawn
