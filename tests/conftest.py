"""Tests share the machine with each other: torch's threads sleep while they wait, and no test is timed."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
