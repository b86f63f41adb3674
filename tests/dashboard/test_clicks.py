"""What a chart's event says was clicked."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from moco_core.dashboard.clicks import clicked


@pytest.mark.parametrize("data", [["positives", 3, 12], {"0": "positives", "1": 3, "2": 12}])
def test_a_click_is_what_its_builder_wrote(data):
    assert clicked({"selection": {"points": [{"x": 1, "y": 0, "customdata": data}]}}) == ["positives", 3, 12]


@pytest.mark.parametrize(
    "event",
    [None, {}, {"selection": {}}, {"selection": {"points": []}}, {"selection": {"points": [{"x": 1}]}}],
)
def test_no_click_is_none(event):
    assert clicked(event) is None


def test_a_click_is_news_once():
    def script():
        import streamlit as st

        from moco_core.dashboard.clicks import news

        clicks = st.session_state.get("clicks", [[1], [1], None, [1], [2]])
        st.session_state["seen"] = [news("chart", click) for click in clicks]

    app = AppTest.from_function(script).run()
    assert app.session_state["seen"] == [True, False, False, True, True]
