"""What the machine's memory allows an autoregressive step: the copy bandwidth, and the bytes that a step must read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from methods.engine.device import now
from methods.engine.loading import nbytes

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel

COPY_BYTES = {"cuda": 1 << 30, "cpu": 256 << 20}
REPEATS = 10


def measured_bandwidth(device: torch.device) -> float:
    """Bytes per second of the fastest of `REPEATS` copies in the device's memory, read and written as in STREAM."""
    source = torch.zeros(COPY_BYTES[device.type] // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _fastest(lambda: target.copy_(source), device)


@torch.inference_mode()
def _fastest(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of `REPEATS` runs, after one that warms up."""
    work()
    times = []
    for _ in range(REPEATS):
        began = now(device)
        work()
        times.append(now(device) - began)
    return min(times)


def step_bytes(target: LanguageModel) -> tuple[int, int]:
    """Bytes one autoregressive step must read: of the weights, without an untied input embedding, and of each cached
    token."""
    model: Any = target.model
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    unread = 0 if embedding is head else int(embedding.nbytes)
    cache = target.new_cache(1, 1)
    return nbytes(model) - unread, cache.nbytes // cache.slots
