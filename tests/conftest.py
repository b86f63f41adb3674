"""Tests share the machine with each other: torch's threads sleep while they wait."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
