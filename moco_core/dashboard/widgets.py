"""Pieces that every page is made of: a chart with its sentence and its downloads, guides, plain refusals."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from moco_core.dashboard.chart_view import draw_chart
from moco_core.dashboard.palette import CLASS_COLOURS
from moco_core.dashboard.text import number, plain, unmarked
from moco_core.runs import Checkpoint
from moco_core.runs.files import reason

PARQUET = "application/vnd.apache.parquet"

Option = TypeVar("Option")
Table: TypeAlias = "pd.DataFrame | Callable[[], pd.DataFrame]"


class Download(NamedTuple):
    """A file that a button offers, made when the button is pressed."""

    label: str
    make: Callable[[], str | bytes]
    suffix: str
    mime: str
    help: str


def chart(
    figure: go.Figure,
    caption: str,
    data: Table,
    key: str,
    *,
    of: Sequence[Checkpoint] = (),
    clickable: bool = False,
) -> list[Any] | None:
    """A sentence (Markdown) that says what the chart shows and how to read it, the chart, its downloads.

    `data` is what is drawn, or a function that makes it once someone downloads it. Files are named after the
    checkpoints that the chart is `of`, where its table does not name them. Of a `clickable` chart the `customdata` of
    the point or bar clicked last is returned.
    """
    st.caption(caption)
    click = draw_chart(
        figure, key=key, summary=unmarked(caption), file=file_name(key, of), clickable=clickable
    )
    downloads(key, data, figure, of=of, caption=caption)
    return click


def downloads(
    key: str,
    data: Table,
    figure: go.Figure | Callable[[], go.Figure] | None = None,
    more: Sequence[Download] = (),
    *,
    of: Sequence[Checkpoint] = (),
    caption: str = "",
) -> None:
    """Behind one button: the data as CSV and Parquet, the figure as one HTML file that needs no network, then `more`.

    Nothing is written before a file is chosen. `caption` (Markdown) stands above the figure, without its marks.
    """
    name = file_name(key, of)

    def table() -> pd.DataFrame:
        return data() if callable(data) else data

    drawn = "What is drawn, as a table."
    files = [
        Download("CSV", lambda: table().to_csv(index=False), "csv", "text/csv", drawn),
        Download("Parquet", lambda: _parquet(table()), "parquet", PARQUET, drawn),
    ]
    if figure is not None:
        made = figure

        def page() -> str:
            return _page(made() if callable(made) else made, name, unmarked(caption))

        files.append(Download("HTML", page, "html", "text/html", "The figure, to open in any browser."))
    with (
        st.container(horizontal=True, horizontal_alignment="right"),
        st.popover("Download", type="tertiary", icon=":material/download:", key=f"{key}_files"),
        st.container(gap=None),
    ):
        for file in (*files, *more):
            st.download_button(
                file.label,
                file.make,
                f"{name}.{file.suffix}",
                file.mime,
                key=f"{key}_{file.suffix}",
                on_click="ignore",
                type="tertiary",
                help=file.help,
            )


def numbers(table: pd.DataFrame, key: str, form: Callable[[float], str] = number, **more: Any) -> None:
    """A table whose fractions are all written as `form` writes one; it sorts and downloads them unrounded."""
    fractions = {column: form for column in table.select_dtypes("floating").columns}
    st.dataframe(table.style.format(fractions), hide_index=True, key=key, **more)


def tiles(values: Mapping[str, str], tips: Sequence[str] = ()) -> None:
    """Numbers under their names, as many beside each other as there is room for; a tip for each, or none."""
    with st.container(horizontal=True, gap="medium"):
        for (label, value), tip in zip_longest(values.items(), tips):
            st.metric(label, value, help=tip, width="content")


def one_of(label: str, options: Mapping[Option, str], key: str, **more: Any) -> Option:
    """A choice among `options` (value → name), the first one to begin with, kept in the URL under `key`."""
    first = next(iter(options))
    chosen = st.segmented_control(
        label,
        list(options),
        format_func=options.__getitem__,
        default=first,
        required=True,
        key=key,
        bind="query-params",
        **more,
    )
    return first if chosen is None else chosen  # an address with `key=` empties what must not be empty


def seed_input(width: int | Literal["stretch"] = "stretch") -> int:
    """A whole number from which all that is random is drawn, kept in the URL under `seed`."""
    # As a field of whole numbers it would raise an OverflowError at an address with `seed=1e309`.
    most = 2.0**31 - 1
    return int(
        st.number_input("Seed", 0.0, most, 0.0, 1.0, "%.0f", key="seed", bind="query-params", width=width)
    )


def nothing(sentence: str) -> None:
    """What stands where a chart would, when there is nothing to show: why, and what to do."""
    st.info(sentence, icon=":material/visibility_off:")


def guide(purpose: str, text: str, citation: str) -> None:
    """What this page is for, and how to read it: the sentence a student needs, the citation a researcher needs."""
    st.markdown(purpose)
    with st.expander("How to read this", icon=":material/menu_book:"):
        st.markdown(text)
        st.caption(citation)


def problem(error: Exception, what: str = "This can't be shown") -> None:
    """An error's own sentence, behind what it prevents; never a traceback."""
    st.error(f"{what}: {plain(reason(error))}", icon=":material/error:")


def file_name(key: str, of: Sequence[Checkpoint] = ()) -> str:
    """A file name from a widget key and the checkpoints that the file is of."""
    words = " ".join([key, *(f"{checkpoint.run_id} step {checkpoint.step}" for checkpoint in of)])
    return "moco-lens-" + (re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-.") or "chart")


def _page(figure: go.Figure, title: str, caption: str) -> str:
    """The figure below its caption, as HTML that needs no network.

    Streamlit's template holds stand-ins for colours that only its own pages fill in.
    """
    drawn = go.Figure(figure).update_layout(template="plotly_white", colorway=CLASS_COLOURS)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{html.escape(title)}</title>
<p style="font-family: sans-serif; max-width: 60em; margin: 1em">{html.escape(caption)}</p>
{drawn.to_html(full_html=False, default_height="80vh", config={"displaylogo": False, "showSendToCloud": False})}
</html>
"""


def _parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()
