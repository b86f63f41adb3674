"""`streamlit run app.py` as the README says, at a terminal, on a home directory without any settings."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.framed import REPOSITORY


def test_it_starts_without_asking_anything(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()  # a prompt is shown at terminals only
    app = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", "0"],
        cwd=REPOSITORY,
        env={**os.environ, "HOME": str(tmp_path), "MOCO_RUNS": str(tmp_path / "runs")},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said = ""
    deadline = time.monotonic() + 120
    try:
        while not re.search(r"URL:.*\n", said):
            assert time.monotonic() < deadline, said
            if select.select([ours], [], [], 1)[0]:
                said += os.read(ours, 4096).decode()
    finally:
        os.killpg(app.pid, signal.SIGTERM)
        app.wait(30)
        os.close(ours)
    assert "mail" not in said.lower()
    assert "External URL" not in said  # finding that out would ask a server on the internet
    assert "Network URL" not in said  # this machine only
    assert "localhost" in said
