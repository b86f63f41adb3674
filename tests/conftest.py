"""Tests share the machine with each other: torch's threads sleep while they wait, and no test is timed."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import settings

from moco_core.cli import main

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`python -m moco_core WORDS` in this process: a process of its own takes seconds to import what training needs."""

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["moco_core", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(sys.argv, code, out, err)

    return run
