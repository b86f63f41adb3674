"""AppTest with the frame of app.py around every page, as in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.runtime.scriptrunner import script_runner
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def framed(monkeypatch: pytest.MonkeyPatch) -> None:
    """AppTest forgets between runs that the app uses `st.navigation`, and would run pages on their own."""

    def run_app(main_script: str) -> None:
        code = compile(Path(main_script).read_text(), main_script, "exec")
        exec(code, {"__name__": "__main__", "__file__": main_script})

    monkeypatch.setattr(script_runner, "_mpa_v1", run_app)
    monkeypatch.chdir(REPOSITORY)


def open_app(page: str = "runs", **query: str | list[str]) -> AppTest:
    """The app, opened at a page with this URL query."""
    opened = AppTest.from_file(str(REPOSITORY / "app.py"), default_timeout=60)
    opened.query_params.update(query)
    opened.run()
    if page != "runs":
        opened.query_params.update(query)
        opened.switch_page(f"pages/{page}.py").run()
    assert not opened.exception
    return opened


def texts(opened: AppTest) -> str:
    """All sentences on the page and in the sidebar, Markdown's escapes taken away."""
    kinds = ("markdown", "caption", "info", "warning", "error", "title", "toast")
    return "\n".join(str(element.value) for kind in kinds for element in opened.get(kind)).replace("\\", "")


def button(opened: AppTest, label: str) -> Button:
    """The one button with this label."""
    (found,) = [b for b in opened.button if b.label == label]
    return found
