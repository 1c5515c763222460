"""n=auto: prompts are added until an interval is narrow enough, at a few fixed looks, with intervals widened for them.

Looks are at 32, 64, 128, … prompts, and at all prompts of the task, or the most that are asked for. With L looks, each
takes intervals at the level 1 − 0.05 ÷ L (Bonferroni), so that all of them hold at once with 95%: the interval of the
look at which a cell stops covers the truth at least that often, however the look was chosen. The first look at which
the interval is narrow enough ends the cell. It depends on the samples alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from results.metrics import intervals
from results.metrics.intervals import Interval
from results.store.sample import Sample

FIRST = 32
"""Prompts at the first look; each further one has twice as many."""
Estimate = tuple[float | None, Interval | None]
"""A value and its interval."""


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """Where a cell stops.

    tau, accuracy  largest relative half-width of the metric's interval, a fraction; None where it does not matter
    most           the most prompts; None: as many as the task gives
    """

    tau: float | None = None
    accuracy: float | None = None
    most: int | None = None

    @property
    def limits(self) -> dict[str, float | None]:
        """Metric -> its largest half-width."""
        return {"tau": self.tau, "accuracy": self.accuracy}

    @property
    def text(self) -> str:
        """`τ ±2%, accuracy ±5%`."""
        return ", ".join(f"{'τ' if name == 'tau' else name} ±{100 * limit:g}%" for name, limit in self.limits.items()
                         if limit is not None)


def looks(size: int) -> list[int]:
    """Prompts at each look of a task of so many prompts: 32, 64, 128, … below its size, and its size."""
    steps = []
    step = FIRST
    while step < size:
        steps.append(step)
        step *= 2
    return [*steps, size]


def level(size: int) -> float:
    """Level of the interval at each look of a task of so many prompts."""
    return intervals.together(len(looks(size)))


def stated(rule: StoppingRule, size: int) -> str:
    """The rule in words, as a table's notes state it."""
    steps = looks(size)
    return (f"n = auto until {rule.text}: looks at {', '.join(map(str, steps))} prompts, each with intervals at "
            f"{100 * level(size):.3g}% (95% over {len(steps)} looks)")


def stop(samples: Sequence[Sample | None], rule: StoppingRule, proportion: bool) -> int:
    """How many prompts the rule asks for: those of the first look whose intervals are narrow enough, or of the first
    look with a prompt that was not answered yet. `samples`: of all prompts of the task, in its order."""
    steps, wanted = looks(len(samples)), level(len(samples))
    for step in steps[:-1]:
        answered = [sample for sample in samples[:step] if sample is not None]
        if len(answered) < step or is_narrow(answered, rule, proportion, wanted):
            return step
    return steps[-1]


def is_narrow(samples: Sequence[Sample], rule: StoppingRule, proportion: bool, wanted: float) -> bool:
    """Whether every interval that the rule names is as narrow as it asks for."""
    for name, (value, interval) in widened(samples, proportion, wanted).items():
        limit = rule.limits[name]
        if limit is not None and (interval is None or not value or (interval[1] - interval[0]) / 2 > limit * value):
            return False
    return True


def widened(samples: Sequence[Sample], proportion: bool, wanted: float) -> dict[str, Estimate]:
    """τ and accuracy with intervals at the level `wanted`."""
    drafted = [sample for sample in samples if sample.committed]
    cycles = (tuple(float(sum(sample.committed)) for sample in drafted),
              tuple(float(len(sample.committed)) for sample in drafted))
    scores = tuple(float(sample.score) for sample in samples if sample.score is not None)
    return {"tau": _tau(*cycles, wanted), "accuracy": _accuracy(scores, proportion, wanted)}


@lru_cache(4096)  # a command asks for the same look over and over
def _tau(committed: tuple[float, ...], cycles: tuple[float, ...], wanted: float) -> Estimate:
    if not cycles:
        return None, None
    return sum(committed) / sum(cycles), intervals.ratio_interval(committed, cycles, wanted)


@lru_cache(4096)
def _accuracy(scores: tuple[float, ...], proportion: bool, wanted: float) -> Estimate:
    if not scores:
        return None, None
    interval = (intervals.proportion_interval(int(sum(scores)), len(scores), wanted) if proportion
                else intervals.mean_interval(scores, wanted))
    return sum(scores) / len(scores), interval
