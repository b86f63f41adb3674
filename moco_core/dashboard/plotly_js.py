"""plotly.js for our own components, served from the installed plotly package: nothing comes from outside."""

from __future__ import annotations

from pathlib import Path

import plotly
import streamlit as st
from streamlit.components.v1 import declare_component


def load_plotly() -> None:
    """Have the browser fetch plotly.js (4.8 MB) while the page is still being put together.

    Our components find it as `globalThis.Plotly`; whoever waits in the shelf is called once it is there.
    """
    _loader(key="plotly_js", data=f"component/{_served.name}/plotly.min.js?{plotly.__version__}")


# Components of the first kind have a folder that the server gives out: the browser can fetch from it while other
# messages come in, compile beside its main thread and keep what it has. This one is never drawn.
_served = declare_component("js", path=Path(plotly.__file__).parent / "package_data")

_loader = st.components.v2.component(
    "moco_lens_plotly",
    js="""
const shelf = (globalThis.mocoShelf ??= { packs: new Map(), waiting: new Set() });

export default function ({ data }) {
  if (document.getElementById("moco-plotly")) return;
  const script = document.createElement("script");
  script.id = "moco-plotly";
  script.src = new URL(data, document.baseURI);
  script.onload = () => {
    for (const redraw of [...shelf.waiting]) redraw();
  };
  script.onerror = () => script.remove(); // the next run of the page tries again
  document.head.append(script);
}
""",
)
