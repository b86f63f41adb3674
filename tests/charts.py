"""The charts that a page under test has drawn."""

import json


def charts(block):
    """Plotly specs of the charts in an app, a sidebar or another block, top to bottom."""
    drawn = [
        json.loads(part.proto.json)
        for part in block.get("bidi_component")
        if part.proto.component_name == "moco_lens_chart"
    ]
    return [json.loads(chart["figure"]) for chart in drawn]
