"""plotly.js for our own components, served from the installed plotly package: nothing comes from outside."""

from __future__ import annotations

from pathlib import Path

import plotly
import streamlit as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FILE = Path(plotly.__file__).parent / "package_data/plotly.min.js"
_HINT = (
    b"//# allFunctionsCalledOnLoad\n"  # Chromium compiles functions together then, not each at its first call
)
_KEPT = "public, immutable, max-age=31536000"  # its address names the version


def load_plotly(style: str) -> None:
    """Have the browser fetch plotly.js (4.8 MB) while the page is still being put together.

    Our components find it as `globalThis.Plotly`; whoever waits in the shelf is called once it is there.
    """
    st.html(f"<style>{style}</style>{_LOADER}", unsafe_allow_javascript=True)


def plotly_route(folder: str) -> Route:
    """Where the server gives plotly.js out, for browsers to keep; `folder` is the app's, ending in /.

    A browser keeps what it has compiled of a script only together with the script. What Streamlit's own
    routes for components give out is fetched anew, and compiled anew, at each opening.
    """
    return Route(folder + _FILE.name, _send)


def _send(request: Request) -> Response:
    return Response(
        _HINT + _FILE.read_bytes(), headers={"Cache-Control": _KEPT}, media_type="text/javascript"
    )


# A script of the page's own, as components are mounted only after the parts of Streamlit that they need have come.
_LOADER = f"""
<script>
{{
  const shelf = (globalThis.mocoShelf ??= {{ packs: new Map(), waiting: new Set() }});
  if (!document.getElementById("moco-plotly")) {{
    const script = document.createElement("script");
    script.id = "moco-plotly";
    script.src = new URL("{_FILE.name}?{plotly.__version__}", document.baseURI);
    script.onload = () => {{
      for (const redraw of [...shelf.waiting]) setTimeout(redraw); // the browser can answer in between
    }};
    script.onerror = () => script.remove(); // the next page tries again
    document.head.append(script);
  }}
}}
</script>
"""
