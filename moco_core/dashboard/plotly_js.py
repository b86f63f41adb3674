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
    st.html(_LOADER, unsafe_allow_javascript=True)


# Components of the first kind have a folder that the server gives out: the browser can fetch from it while other
# messages come in, compile beside its main thread and keep what it has. This one is never drawn.
_served = declare_component("js", path=Path(plotly.__file__).parent / "package_data")

# A script of the page's own, as components are mounted only after the parts of Streamlit that they need have come.
_LOADER = f"""
<script>
{{
  const shelf = (globalThis.mocoShelf ??= {{ packs: new Map(), waiting: new Set() }});
  if (!document.getElementById("moco-plotly")) {{
    const script = document.createElement("script");
    script.id = "moco-plotly";
    script.src = new URL("component/{_served.name}/plotly.min.js?{plotly.__version__}", document.baseURI);
    script.onload = () => {{
      for (const redraw of [...shelf.waiting]) setTimeout(redraw); // the browser can answer in between
    }};
    script.onerror = () => script.remove(); // the next page tries again
    document.head.append(script);
  }}
}}
</script>
"""
