"""What a rule gains in τ over the lossless rule, by a bootstrap over prompts; and curves over the
temperature of lossless decoding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from results.metrics.intervals import LEVEL, RESAMPLES, SEED, Interval
from results.store.sample import Sample

Floats = NDArray[np.float64]
TEMPERATURES = (0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.3)
"""The points of a curve; the temperature that a rule was asked for is one more."""
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


@dataclass(frozen=True)
class Curve:
    """Temperatures [T], ascending, between whose points values are linear."""

    temperatures: Floats

    def at(self, values: Floats, temperature: Floats | float) -> Floats:
        """`values` [resamples, T] at a temperature [resamples]."""
        at = np.broadcast_to(np.asarray(temperature, float), values.shape[:1])
        right = np.clip(
            np.searchsorted(self.temperatures, at, side="right"), 1, len(self.temperatures) - 1
        )
        low, high = self.temperatures[right - 1], self.temperatures[right]
        share, rows = (at - low) / (high - low), np.arange(len(values))
        return np.asarray(values[rows, right - 1] * (1 - share) + values[rows, right] * share)

    def matched(self, values: Floats, wanted: Floats) -> Floats:
        """The temperature [resamples] at which monotone `values` [resamples, T] reach `wanted`
        [resamples], the middle of a level stretch, the nearer end for what the curve does not
        reach."""
        rising = np.where(values[:, -1:] >= values[:, :1], 1.0, -1.0)
        values, wanted = values * rising, wanted * rising[:, 0]
        inside = np.clip(wanted, values[:, 0], values[:, -1])[:, None]
        first = self._crossing(values, inside, (values < inside).sum(1))
        last = self._crossing(values, inside, (values <= inside).sum(1))
        return np.asarray((first + last) / 2)

    def _crossing(self, values: Floats, wanted: Floats, right: NDArray[np.int64]) -> Floats:
        """The temperature between the points `right` − 1 and `right` [resamples] at which `wanted`
        is reached."""
        right, rows = np.clip(right, 1, values.shape[1] - 1), np.arange(len(values))
        low, high = values[rows, right - 1], values[rows, right]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(
                high > low,
                (wanted[:, 0] - low) / (high - low),
                np.where(wanted[:, 0] >= high, 1.0, 0.0),
            )
        share = np.clip(share, 0.0, 1.0)
        return np.asarray(
            self.temperatures[right - 1] * (1 - share) + self.temperatures[right] * share
        )


def monotone(values: Floats, weights: Floats, rising: NDArray[np.bool_] | bool = True) -> Floats:
    """Isotonic regression of each row of `values` [resamples, T] with these weights: the nearest
    monotone sequence in least squares, rising or, where `rising` [resamples, 1] is false, falling.
    By the min-max formula, all rows at once: the i-th value is max over j ≤ i of min over k ≥ i of
    the mean from j to k (Barlow et al. 1972)."""
    sign = np.where(rising, 1.0, -1.0)
    sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values * sign * weights, 1)], 1)
    mass = np.concatenate([np.zeros((len(values), 1)), np.cumsum(weights, 1)], 1)
    size = values.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (sums[:, None, 1:] - sums[:, :-1, None]) / (mass[:, None, 1:] - mass[:, :-1, None])
    means = np.where(
        np.triu(np.ones((size, size), bool)), means, np.inf
    )  # [resamples, from j, to k ≥ j]
    lowest = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]  # over the ends from k on
    return np.asarray(np.stack([lowest[:, : i + 1, i].max(1) for i in range(size)], 1) * sign)


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
    found = values[1:][np.isfinite(values[1:])]
    if n < 2 or not len(found):
        return None
    from scipy.stats import norm, t  # takes half a second, which a dry run should not cost

    tail = float(norm.cdf(-np.sqrt(n / (n - 1)) * t.ppf((1 + LEVEL) / 2, n - 1)))
    low, high = np.quantile(found, [tail, 1 - tail])
    return float(low), float(high)


def common(runs: Iterable[Mapping[str, Sample]]) -> list[str]:
    """Ids of the prompts that every run answered, sorted."""
    every = [set(run) for run in runs]
    return sorted(set.intersection(*every)) if every else []


def gain(own: Mapping[str, Sample], lossless: Mapping[str, Sample]) -> dict[str, Any]:
    """`tau_gain`, τ(own) − τ(lossless), with `_ci95` by a paired bootstrap over the prompts that
    both answered. Empty where neither took a cycle."""
    ids = common([own, lossless])
    runs = [Counts.of(run, ids) for run in (own, lossless)]
    if not all(run.cycles.sum() for run in runs):
        return {}
    parts = [runs[0].tau(draws) - runs[1].tau(draws) for draws in resampled(len(ids))]
    gains = np.concatenate(parts)
    return {"tau_gain": float(gains[0]), "tau_gain_ci95": interval(gains, len(ids))}
