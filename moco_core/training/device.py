"""Choosing the device that a run trains on."""

from __future__ import annotations

import ctypes
import os
import platform

import torch

from moco_core.config import ConfigError
from moco_core.contrast.group import Group


def pick_device(name: str, group: Group | None = None) -> torch.device:
    """The device called `name`; `auto` prefers CUDA, then Apple's GPU, then the CPU.

    Of several processes on a machine, each gets a GPU of its own. Raises `ConfigError` naming the devices that
    are there when `name` isn't one of them.
    """
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    found = [*gpus, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    if group is not None and group.size > 1:
        if name not in ("auto", "cpu", "cuda"):
            raise ConfigError(f"device must be auto, cpu or cuda for several processes, got {name}")
        if name == "cuda" or (name == "auto" and gpus):
            name = f"cuda:{os.environ.get('LOCAL_RANK', group.rank)}"  # set by torchrun
        elif name == "auto":
            name = "cpu"
    wanted = found[0] if name == "auto" else "cuda:0" if name == "cuda" else name
    if wanted not in found:
        raise ConfigError(f"device {name} is not there; this machine has {', '.join(found)}")
    device = torch.device(wanted)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # NCCL asks for the current one
    return device


def device_name(device: torch.device) -> str:
    """A name for people: the GPU's model, or the processor's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.processor() or platform.machine()})"


def memory_ran_out(error: Exception) -> bool:
    """Whether an error means that a device has no memory left; only that of CUDA has a type of its own."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = ("can't allocate memory", "not enough memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in words)


def keep_freed_memory() -> None:
    """Have the C library keep what this process frees, instead of asking the system for it at each step.

    A step frees tens of megabytes of activations and needs as much again a moment later. glibc hands blocks
    of that size back at once, so every step pays for fresh zeroed pages: a third of its time on two cores.
    Other C libraries have no such setting; there this does nothing.
    """
    if platform.libc_ver()[0] == "glibc":
        trim_threshold, mmap_threshold = -1, -3  # as malloc.h numbers them
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, (1 << 31) - 1)
