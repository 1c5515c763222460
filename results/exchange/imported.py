"""The numbers of a Spec-Bench or EAGLE file with their intervals: of the whole file, and of each of its tasks.

They are written to <into>/imported-spec_bench-<hash>.json, which is no cell of a store: no run or report reads it.
τ is pooled over the prompts as everywhere in Leeway: tokens committed in cycles ÷ cycles. Speeds are pooled tokens ÷
wall time as the file has it, prefill included; a speedup covers the prompts that both files timed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from results.exchange.base import Exchanged, ExchangeError
from results.exchange.spec_bench import read, speed_script, task
from results.metrics.delta import clocked_interval
from results.metrics.intervals import Interval, ratio_interval
from results.store.files import replace_text
from results.store.json_text import json_text

OVERALL = "overall"
MOST_RESAMPLED = 2000
"""More prompts are divided at random into this many groups, which are resampled instead: memory stays bounded, and the
interval of a ratio of sums stays the same up to the resampling."""
Floats = NDArray[np.float64]
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ImportedCell:
    """Numbers of one task of an imported file; None if the file lacks the data. `X_ci95`: the 95% interval of X,
    resampled over prompts.

    task                   the task's name; `OVERALL` for the whole file
    n                      prompts with an answer
    cycles                 draft–verify cycles
    tau                    tokens committed in cycles ÷ cycles
    tokens_per_s           new tokens ÷ wall time
    baseline_tokens_per_s  the same of the baseline file, as it counts its tokens
    paired                 prompts that both files timed
    speedup                ratio of both on these prompts
    speed_script           what Spec-Bench's speed script computes, by name
    """

    task: str
    n: int
    cycles: int
    tau: float | None
    tau_ci95: Interval | None
    tokens_per_s: float | None
    tokens_per_s_ci95: Interval | None
    baseline_tokens_per_s: float | None
    baseline_tokens_per_s_ci95: Interval | None
    paired: int
    speedup: float | None
    speedup_ci95: Interval | None
    speed_script: dict[str, float]


@dataclass(frozen=True, slots=True)
class Imported:
    """A file that was read.

    path      where its numbers were written
    file      the file; `baseline`: the baseline's
    sha256    of the file's bytes
    at        when it was read, ISO 8601 in UTC
    failed    answers that Spec-Bench could not compute
    cells     its numbers: of the whole file, then of each task if it has several
    """

    path: Path
    file: Path
    baseline: Path | None
    sha256: str
    at: str
    failed: int
    cells: list[ImportedCell]


@dataclass(slots=True)
class Prompt:
    """The counts and times of one prompt, summed over its choices."""

    committed: int = 0
    cycles: int = 0
    tokens: int = 0
    seconds: float = 0.0
    clocked: bool = True
    counted: bool = True

    def add(self, answer: Exchanged) -> None:
        """Add one answer to the prompt. Without `committed`, τ is new tokens ÷ cycles."""
        tokens = sum(answer.tokens or [])
        if answer.committed is not None:
            self.committed, self.cycles = self.committed + sum(answer.committed), self.cycles + len(answer.committed)
        elif answer.steps and sum(answer.steps):
            self.committed, self.cycles = self.committed + tokens, self.cycles + sum(answer.steps)
        else:
            self.counted = False
        self.clocked &= bool(answer.seconds)
        self.tokens += tokens
        self.seconds += sum(answer.seconds or [])

    @property
    def timed(self) -> bool:
        """Whether every answer has a wall time."""
        return self.clocked and self.seconds > 0


@dataclass(slots=True)
class _Reading:
    """A file that was read: (category, id) -> prompt, and the answers that failed."""

    file: Path
    prompts: dict[tuple[str | None, str], Prompt] = field(default_factory=dict)
    failed: int = 0

    def __post_init__(self) -> None:
        for answer in read(self.file):
            if answer is None:
                self.failed += 1
            else:
                self.prompts.setdefault((answer.category, answer.id), Prompt()).add(answer)
        if not self.prompts:
            reason = f"{self.failed} × ERROR in place of a turn" if self.failed else "it is empty"
            raise ExchangeError(f"{self.file}: no answer to measure: {reason}")


def bring_in(into: Path, file: Path, baseline: Path | None = None, count: Count | None = None) -> Imported:
    """Read a file and write its numbers into the folder `into`; a second import replaces the first. `baseline`: a file
    with the baseline's answers to the same prompts; `count`: tokens of a text, for the restated arithmetic of the speed
    script. Raises ExchangeError for a wrong file, of which nothing is kept; StoreError if it cannot be written."""
    base = None if baseline is None else _Reading(baseline)
    own = _Reading(file)
    with open(file, "rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    path = into / f"imported-spec_bench-{sha256[:12]}.json"
    at = datetime.now(UTC).isoformat(timespec="seconds")
    about = Imported(path, file, baseline, sha256, at, own.failed, _cells(own, base, count))
    plain = {"at": at, "file": str(file), "sha256": sha256, "baseline": None if baseline is None else str(baseline),
             "failed": own.failed, "cells": [asdict(cell) for cell in about.cells]}
    replace_text(path, json_text(plain, indent=1) + "\n")
    return about


def _cells(own: _Reading, base: _Reading | None, count: Count | None) -> list[ImportedCell]:
    tasks: dict[str | None, list[tuple[str | None, str]]] = {}
    for category, prompt in own.prompts:
        tasks.setdefault(task(category), []).append((category, prompt))
    chosen = {OVERALL: list(own.prompts)}
    if len(tasks) > 1:
        chosen |= {str(name): keys for name, keys in tasks.items() if name is not None}
    cells = []
    for name, keys in chosen.items():
        beside = [None if base is None else base.prompts.get(key) for key in keys]
        script = {}
        if base is not None and count is not None:
            script = speed_script(_of_task(own.file, name), _of_task(base.file, name), count)
        cells.append(imported_cell(name, [own.prompts[key] for key in keys], beside, script))
    return cells


def _of_task(file: Path, name: str) -> Iterator[Exchanged]:
    """The answers of a task, read once more."""
    return (answer for answer in read(file) if answer is not None and name in (OVERALL, task(answer.category)))


def imported_cell(name: str, prompts: Sequence[Prompt], baseline: Sequence[Prompt | None],
                  script: dict[str, float]) -> ImportedCell:
    """The numbers of some prompts of a file; `baseline`: the same prompts in the baseline file, None for a missing
    one."""
    counted = [prompt for prompt in prompts if prompt.counted and prompt.cycles]
    timed = [prompt for prompt in prompts if prompt.timed]
    pairs = [(own, base) for own, base in zip(prompts, baseline, strict=True)
             if base is not None and own.timed and base.timed]
    committed, cycles = [prompt.committed for prompt in counted], [prompt.cycles for prompt in counted]
    tokens, seconds = [prompt.tokens for prompt in timed], [prompt.seconds for prompt in timed]
    own_tokens, own_s = [own.tokens for own, _ in pairs], [own.seconds for own, _ in pairs]
    base_tokens, base_s = [base.tokens for _, base in pairs], [base.seconds for _, base in pairs]
    own_rate, base_rate = _pooled(own_tokens, own_s), _pooled(base_tokens, base_s)
    return ImportedCell(
        task=name, n=len(prompts), cycles=sum(cycles),
        tau=_pooled(committed, cycles),
        tau_ci95=_ratio_interval(committed, cycles) if counted else None,
        tokens_per_s=_pooled(tokens, seconds), tokens_per_s_ci95=_clocked_interval(tokens, seconds),
        baseline_tokens_per_s=base_rate, baseline_tokens_per_s_ci95=_clocked_interval(base_tokens, base_s),
        paired=len(pairs), speedup=own_rate / base_rate if own_rate is not None and base_rate else None,
        speedup_ci95=_clocked_interval(own_tokens, own_s, base_tokens, base_s) if base_rate else None,
        speed_script=script)


def grouped(*columns: Sequence[float]) -> list[Floats]:
    """Numbers per prompt; above `MOST_RESAMPLED` prompts, the means of that many random groups of equal size. The
    remainder of the division is left out of the spread."""
    arrays = [np.asarray(column, float) for column in columns]
    if len(arrays[0]) <= MOST_RESAMPLED:
        return arrays
    size = len(arrays[0]) // MOST_RESAMPLED
    order = np.random.default_rng(0).permutation(len(arrays[0]))[:size * MOST_RESAMPLED]
    return [array[order].reshape(MOST_RESAMPLED, size).mean(1) for array in arrays]


def _ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> Interval | None:
    above, below = grouped(numerators, denominators)
    return ratio_interval(above, below)


def _clocked_interval(*columns: Sequence[float]) -> Interval | None:
    return clocked_interval(*grouped(*columns)) if columns[0] else None


def _pooled(numerators: Sequence[float], denominators: Sequence[float]) -> float | None:
    total = sum(denominators)
    return float(sum(numerators) / total) if total > 0 else None
