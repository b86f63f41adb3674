"""What a chart sends to the browser."""

import json

import numpy as np
import plotly.graph_objects as go
import streamlit  # noqa: F401  sets a template of stand-ins that only its own charts fill in
from streamlit.testing.v1 import AppTest

from moco_core.dashboard.chart_view import plain_json
from tests.charts import charts


def test_a_figure_travels_without_a_template():
    figure = go.Figure(go.Bar(x=["a", "b"], y=np.array([1.5, np.nan])), {"height": 300})
    spec = json.loads(plain_json(figure))
    assert "template" not in spec["layout"]
    assert spec["layout"]["height"] == 300
    assert spec["data"][0]["x"] == ["a", "b"]
    assert figure.layout.template.layout.colorway  # its own is left alone


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
