"""Where a cycle's time goes, from a pass of its own: its clock waits for the device, which the
timed pass must not."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.run.answer import context
from bench.run.phases import PHASES, Phases
from methods.decode import Request

if TYPE_CHECKING:
    from bench.run.engine import LoadedMethod
    from methods.decode import Limits
    from tasks.base import Prompt

PROMPTS, NEW_TOKENS = 6, 24
"""Enough prompts for intervals, few enough tokens to cost little. Even a chain of ten that is kept
whole has three cycles."""


@dataclass(frozen=True, slots=True)
class PhaseProfile:
    """Where the time of a method's cycles goes, in seconds.

    phases   of each part of a cycle, of the prefill and of the whole cycle: the mean over prompts;
             `head` is the LM head's part of `verify`, absent where graphs replay it. On a GPU also
             `memory_peak`, the bytes allocated at most.
    prompts  of each prompt, the medians over its cycles.
    """

    phases: dict[str, float]
    prompts: list[dict[str, float]]


def profiles(
    methods: Sequence[LoadedMethod],
    prompts: Sequence[Prompt],
    limits: Limits,
    stream: Callable[[Prompt, int], str],
) -> list[PhaseProfile | None]:
    """The profile of each method, over the first turns of the prompts. The methods take turns
    prompt by prompt, so that whatever else the machine does meets all of them. None where no cycle
    was needed."""
    short = replace(limits, max_new_tokens=min(limits.max_new_tokens, NEW_TOKENS))
    runs: list[list[Phases]] = [[] for _ in methods]
    for prompt in prompts:
        for method, method_runs in zip(methods, runs, strict=True):
            if phases := _run(method, prompt, short, stream):
                method_runs.append(phases)
    return [profile_of(method_runs) for method_runs in runs]


def _run(
    method: LoadedMethod, prompt: Prompt, limits: Limits, stream: Callable[[Prompt, int], str]
) -> Phases | None:
    """None for a prompt that cannot be answered, and for an engine that does not tell its
    phases."""
    try:
        ids = context(method.target, prompt, [])
        method.check_fit(len(ids), limits)
        return method.phases(Request(ids, stream(prompt, 0)), limits)
    except Exception:  # the passes record why it cannot be answered
        return None


def profile_of(runs: Sequence[Phases]) -> PhaseProfile | None:
    """The profile of a method from its runs, one a prompt."""
    prompts = [_medians(run) for run in runs if run.cycles]
    if not prompts:
        return None
    names = [name for name in prompts[0] if all(name in prompt for prompt in prompts)]
    phases = {name: statistics.fmean(prompt[name] for prompt in prompts) for name in names}
    peaks = [run.memory_peak for run in runs if run.memory_peak is not None]
    return PhaseProfile(phases | ({"memory_peak": max(peaks)} if peaks else {}), prompts)


def _medians(run: Phases) -> dict[str, float]:
    cycles = map(sum, zip(*(run.times[name] for name in PHASES), strict=True))
    seconds = {name: run.times[name] for name in (*PHASES, "head", "prefill")}
    seconds["cycle"] = list(cycles)
    return {name: statistics.median(times) for name, times in seconds.items() if times}
