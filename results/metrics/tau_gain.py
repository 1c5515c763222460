"""What a rule gains in τ over the lossless rule, by a bootstrap over prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from results.metrics.intervals import LEVEL, RESAMPLES, SEED, Interval
from results.store.sample import Sample

if TYPE_CHECKING:
    from results.metrics.summary import Summary

Floats = NDArray[np.float64]
TEMPERATURES = (0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0)
"""At which lossless decoding is compared with a rule: those up to the temperature asked for, above
which it is slower and distorts more."""
CHUNK = 1000
"""Resamples drawn at once, which bounds the memory."""


class Counts(NamedTuple):
    """What is summed over the prompts of a run, each [n]: tokens committed in cycles, cycles,
    emitted tokens."""

    committed: Floats
    cycles: Floats
    tokens: Floats

    @classmethod
    def of(cls, samples: Mapping[str, Sample], ids: Sequence[str]) -> Counts:
        """The counts of these prompts."""
        rows = [
            (sum(sample.committed), len(sample.committed), len(sample.output_ids))
            for sample in (samples[name] for name in ids)
        ]
        return cls(*np.array(rows, float).reshape(-1, len(cls._fields)).T)

    def tau(self, draws: Floats) -> Floats:
        """Tokens a cycle in these resamples [resamples, n]."""
        return np.asarray((draws @ self.committed) / (draws @ self.cycles))


def resampled(n: int, number: int = RESAMPLES) -> Iterator[Floats]:
    """How often each of n prompts is drawn, [resamples, n], in parts; the first resample is every
    prompt once."""
    rng, left = np.random.default_rng(SEED), number
    yield np.ones((1, n))
    while left > 0:
        yield rng.multinomial(n, np.full(n, 1 / n), size=min(CHUNK, left)).astype(float)
        left -= CHUNK


def interval(values: Floats, n: int) -> Interval | None:
    """The 95% percentile interval of a statistic whose first value is that of all n prompts, the
    others of resamples, with the percentiles of a small sample: Student's t and the bootstrap's
    missing factor √(n / (n − 1)) widen them (Hesterberg 2015, section 4.3). None for fewer than two
    prompts."""
    finite = values[1:][np.isfinite(values[1:])]
    if n < 2 or not len(finite):
        return None
    from scipy.stats import norm, t  # takes half a second, which a dry run should not cost

    tail = float(norm.cdf(-np.sqrt(n / (n - 1)) * t.ppf((1 + LEVEL) / 2, n - 1)))
    low, high = np.quantile(finite, [tail, 1 - tail])
    return float(low), float(high)


def gain(runs: Sequence[Counts]) -> dict[str, Any]:
    """`tau_gain`, τ of the first of two runs of the same prompts less that of the second, lossless
    one, with `_ci95` by a bootstrap over the prompts. Empty where there are none, or one took no
    cycle."""
    if not runs or not all(run.cycles.sum() for run in runs):
        return {}
    ours, exact = runs
    n = len(ours.tokens)
    gains = np.concatenate([ours.tau(draws) - exact.tau(draws) for draws in resampled(n)])
    return {"tau_gain": float(gains[0]), "tau_gain_ci95": interval(gains, n)}


def over_lossless(
    summary: Summary, samples: Mapping[str, Sample], strict: Mapping[str, Sample] | None
) -> Summary:
    """The summary of a cell with what its samples gain over those of the lossless rule; None: it
    is not compared."""
    runs = []
    if strict is not None:  # the prompts that both answered
        ids = sorted(samples.keys() & strict.keys())
        runs = [Counts.of(run, ids) for run in (samples, strict)]
    return summary.with_later(("tau_gain",), partial(gain, runs))
