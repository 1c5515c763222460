"""Numbers from the host to the device without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(numbers: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """The integers as an int64 tensor on the device."""
    return send(torch.tensor(numbers, dtype=torch.int64), device)


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device. A GPU receives it from pinned memory: the host goes on."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
