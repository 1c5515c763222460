"""A clock of the phases of a cycle, which waits for the device at both ends of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from methods.engine.device import now

PHASES = ("draft", "verify", "accept", "commit")


class Phases:
    """A probe of the decode loop that waits for the device at both ends of each phase; `times` are
    seconds per cycle."""

    def __init__(self, device: torch.device):
        self.device = device
        self.times: dict[str, list[float]] = defaultdict(list)
        self.current = ""
        self.memory_peak: int | None = None

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.current, began = name, now(self.device)
        yield
        self.times[name].append(now(self.device) - began)

    @contextmanager
    def watching(self, lm_head: nn.Module) -> Iterator[None]:
        """Also note, as "head", the part of each verify phase that the target's LM head takes. A
        forward that is replayed as a CUDA graph runs no hooks, and one that is recorded must not
        wait: both note nothing."""
        began = 0.0

        def enter(*_: object) -> None:
            nonlocal began
            if not _recording(self.device):
                began = now(self.device)

        def leave(*_: object) -> None:
            if self.current == "verify" and not _recording(self.device):
                self.times["head"].append(now(self.device) - began)

        hooks = [lm_head.register_forward_pre_hook(enter), lm_head.register_forward_hook(leave)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def cycles(self) -> int:
        return len(self.times["verify"])


def _recording(device: torch.device) -> bool:
    """Whether a CUDA graph is being recorded."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
