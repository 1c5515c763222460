"""The clock of everything that is timed."""

from __future__ import annotations

import time

import torch

DEFAULT_THREADS = torch.get_num_threads()
"""CPU threads, as PyTorch itself chooses them for this machine: read before anything changes it."""


def now(device: torch.device) -> float:
    """Seconds of the wall clock once the device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
