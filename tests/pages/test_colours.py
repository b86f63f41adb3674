"""One run has one colour on every page that draws several."""

import pytest

from moco_core.dashboard.palette import series_colour
from tests.charts import charts
from tests.pages.opening import open_page
from tests.stale_runs import write_stale_run

NAMES = ("m0", "m9", "m99", "m999")
COLOURS = {name: series_colour(index) for index, name in enumerate(NAMES)}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A sweep stored out of order, the queue of one still empty."""
    monkeypatch.setenv("MOCO_RUNS", str(tmp_path))
    for name, momentum in (("m99", 0.99), ("m0", 0.0), ("m999", 0.999)):
        write_stale_run(tmp_path, name, momentum=momentum, sweep="s", angle=0.3)
    write_stale_run(tmp_path, "m9", momentum=0.9, sweep="s", steps=(0,))  # its queue is still empty
    return tmp_path


def drawn(app) -> list[dict[str, str]]:
    """Run → colour of its lines, of each chart that shows several runs."""
    found = []
    for chart in charts(app):
        lines = [trace for trace in chart["data"] if "color" in trace.get("line", {})]
        named = {trace.get("name", "").partition(",")[0]: trace["line"]["color"] for trace in lines}
        found.append({name: colour for name, colour in named.items() if name in NAMES})
    return [colours for colours in found if len(colours) > 1]


@pytest.mark.parametrize(("page", "charts"), [("runs", 1), ("geometry", 1), ("queue", 8), ("similarity", 1)])
def test_a_run_keeps_its_colour(root, page, charts):
    app = open_page(page, run="m999")
    for group in app.get("button_group"):
        if group.key == "runs_as":
            group.set_value("overlay").run()
    found = drawn(app)
    assert len(found) == charts
    for colours in found:
        assert colours == {name: COLOURS[name] for name in colours}


def test_a_run_that_joins_the_chosen_ones_leaves_them_their_colours(root):
    chosen = ["m99", "m999"]
    for page in ("queue", "geometry"):
        app = open_page(page, run="m0", runs=chosen)
        found = drawn(app)
        assert found
        for colours in found:
            assert [colours[name] for name in chosen] == [series_colour(0), series_colour(1)]
