"""The numbers of an imported file with their intervals: one cell for all of it and one for each of its tasks.

τ is pooled over the prompts as everywhere in Leeway: tokens committed in cycles ÷ cycles. Speeds are pooled tokens ÷
wall time as the file has it, prefill included; a speedup covers the prompts that both files timed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from results.exchange.base import Exchanged
from results.metrics.delta import clocked_interval
from results.metrics.intervals import (
    Interval,
    mean_interval,
    proportion_interval,
    ratio_interval,
)
from results.store.sample import STRICT

OVERALL = "overall"
MOST_RESAMPLED = 2000
"""More prompts are divided at random into this many groups, which are resampled instead: memory stays bounded, and the
interval of a ratio of sums stays the same up to the resampling."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ImportedCell:
    """Numbers of one task of an imported file; None if the file lacks the data. `X_ci95`: the 95% interval of X,
    resampled over prompts.

    task                   the task's name; `OVERALL` for the whole file
    n, failed              prompts with an answer, records without one
    cycles                 draft–verify cycles
    tau                    tokens committed in cycles ÷ cycles
    accept_len             accepted draft tokens ÷ cycles
    tokens_per_s           new tokens ÷ wall time
    baseline_tokens_per_s  the same of the baseline file, as it counts its tokens
    paired                 prompts that both files timed
    speedup                ratio of both on these prompts
    speed_script           what the speed script of the file's own benchmark computes, by name
    scores                 name of a score -> its mean, its interval (low, high) and its n
    """

    __pydantic_config__: ClassVar[Any] = STRICT
    task: str
    n: int
    failed: int
    cycles: int
    tau: float | None = None
    tau_ci95: list[float] | None = None
    accept_len: float | None = None
    accept_len_ci95: list[float] | None = None
    tokens_per_s: float | None = None
    tokens_per_s_ci95: list[float] | None = None
    baseline_tokens_per_s: float | None = None
    baseline_tokens_per_s_ci95: list[float] | None = None
    paired: int = 0
    speedup: float | None = None
    speedup_ci95: list[float] | None = None
    speed_script: dict[str, float] = field(default_factory=dict)
    scores: dict[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True)
class Prompt:
    """The counts and times of one prompt, summed over its choices."""

    committed: int = 0
    accepted: int = 0
    cycles: int = 0
    tokens: int = 0
    seconds: float = 0.0
    clocked: bool = True
    counted: bool = True
    scores: dict[str, list[float]] = field(default_factory=dict)

    def add(self, answer: Exchanged) -> None:
        """Add one answer to the prompt."""
        committed, accepted, cycles = cycles_of(answer)
        self.counted &= committed is not None
        self.clocked &= bool(answer.seconds) and answer.tokens is not None
        self.committed += committed or 0
        self.accepted += accepted or 0
        self.cycles += cycles
        self.tokens += sum(answer.tokens or [])
        self.seconds += sum(answer.seconds or [])
        for name, value in answer.scores.items():
            self.scores.setdefault(name, []).append(value)


def cycles_of(answer: Exchanged) -> tuple[int | None, int | None, int]:
    """(committed tokens, accepted draft tokens, cycles) of an answer: from its list of cycles, else from its histogram,
    else from its new tokens and its number of cycles. None for unknown numbers."""
    if answer.committed is not None:
        accepted = [max(0, kept - 1) for kept in answer.committed] if answer.accepted is None else answer.accepted
        return sum(answer.committed), sum(accepted), len(answer.committed)
    if answer.histogram is not None:
        cycles = sum(answer.histogram)
        accepted_tokens = sum(place * count for place, count in enumerate(answer.histogram))
        return accepted_tokens + cycles, accepted_tokens, cycles
    if answer.steps is not None and answer.tokens is not None and sum(answer.steps) > 0:
        tokens, cycles = sum(answer.tokens), sum(answer.steps)
        return tokens, max(0, tokens - cycles), cycles
    return None, None, 0


Prompts = dict[tuple[str | None, str], Prompt]
"""(category, id) -> prompt."""


def add_answer(prompts: Prompts, answer: Exchanged) -> None:
    """Add an answer to the prompts of its file."""
    prompts.setdefault((answer.category, answer.id), Prompt()).add(answer)


def imported_cell(task: str, prompts: Sequence[Prompt], baseline: Sequence[Prompt | None], failed: int,
                  script: dict[str, float]) -> ImportedCell:
    """The numbers of some prompts of a file; `baseline`: the same prompts in the baseline file, None for a missing
    one."""
    counted = [prompt for prompt in prompts if prompt.counted and prompt.cycles]
    timed = [prompt for prompt in prompts if prompt.clocked and prompt.seconds > 0]
    pairs = [(own, base) for own, base in zip(prompts, baseline, strict=True)
             if base is not None and own.clocked and base.clocked and own.seconds > 0 and base.seconds > 0]
    cycles = [answered.cycles for answered in counted]
    arms = [[run.tokens for run in arm] for arm in zip(*pairs, strict=True)]
    clocks = [[run.seconds for run in arm] for arm in zip(*pairs, strict=True)]
    base_rate = _pooled(arms[1], clocks[1]) if pairs else None
    own_rate = _pooled(arms[0], clocks[0]) if pairs else None
    return ImportedCell(
        task=task, n=len(prompts), failed=failed, cycles=sum(cycles),
        tau=_pooled([answered.committed for answered in counted], cycles),
        tau_ci95=_ratio_interval([answered.committed for answered in counted], cycles),
        accept_len=_pooled([answered.accepted for answered in counted], cycles),
        accept_len_ci95=_ratio_interval([answered.accepted for answered in counted], cycles),
        tokens_per_s=_pooled([answered.tokens for answered in timed], [answered.seconds for answered in timed]),
        tokens_per_s_ci95=_clocked_interval([answered.tokens for answered in timed],
                                            [answered.seconds for answered in timed]),
        baseline_tokens_per_s=base_rate,
        baseline_tokens_per_s_ci95=_clocked_interval(arms[1], clocks[1]) if pairs else None,
        paired=len(pairs), speedup=own_rate / base_rate if own_rate is not None and base_rate else None,
        speedup_ci95=_clocked_interval(arms[0], clocks[0], arms[1], clocks[1]) if base_rate else None,
        speed_script=script, scores=_scores(prompts))


def _scores(prompts: Iterable[Prompt]) -> dict[str, list[float]]:
    """Name -> [mean, low, high, n] of the prompts' mean scores: Wilson's interval where every score is 0 or 1."""
    values: dict[str, list[float]] = {}
    for prompt in prompts:
        for name, scores in prompt.scores.items():
            values.setdefault(name, []).append(float(np.mean(scores)))
    means = {}
    for name, scores in values.items():
        right = set(scores) <= {0.0, 1.0}
        interval = proportion_interval(int(sum(scores)), len(scores)) if right else mean_interval(grouped(scores)[0])
        mean = float(np.mean(scores))
        means[name] = [mean, *(interval or (mean, mean)), float(len(scores))]
    return means


def grouped(*columns: Sequence[float]) -> list[Floats]:
    """Numbers per prompt; above `MOST_RESAMPLED` prompts, the means of that many random groups of equal size. The
    remainder of the division is left out of the spread."""
    arrays = [np.asarray(column, float) for column in columns]
    if len(arrays[0]) <= MOST_RESAMPLED:
        return arrays
    size = len(arrays[0]) // MOST_RESAMPLED
    order = np.random.default_rng(0).permutation(len(arrays[0]))[:size * MOST_RESAMPLED]
    return [array[order].reshape(MOST_RESAMPLED, size).mean(1) for array in arrays]


def _ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> list[float] | None:
    above, below = grouped(numerators, denominators)
    return _listed(ratio_interval(above, below)) if numerators else None


def _clocked_interval(*columns: Sequence[float]) -> list[float] | None:
    return _listed(clocked_interval(*grouped(*columns))) if columns[0] else None


def _listed(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _pooled(numerators: Sequence[float], denominators: Sequence[float]) -> float | None:
    total = sum(denominators)
    return float(sum(numerators) / total) if total > 0 else None
