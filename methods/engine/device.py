"""The host beside the device: the clock of everything that is timed, and uploads that do not
wait."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

DEFAULT_THREADS = torch.get_num_threads()
"""CPU threads, as PyTorch itself chooses them for this machine: read before anything changes it."""


def now(device: torch.device) -> float:
    """Seconds of the wall clock once the device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def upload(numbers: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """The integers as an int64 tensor on the device."""
    return send(torch.tensor(numbers, dtype=torch.int64), device)


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """[B, n] the tokens of each row on the device; of a shorter one its last again."""
    longest = max(map(len, rows))
    return upload([[*row, *[row[-1]] * (longest - len(row))] for row in rows], device)


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device. A GPU receives it from pinned memory: the host goes
    on."""
    return (
        tensor.pin_memory().to(device, non_blocking=True)
        if device.type == "cuda"
        else tensor.to(device)
    )
