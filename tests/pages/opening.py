"""A page in AppTest, and what it says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from streamlit.testing.v1 import AppTest

APP = str(Path(__file__).parents[2] / "app.py")


def open_page(page: str, **query: str) -> AppTest:
    """The page with this URL query, once it has run without an exception."""
    app = AppTest.from_file(APP, default_timeout=60)
    app.query_params.update(query)
    app.run()
    app.switch_page(f"pages/{page}.py").run()
    assert not app.exception
    return app


def headings(app: AppTest) -> list[str]:
    """The page's sections."""
    return [heading.value for heading in app.subheader]


def sentences(elements: Iterable) -> str:
    """What these elements say, in one string."""
    return " ".join(element.value for element in elements)


def shown(app: AppTest) -> str:
    """All that the page says, in one string."""
    assert not app.exception, app.exception
    parts = [*app.markdown, *app.caption, *app.info, *app.error, *app.warning, *app.subheader]
    return "\n".join(str(part.value) for part in parts)
