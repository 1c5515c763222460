"""Where a cycle's time goes, from a pass of its own: its clock waits for the device, which the timed pass must not."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from bench.answers import answer
from methods.decode import Limits, generate
from methods.method import Method
from tasks.base import Prompt

NEW_TOKENS = 48
"""Enough cycles for medians, few enough to cost little."""
PHASES = ("draft", "verify", "accept", "commit")


class Phases:
    """A probe of the decode loop that waits for the device at both ends of each phase; `times` are seconds a cycle."""

    def __init__(self, device: torch.device):
        self.device = device
        self.times: dict[str, list[float]] = defaultdict(list)
        self.current = ""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.current, began = name, now(self.device)
        yield
        self.times[name].append(now(self.device) - began)

    @contextmanager
    def watching(self, lm_head: nn.Module) -> Iterator[None]:
        """Also note, as "head", the part of each verify phase that the target's LM head takes."""
        began = 0.0

        def enter(*_: object) -> None:
            nonlocal began
            began = now(self.device)

        def leave(*_: object) -> None:
            if self.current == "verify":
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

    def median(self, name: str) -> float:
        """Seconds of one phase in the median cycle."""
        return statistics.median(self.times[name])

    def per_cycle(self, *names: str) -> float:
        """Mean seconds of these phases together."""
        return sum(sum(self.times[name]) for name in names) / self.cycles


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def profile(method: Method, prompt: Prompt, limits: Limits,
            stream: Callable[[Prompt, int], str]) -> dict[str, float] | None:
    """Median seconds of each phase of a cycle, of the prefill and of the whole cycle, over the first turn of a prompt;
    `head` is the LM head's part of `verify`. None where no cycle was needed. On a GPU also `memory_peak`, the bytes
    allocated at most."""
    device, phases = method.target.device, Phases(method.target.device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    short = replace(limits, max_new_tokens=min(limits.max_new_tokens, NEW_TOKENS))
    with phases.watching(method.target.model.get_output_embeddings()):
        [run] = answer(method, [prompt], short, stream, turns=1,
                       decode=lambda method, requests, limits: generate(method, requests, limits, phases))
    if run.error is not None or not phases.cycles:
        return None
    found = {name: phases.median(name) for name in (*PHASES, "head")}
    found["cycle"] = statistics.median(map(sum, zip(*(phases.times[name] for name in PHASES), strict=True)))
    found["prefill"] = run.prefill_s
    if device.type == "cuda":
        found["memory_peak"] = torch.cuda.max_memory_allocated(device)
    return found
