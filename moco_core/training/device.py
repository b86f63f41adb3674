"""Choosing the device that a run trains on."""

from __future__ import annotations

import platform

import torch

from moco_core.config import ConfigError


def pick_device(name: str) -> torch.device:
    """The device called `name`; `auto` prefers CUDA, then Apple's GPU, then the CPU.

    Raises `ConfigError` naming the devices that are there when `name` isn't one of them.
    """
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    found = [*gpus, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    wanted = found[0] if name == "auto" else "cuda:0" if name == "cuda" else name
    if wanted not in found:
        raise ConfigError(f"device {name} is not there; this machine has {', '.join(found)}")
    return torch.device(wanted)


def device_name(device: torch.device) -> str:
    """A name for people: the GPU's model, or the processor's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.processor() or platform.machine()})"
