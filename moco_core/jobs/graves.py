"""Folders that are being deleted: hidden from every listing by one move, so that no half-deleted run is seen."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

PREFIX = ".deleted-"


def hide(folder: Path) -> Path:
    """Take a folder out of every listing; returns where it lies now, for `remove`."""
    grave = folder.with_name(f"{PREFIX}{folder.name}-{secrets.token_hex(4)}")
    os.rename(folder, grave)
    return grave


def remove(grave: Path) -> None:
    """Delete a hidden folder with what is in it."""
    if grave.is_symlink():
        grave.unlink(missing_ok=True)
    else:
        shutil.rmtree(grave, ignore_errors=True)


def sweep_graves(root: Path) -> None:
    """Remove what deletions that were interrupted left in `root`."""
    for grave in root.glob(f"{PREFIX}*"):
        remove(grave)
