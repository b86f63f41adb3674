"""Pictures of a run's embedding space: computed once, stored in the run's cache by content."""

from moco_core.projections.compute import Projection, ProjectionSettings, drawn_rows
from moco_core.projections.precompute import precompute, precompute_newest
from moco_core.projections.store import find_projection, stored_projection

__all__ = [
    "Projection",
    "ProjectionSettings",
    "drawn_rows",
    "find_projection",
    "precompute",
    "precompute_newest",
    "stored_projection",
]
