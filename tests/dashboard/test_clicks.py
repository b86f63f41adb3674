"""A click in a chart is news once."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def test_a_click_is_news_once():
    def script():
        import streamlit as st

        from moco_core.dashboard.clicks import news

        clicks = st.session_state.get("clicks", [[1], [1], None, [1], [2]])
        st.session_state["seen"] = [news("chart", click) for click in clicks]

    app = AppTest.from_function(script).run()
    assert app.session_state["seen"] == [True, False, False, False, True]
