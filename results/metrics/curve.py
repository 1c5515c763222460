"""Lossless decoding as a function of the temperature, the curve that a rule's gain is measured against.

A lossless method's text has plain decoding's distribution: NLL, score and length of the curve are plain decoding's. The
tokens committed per cycle are those of the lossless rule on the same drafter, K, tree and stop rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from results.metrics.intervals import LEVEL, RESAMPLES, SEED, Interval
from results.store.sample import Sample

Floats = NDArray[np.float64]
TEMPERATURES = (0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.3)
"""The points of a curve; the temperature that a rule was asked for is one more."""
OFF_CURVE = 0.05
"""Share of the resamples that may leave the curve; above it there is no match."""
CHUNK = 1000
"""Resamples drawn at once, which bounds the memory."""


class Counts(NamedTuple):
    """What is summed over the prompts of a run, each [n]: tokens committed in cycles, cycles, nats, emitted tokens,
    score; the score is NaN where a prompt has none."""

    committed: Floats
    cycles: Floats
    nll: Floats
    tokens: Floats
    score: Floats

    @classmethod
    def of(cls, samples: Mapping[str, Sample], ids: Sequence[str]) -> Counts:
        """The counts of these prompts; nats and score are NaN where a sample has none."""
        rows = [(sum(one.committed), len(one.committed), _number(one.nll), len(one.output_ids), _number(one.score))
                for one in (samples[name] for name in ids)]
        return cls(*np.array(rows, float).reshape(-1, len(cls._fields)).T)


class Pooled(NamedTuple):
    """The ratios of a run in each resample, each [resamples]: τ, nats a token, mean score."""

    tau: Floats
    nll: Floats
    score: Floats


@dataclass(frozen=True)
class Curve:
    """The curve in each resample.

    temperatures   [T], ascending.
    tau            [resamples, T] of the lossless rule.
    nll            [resamples, T] of plain decoding, nats a token, made monotone.
    score          [resamples, T] of plain decoding, as measured.
    """

    temperatures: Floats
    tau: Floats
    nll: Floats
    score: Floats

    def at(self, values: Floats, temperature: Floats | float) -> Floats:
        """`values` [resamples, T] at a temperature [resamples], linear between points."""
        at = np.broadcast_to(np.asarray(temperature, float), values.shape[:1])
        right = np.clip(np.searchsorted(self.temperatures, at, side="right"), 1, len(self.temperatures) - 1)
        low, high = self.temperatures[right - 1], self.temperatures[right]
        share, rows = (at - low) / (high - low), np.arange(len(values))
        return np.asarray(values[rows, right - 1] * (1 - share) + values[rows, right] * share)

    def matched(self, values: Floats, wanted: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """The temperature [resamples] at which monotone `values` [resamples, T] reach `wanted` [resamples], the middle
        of a level stretch, the nearer end for what the curve does not reach; and whether it was left there."""
        rising = np.where(values[:, -1:] >= values[:, :1], 1.0, -1.0)
        values, wanted = values * rising, wanted * rising[:, 0]
        left = (wanted < values[:, 0]) | (wanted > values[:, -1])
        inside = np.clip(wanted, values[:, 0], values[:, -1])[:, None]
        first = self._crossing(values, inside, (values < inside).sum(1))
        last = self._crossing(values, inside, (values <= inside).sum(1))
        return (first + last) / 2, left

    def _crossing(self, values: Floats, wanted: Floats, right: NDArray[np.int64]) -> Floats:
        """The temperature between the points `right` − 1 and `right` [resamples] at which `wanted` is reached."""
        right, rows = np.clip(right, 1, values.shape[1] - 1), np.arange(len(values))
        low, high = values[rows, right - 1], values[rows, right]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(high > low, (wanted[:, 0] - low) / (high - low), np.where(wanted[:, 0] >= high, 1.0, 0.0))
        share = np.clip(share, 0.0, 1.0)
        return np.asarray(self.temperatures[right - 1] * (1 - share) + self.temperatures[right] * share)


def monotone(values: Floats, weights: Floats, rising: NDArray[np.bool_] | bool = True) -> Floats:
    """Isotonic regression of each row of `values` [resamples, T] with these weights: the nearest monotone sequence in
    least squares, rising or, where `rising` [resamples, 1] is false, falling. By the min-max formula, all rows at
    once: the i-th value is max over j ≤ i of min over k ≥ i of the mean from j to k (Barlow et al. 1972)."""
    sign = np.where(rising, 1.0, -1.0)
    sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values * sign * weights, 1)], 1)
    mass = np.concatenate([np.zeros((len(values), 1)), np.cumsum(weights, 1)], 1)
    size = values.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (sums[:, None, 1:] - sums[:, :-1, None]) / (mass[:, None, 1:] - mass[:, :-1, None])
    means = np.where(np.triu(np.ones((size, size), bool)), means, np.inf)  # [resamples, from j, to k ≥ j]
    lowest = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]  # over the ends from k on
    return np.asarray(np.stack([lowest[:, :i + 1, i].max(1) for i in range(size)], 1) * sign)


def resamples(n: int, number: int = RESAMPLES) -> Iterator[Floats]:
    """How often each of n prompts is drawn, [resamples, n], in parts; the first resample is every prompt once."""
    rng, left = np.random.default_rng(SEED), number
    yield np.ones((1, n))
    while left > 0:
        yield rng.multinomial(n, np.full(n, 1 / n), size=min(CHUNK, left)).astype(float)
        left -= CHUNK


def pooled(run: Counts, draws: Floats) -> Pooled:
    """The ratios of a run in these resamples [resamples, n]."""
    committed, cycles, nll, tokens, score = (draws @ np.stack(run, 1)).T
    with np.errstate(divide="ignore", invalid="ignore"):
        return Pooled(committed / cycles, nll / tokens, score / draws.sum(1))


def curve_of(lossless: Mapping[float, Counts], plain: Mapping[float, Counts], draws: Floats) -> Curve:
    """The curve in these resamples. `lossless` and `plain`: temperature -> the run there, over the same prompts."""
    temperatures = sorted(lossless)
    runs = [pooled(lossless[t], draws) for t in temperatures], [pooled(plain[t], draws) for t in temperatures]
    tokens = np.stack([draws @ plain[t].tokens for t in temperatures], 1)
    nll = monotone(np.stack([run.nll for run in runs[1]], 1), tokens)
    return Curve(np.array(temperatures), np.stack([run.tau for run in runs[0]], 1), nll,
                 np.stack([run.score for run in runs[1]], 1))


def interval(values: Floats, n: int) -> Interval | None:
    """The 95% percentile interval of a statistic whose first value is that of all n prompts, the others of resamples,
    with the percentiles of a small sample: Student's t and the bootstrap's missing factor √(n / (n − 1)) widen them
    (Hesterberg 2015, section 4.3). None for fewer than two prompts."""
    found = values[1:][np.isfinite(values[1:])]
    if n < 2 or not len(found):
        return None
    from scipy.stats import norm, t  # takes half a second, which a dry run should not cost

    tail = float(norm.cdf(-np.sqrt(n / (n - 1)) * t.ppf((1 + LEVEL) / 2, n - 1)))
    low, high = np.quantile(found, [tail, 1 - tail])
    return float(low), float(high)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
