"""What the machine's memory allows an autoregressive step: the copy bandwidth, and the bytes that a step must read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from methods.engine.device import now
from methods.engine.loading import nbytes
from methods.engine.user_cache import noted

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel

COPY_BYTES = {"cuda": 1 << 30, "cpu": 256 << 20}
REPEATS = 10


@cache
def copy_bandwidth(device: torch.device, machine: str, threads: int) -> float:
    """Bytes per second of the fastest of `REPEATS` copies in the device's memory, read and written (as STREAM counts).
    Measured once for each `machine`, a host and its boot, and number of CPU threads; kept in the user's cache."""
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{threads} threads"
    return noted(f"copy bandwidth, {machine}, {processor}", lambda: measured_bandwidth(device), float)


def measured_bandwidth(device: torch.device) -> float:
    """As `copy_bandwidth`, measured now."""
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


def reads(target: LanguageModel, rows: int, machine: str) -> dict[str, float] | None:
    """What `results.metrics.phases` needs of the target, decoding `rows` prompts together, and of the `machine` (see
    `copy_bandwidth`). None where a step reads only a part of the weights or of the cache: with experts or sliding
    windows."""
    if target.window or any("expert" in name for name, _ in target.model.named_parameters()):
        return None
    weights, entry = step_bytes(target)
    bandwidth = copy_bandwidth(target.device, machine, torch.get_num_threads())
    return {"weights": weights, "entry": entry, "rows": rows, "bandwidth": bandwidth}
