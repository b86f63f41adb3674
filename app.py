"""MoCo Lens: the server and the frame around every page. Start it with `streamlit run app.py`."""

import signal
from pathlib import Path

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

from moco_core.dashboard.first_picture import drawn_route, from_the_top
from moco_core.dashboard.plotly_js import load_plotly, plotly_route
from moco_core.dashboard.selection import run_picker
from moco_core.dashboard.training_panel import training_panel

DASHBOARD = Path(__file__).parent / "moco_core/dashboard"
PAGES = (
    ("runs", "Runs", ":material/table_rows:"),
    ("projection", "Projection", ":material/scatter_plot:"),
    ("geometry", "Geometry", ":material/straighten:"),
    ("similarity", "Similarity", ":material/bar_chart:"),
    ("queue", "Queue", ":material/hourglass_bottom:"),
    ("momentum", "Momentum", ":material/speed:"),
    ("compare", "Compare", ":material/compare:"),
    ("sphere", "Sphere", ":material/public:"),
    ("import", "Import", ":material/upload_file:"),
)


def view() -> None:
    """What is run at each look at a page."""
    from_the_top()
    st.set_page_config("MoCo Lens", str(DASHBOARD / "icon.svg"), layout="wide")
    page = st.navigation(
        [
            st.Page(f"pages/{name}.py", title=title, icon=icon, url_path=name, default=name == "runs")
            for name, title, icon in PAGES
        ]
    )
    with st.container(gap=None):  # only the last of these takes room
        load_plotly((DASHBOARD / "page.css").read_text("utf-8"))
        body = st.container()
    with st.sidebar:
        run_picker()
        training_panel()
    with body:
        page.run()


if __name__ == "__main__":
    view()
else:  # imported by `streamlit run`, which serves what it finds here
    # Until `st.navigation` was called once, Streamlit takes `pages/` for its older way of listing pages: a link to a
    # page would open it without this file around it.
    PagesManager.uses_pages_directory = False
    # End as Ctrl-C does: else these end the process at once, and its temporary folders stay.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # as `nohup` wants it
            signal.signal(ending, lambda *_: signal.raise_signal(signal.SIGINT))
    folder = f"/{st.get_option('server.baseUrlPath').strip('/')}/".replace("//", "/")
    app = st.App(__file__, routes=[plotly_route(folder), drawn_route(folder)])
