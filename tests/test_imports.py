"""Who may import whom, and what may never be loaded by the app."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FACTS = {"config", "caveats", "theory", "paper", "sphere", "trace"}
IMPORTS = {  # without torch
    f"interop.{name}" for name in ("columns", "content", "formats", "imported", "problem", "vectors")
}
MAY_IMPORT = {
    "config": set(),
    "caveats": {"config"},
    "theory": set(),
    "paper": set(),
    "trace": {"config", "paper", "runs"},
    "sphere": set(),
    "analysis": set(),
    "runs": {"config"},
    "data": {"config"},
    "nets": {"config"},
    "contrast": {"config", "nets"},
    "jobs": {"config", "runs"},
    "projections": {"config", "runs", "analysis"},
    "tables": {*FACTS, "runs"},
    "training": {*FACTS, "contrast", "nets", "data", "runs", "analysis", "projections", "tables"},
    "interop": {*FACTS, "runs", "analysis", "data", "nets"},
    "dashboard": {*FACTS, "analysis", "runs", "jobs", "projections", *IMPORTS, "interop.export"},
    "pages": {*FACTS, "dashboard", "runs", "jobs", "projections"},
    "app": {"dashboard"},
    "cli": {*FACTS, "training", "jobs", "runs", "analysis", "interop", "projections", "tables"},
    "__main__": {"cli"},
}
ONLY_THERE = {
    "torch": {"data", "nets", "contrast", "training", "interop"},
    "torchvision": {"data", "nets", "training", "interop"},
    "streamlit": {"dashboard", "pages", "app"},
    "plotly": {"dashboard"},
    "tyro": {"cli"},
    "timm": {"training", "interop"},
    "tensorboard": {"training"},
    "submitit": {"jobs"},
}
SLOW_TO_LOAD = {"umap", "sklearn", "numba", "scipy", "pynndescent", "submitit"}
SOURCES = sorted([*ROOT.glob("moco_core/**/*.py"), *ROOT.glob("pages/*.py"), ROOT / "app.py"])


def part(path: Path) -> str:
    """The room of the house that a file belongs to."""
    names = path.relative_to(ROOT).with_suffix("").parts
    return names[1] if names[0] == "moco_core" else names[0]


def imports(path: Path, *, on_load: bool = False) -> Iterator[str]:
    """Full names of what a file imports, anywhere or only when it is loaded."""
    nodes = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if not (on_load and isinstance(node, ast.FunctionDef | ast.Lambda)):
            nodes += ast.iter_child_nodes(node)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nobody_imports_from_above(path: Path) -> None:
    here = part(path)
    if here == "__init__":
        return
    for name in imports(path):
        words = name.split(".")
        if words[0] == "moco_core" and len(words) > 1:
            there = words[1]
            allowed = MAY_IMPORT[here] | {here, "__version__"}
            assert there in allowed or ".".join(words[1:3]) in allowed, f"{here} may not import {name}"
        assert here in ONLY_THERE.get(words[0], {here}), f"{here} may not import {name}"


@pytest.mark.parametrize(
    "path",
    [p for p in SOURCES if part(p) not in ("data", "nets", "contrast", "training")],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_slow_libraries_are_imported_where_they_are_used(path: Path) -> None:
    assert {name.split(".")[0] for name in imports(path, on_load=True)} & SLOW_TO_LOAD == set()


def test_analysis_knows_no_files() -> None:
    for path in ROOT.glob("moco_core/analysis/*.py"):
        assert {name.split(".")[0] for name in imports(path)} & {"pathlib", "os", "io", "json"} == set()


def modules_after(script: str, *arguments: str) -> set[str]:
    """Top-level modules loaded in a fresh process that has run `script`."""
    ending = "\nimport sys\nprint('loaded:', *sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", script + ending, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("loaded:")]
    return set(line.split()[1:])


def test_importing_the_dashboard_loads_nothing_slow() -> None:
    rooms = ("analysis", "dashboard", "jobs", "runs", "theory", "sphere")
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCES
        if part(path) in rooms
    ]
    loaded = modules_after("".join(f"import {name}\n" for name in names))
    assert {"numpy", "streamlit", "plotly"} <= loaded
    assert loaded & (SLOW_TO_LOAD | {"torch"}) == set()


VISIT_ALL = """
import os, sys
from pathlib import Path
from streamlit.testing.v1 import AppTest
from tests.synthetic import write_run

os.environ["MOCO_RUNS"] = sys.argv[1]
for momentum in (0.9, 0.99):
    write_run(Path(sys.argv[1]), f"run {momentum}", momentum=momentum, sweep="sweep")
app = AppTest.from_file(str(Path("app.py").absolute()), default_timeout=120).run()
for path in sorted(Path("pages").glob("*.py")):
    app.switch_page(str(path)).run()
    assert not app.exception, (path, app.exception)
"""


def test_the_whole_app_runs_without_torch(tmp_path: Path) -> None:
    loaded = modules_after(VISIT_ALL, str(tmp_path))
    assert "moco_core" in loaded
    assert "torch" not in loaded


def test_the_worker_runs_without_torch_and_streamlit() -> None:
    assert modules_after("import moco_core.jobs.worker") & {"torch", "streamlit"} == set()
