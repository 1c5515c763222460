"""Intervals and paired tests over prompts. Every random draw is seeded, so that a summary repeats
exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rapidfuzz.distance import Levenshtein

Floats = NDArray[np.float64]
Interval = tuple[float, float]
"""(low, high), at 95% unless stated otherwise."""
LEVEL = 0.95
NORMAL = NormalDist()
NORMAL_95 = NORMAL.inv_cdf((1 + LEVEL) / 2)
RESAMPLES = 9999
SEED = 0
BATCH, KEPT = 1000, 1024
"""Resamples drawn at once, which bounds the memory; most prompts for which the draws are kept."""


def mean_interval(values: ArrayLike) -> Interval | None:
    """95% bootstrap interval of a mean, for scores that are not 0 or 1. None for fewer than two
    values."""
    rows = np.column_stack([values, np.ones(len(np.atleast_1d(values)))])
    return sums_interval(rows, lambda sums: sums[..., 0] / sums[..., 1])


def sums_interval(rows: ArrayLike, statistic: Callable[[Floats], Floats]) -> Interval | None:
    """95% percentile interval of a statistic of sums, by resampling prompts. `rows` [n, k]: what
    each prompt adds to the sums; `statistic`: sums [..., k] -> [...]. None for fewer than two
    prompts.

    (BCa divides by the spread of the jackknife, which is 0 when all prompts agree.)"""
    data = np.asarray(rows, float)
    if len(data) < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(np.concatenate([counts @ data for counts in resamples(len(data))]))
    return ends(values, values)


def resamples(n: int) -> Iterator[Floats]:
    """How often each of n prompts is drawn in each of `RESAMPLES` resamples, [1000, n] at a time:
    the draws of `scipy.stats.bootstrap(batch=1000)`, shared by all metrics of n prompts."""
    counts = _kept_counts(n) if n <= KEPT else map(partial(_counted, n), _drawn(n))
    return (part.astype(float) for part in counts)


def _drawn(n: int) -> Iterator[NDArray[np.int64]]:
    """The prompts of each resample, [1000, n] at a time."""
    rng = np.random.default_rng(SEED)
    for start in range(0, RESAMPLES, BATCH):
        yield rng.integers(0, n, (min(BATCH, RESAMPLES - start), n))


def _counted(n: int, drawn: NDArray[np.int64]) -> NDArray[np.uint16]:
    places = (drawn + n * np.arange(len(drawn))[:, None]).ravel()
    return np.bincount(places, minlength=drawn.size).reshape(drawn.shape).astype(np.uint16)


@lru_cache(8)
def _kept_counts(n: int) -> list[NDArray[np.uint16]]:
    return [_counted(n, drawn) for drawn in _drawn(n)]


def proportion_interval(successes: int, n: int, level: float = LEVEL) -> Interval | None:
    """Wilson score interval of a proportion. None for n = 0. (That of statsmodels takes a second to
    import.)"""
    if n == 0:
        return None
    share, z = successes / n, NORMAL.inv_cdf((1 + level) / 2)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2) / (1 + z**2 / n)
    # exact at the ends
    low = 0.0 if successes == 0 else middle - half
    return low, 1.0 if successes == n else middle + half


def edit_similarity(a: Sequence[int], b: Sequence[int]) -> float:
    """1 − Levenshtein distance ÷ the longer length, over token ids; 1 for two empty outputs."""
    return float(Levenshtein.normalized_similarity(a, b))


def difference_interval(
    reference: ArrayLike, numbers: ArrayLike, level: float = LEVEL
) -> Interval | None:
    """Interval of mean(numbers) − mean(reference); one number in [0, 1] each per item, in the same
    order. None without items.

    The bound of Learned-Miller and Thomas (2019, arXiv:1905.06208) for means of bounded numbers,
    here of differences in [−1, 1]: the items get random weights, uniform on the simplex, and so
    does a further item, which lost everything (−1) for the lower end and gained everything (+1) for
    the upper. Where n items all agree it is about ±3.7 / n: agreement of a few prompts is no proof
    of equality, which a bootstrap would claim."""
    if not len(np.atleast_1d(reference)):
        return None
    return ends(*difference_draws(reference, numbers), level)


def difference_draws(reference: ArrayLike, numbers: ArrayLike) -> tuple[Floats, Floats]:
    """The draws whose quantiles are the lower and the upper end of `difference_interval`: a share
    of the first below a value is the one-sided p-value of "the truth is at most this"."""
    lower, upper = [], []
    for sums, extra in _weighted_sums(reference, numbers):
        total = sums[:, 2] + extra
        gained = sums[:, 1] - sums[:, 0]
        lower.append((gained - extra) / total)
        upper.append((gained + extra) / total)
    return np.concatenate(lower), np.concatenate(upper)


def _weighted_sums(reference: ArrayLike, numbers: ArrayLike) -> Iterator[tuple[Floats, Floats]]:
    """Random weights of the items, uniform on the simplex up to a factor, as the sums [1000, 3] of
    reference, numbers and 1 under them; and the weight [1000] of one further item."""
    items = np.column_stack([reference, numbers, np.ones(len(np.atleast_1d(numbers)))])
    distinct, counts = np.unique(items, axis=0, return_counts=True)
    rng = np.random.default_rng(SEED)
    for _ in range(50):  # many draws, because the levels lie far in the tails
        weights = rng.standard_gamma(
            counts, (1000, len(counts))
        )  # the weights of equal items enter only as their sum
        yield weights @ distinct, rng.standard_exponential(1000)


def ends(lower: Floats, upper: Floats, level: float = LEVEL) -> Interval:
    """The interval from draws of its lower and its upper end."""
    return float(np.quantile(lower, (1 - level) / 2)), float(np.quantile(upper, (1 + level) / 2))


def holm(p_values: Sequence[float]) -> Floats:
    """p-values corrected by Holm's method, in the given order. (That of statsmodels collects
    garbage at every call, which takes half a second beside loaded models.)"""
    order = np.argsort(p_values)
    corrected = np.empty(len(order))
    corrected[order] = np.maximum.accumulate(
        np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    )
    return np.minimum(corrected, 1.0)
