"""What the projection page offers for download."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from moco_core.dashboard import loaders
from moco_core.dashboard.figures.projection import projection_figure
from moco_core.dashboard.points import Colour, Points
from moco_core.dashboard.projection_view import hover_texts, table_of
from moco_core.dashboard.widgets import PARQUET, Download, downloads
from moco_core.interop.export import parquet
from moco_core.projections import Projection
from moco_core.runs import Checkpoint, Run


def projection_downloads(
    run: Run,
    checkpoint: Checkpoint,
    picture: Projection,
    frame: int,
    points: Points,
    colour: Colour,
    caption: str,
) -> None:
    """The picture as a table and as a figure below its `caption` (Markdown), and the vectors behind it.

    As PNG it comes from its own toolbar.
    """
    images = loaders.eval_set(run)

    def table() -> pd.DataFrame:
        return table_of(picture, frame, images, colour)

    def figure() -> go.Figure:
        title = f"{run.name}, step {checkpoint.step}"
        return projection_figure(picture.coordinates[frame], colour, hover_texts(table()), points.axes, title)

    vectors = Download(
        "Vectors",
        lambda: parquet(run, checkpoint),
        "vectors.parquet",
        PARQUET,
        "All embeddings of this step with labels and ids, as Parquet.",
    )
    downloads("projection", table, figure, [vectors], of=[checkpoint], caption=caption)
