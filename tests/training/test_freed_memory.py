"""Freed activations stay with the training process instead of being asked for again at each step."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from moco_core.training.device import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    return sum(float(torch.ones(size, dtype=torch.uint8)[-1]) for size in (100_000_000, 120_000_000))

for _ in range(5):
    step()
before = faults()
for _ in range(10):
    step()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_a_step_that_frees_and_needs_as_much_again_asks_for_no_new_pages():
    pages = {
        mode: int(subprocess.check_output([sys.executable, "-c", SCRIPT, mode])) for mode in ("keep", "leave")
    }
    assert pages["keep"] < 1_000
    assert pages["leave"] > 10 * pages["keep"]
