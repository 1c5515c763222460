"""How far a rule takes its text from the target's distribution, nats per token: from the sums that
samples hold; and how near it comes to the limit, the most tokens per cycle for its distortion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from results.metrics.intervals import NORMAL_95
from results.metrics.metric import BOOTSTRAP, DIVERGENCE, Addends, Metric, Sums, declared
from results.store.sample import Compared

Floats = NDArray[np.float64]
INVERSE = np.array([2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24]) / 4
"""1 / T of the temperatures at which samples hold logsumexp(z / T): `methods.distortion.POWERS`."""
LEVELS = np.array([1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10])
"""Nats per token between which samples count tokens: `methods.batch.LEVELS`."""
FINE = np.linspace(INVERSE[0], INVERSE[-1], 1101)


def nats(pair: Compared) -> Addends:
    """Nats and tokens; infinite where the rule keeps what p excludes."""
    divergence = pair.sample.distortion
    if divergence is None:
        return None
    return float("inf") if divergence.nats is None else divergence.nats, divergence.tokens


def apart(pair: Compared, of: str) -> Addends:
    """TV, JS or the mass outside p's support, and tokens."""
    divergence = pair.sample.distortion
    return None if divergence is None else (getattr(divergence, of), divergence.tokens)


def variation(pairs: Sequence[Compared], of: Literal["tv", "tv_at_1", "outside"]) -> Sums:
    """TV from the cell's own target, or from the whole target at temperature 1, or the mass
    outside, of those prompts that have it."""
    rows = [apart(pair, of) for pair in pairs]
    return Sums.of([row for row in rows if row is not None and row[0] is not None])


def by_entropy(pair: Compared, brackets: slice) -> Addends:
    """Nats and tokens where the target's entropy lies in these brackets of
    `methods.batch.ENTROPIES`."""
    divergence = pair.sample.distortion
    if divergence is None:
        return None
    nats_in, tokens_in = divergence.nats_by_entropy, divergence.tokens_by_entropy
    if nats_in is None or tokens_in is None:
        return None
    return sum(nats_in[brackets]), sum(tokens_in[brackets])


def spectrum(pair: Compared) -> Addends:
    """Entropy, mean logit, logsumexp(z / T) at each temperature, tokens."""
    divergence = pair.sample.distortion
    if divergence is None:
        return None
    return divergence.entropy, divergence.logit, *divergence.log_mass, divergence.tokens


def distance(sums: Floats, inverse: Floats) -> Floats:
    """[..., T]: KL(R || p_T), nats per token, at 1 / T = `inverse` [T], of `spectrum` sums
    [..., 15]: -H - E_R[z] / T + logsumexp(z / T), whose last term is a smooth convex function of
    1 / T: a cubic spline through those known."""
    # takes half a second, which a dry run should not cost
    from scipy.interpolate import CubicSpline

    entropy, logit, mass, tokens = np.split(sums, [1, 2, -1], axis=-1)
    log_mass = CubicSpline(INVERSE, mass, axis=-1)(inverse)
    return np.asarray((log_mass - entropy - logit * inverse) / tokens)


def to_temperature(sums: Floats, temperature: float) -> Floats:
    """[...]: KL(R || p_T), nats per token, at one temperature."""
    return np.asarray(distance(sums, np.array([1 / temperature]))[..., 0])


def least(sums: Floats) -> Floats:
    """[...]: the least KL(R || p_T) over temperatures, nats per token."""
    return np.asarray(np.maximum(distance(sums, FINE).min(-1), 0.0))


def nearest(sums: Floats) -> Floats:
    """[...]: the temperature of `least`."""
    return np.asarray(1 / FINE[distance(sums, FINE).argmin(-1)])


def last_percent(sums: Floats) -> Floats:
    """[...]: the nats that one token in a hundred exceeds, of counts [..., 10] between levels."""
    edges = np.log([LEVELS[0] / 3, *LEVELS, 3 * LEVELS[-1]])
    below = 0.99 * sums.sum(-1, keepdims=True)
    after = sums.cumsum(-1)
    level = (after < below).sum(-1, keepdims=True)
    count = np.take_along_axis(sums, level, -1)
    part = 1 - (np.take_along_axis(after, level, -1) - below) / count
    return np.asarray(np.exp(edges[level] + part * (edges[level + 1] - edges[level])))[..., 0]


def judged_at(sums: Sums | None, temperature: float) -> dict[str, Sums | None]:
    """The distortions of a row that is judged at another temperature than its own, as a summary
    takes them."""
    if sums is None:
        return {}
    distances = [to_temperature(row, temperature) * row[-1] for row in sums.rows]
    rows = np.column_stack([distances, sums.rows[:, -1]])
    answers = np.column_stack([distances, np.ones(len(distances))])
    return {
        "distortion": replace(sums, rows=rows),
        "distortion_answer": replace(sums, rows=answers),
        "distortion_tv": None,
        "distortion_js": None,
        "distortion_outside": None,
        "distortion_early": None,
        "distortion_late": None,
        "distortion_sure": None,
        "distortion_unsure": None,
        "distortion_p99": None,
    }


@declared("D", "", 3, "lower", estimator=DIVERGENCE)
def distortion(pair: Compared) -> Addends:
    """Distortion, nats per token: KL divergence of the rule's exact law of each emitted token from
    the target's, mean over emitted tokens; at temperature 0 the log-probability that is lost. 0 for
    lossless decoding. Where the law depends on the place in the cycle, an upper bound on the
    divergence of the texts. Rules with randomness of their own: 32 draws on 16 prompts; relaxed
    rules on drawn candidates that do not state their law: a third of the prompts, at least 16.
    Interval: Student's t over prompts."""
    return nats(pair)


@declared("Nats per answer", "", 2, "lower", estimator=DIVERGENCE)
def distortion_answer(pair: Compared) -> Addends:
    """Distortion of a whole answer: D times its tokens, mean over prompts; all turns of one add up.
    Interval: Student's t over prompts."""
    addends = nats(pair)
    return None if addends is None else (addends[0], 1)


@declared("D, tokens 1–4", "", 3, "lower", estimator=DIVERGENCE)
def distortion_early(pair: Compared) -> Addends:
    """Distortion of the first four tokens of each answer, nats per token. Interval as for D."""
    divergence = pair.sample.distortion
    if divergence is None or divergence.nats_at is None:
        return None
    return sum(divergence.nats_at[:2]), sum(min(tokens, 4) for tokens in pair.sample.turn_tokens)


@declared("D, tokens from 17", "", 3, "lower", estimator=DIVERGENCE)
def distortion_late(pair: Compared) -> Addends:
    """Distortion behind the first sixteen tokens of each answer, nats per token. Interval as for
    D."""
    divergence = pair.sample.distortion
    if divergence is None or divergence.nats_at is None:
        return None
    return divergence.nats_at[-1], sum(max(tokens - 16, 0) for tokens in pair.sample.turn_tokens)


@declared("D, entropy < 0.1", "", 3, "lower", estimator=DIVERGENCE)
def distortion_sure(pair: Compared) -> Addends:
    """Distortion of the tokens where the target's entropy at temperature 1 is below 0.1 nats, nats
    per token. Interval as for D."""
    return by_entropy(pair, slice(1))


@declared("D, entropy ≥ 1", "", 3, "lower", estimator=DIVERGENCE)
def distortion_unsure(pair: Compared) -> Addends:
    """Distortion of the tokens where the target's entropy at temperature 1 is at least 1 nat, nats
    per token. Interval as for D."""
    return by_entropy(pair, slice(-2, None))


@declared("D, p99", "", 2, "lower", statistic=last_percent, estimator=BOOTSTRAP)
def distortion_p99(pair: Compared) -> Addends:
    """Nats that one token in a hundred exceeds. Each token is known to lie between two of the
    levels 0.001, 0.003, 0.01, …, 10; between them logarithms are interpolated."""
    divergence = pair.sample.distortion
    if divergence is None or divergence.nats_counts is None:
        return None
    return tuple(divergence.nats_counts)


@declared("D*", "", 3, "lower", statistic=least, estimator=DIVERGENCE)
def distortion_least(pair: Compared) -> Addends:
    """The least KL divergence of the rule's law from the target's at any temperature from 0.17 to
    2, nats per token: what no change of temperature explains. Interpolated between 12 temperatures,
    to about 0.001 nats. Interval as for D."""
    return spectrum(pair)


@declared("T* of least KL", "", 2, None, statistic=nearest, estimator=DIVERGENCE)
def distortion_temperature(pair: Compared) -> Addends:
    """The temperature of D*, to about 0.1 near 1. Interval as for D."""
    return spectrum(pair)


@declared("TV", "%", 1, "lower", estimator=DIVERGENCE)
def distortion_tv(pair: Compared) -> Addends:
    """Total variation of the rule's law from the target's, mean over emitted tokens."""
    return apart(pair, "tv")


@declared("JS", "", 4, "lower", estimator=DIVERGENCE)
def distortion_js(pair: Compared) -> Addends:
    """Jensen–Shannon divergence of the rule's law from the target's, nats, mean over emitted
    tokens."""
    return apart(pair, "js")


@declared("Outside p", "%", 1, "lower", estimator=DIVERGENCE)
def distortion_outside(pair: Compared) -> Addends:
    """Mass of the rule's law on tokens that the target's processed distribution excludes; where
    there is any, D is infinite and not shown."""
    return apart(pair, "outside")


efficiency_at_d = Metric(
    "efficiency_at_d",
    "Efficiency at D",
    "%",
    0,
    "higher",
    "In the data of a figure of the limit: the gain in τ over lossless decoding, over the "
    "limit's at equal D, where the limit gains more than its own error.",
)


Point = tuple[float, float, float]
"""Distortion (nats per token), τ, and its standard error."""
LEAST_GAIN = 0.1
"""Tokens a cycle."""


def efficiency(
    rule: Point, lossless: Point, limit: Sequence[Point]
) -> tuple[float, float, float] | None:
    """A rule's gain in τ over lossless decoding, over that of the limit at the rule's distortion,
    with its 95% interval. `limit`: points of the limit's curve, which begins at `lossless`, joined
    by straight lines. The errors of different points are taken to be independent, which common
    prompts make too large. None beyond the curve's end, and where the limit gains less than
    `LEAST_GAIN`, or than its own error at 95%."""
    curve = sorted([lossless, *limit])
    distortion, tau, error = rule
    if not curve[0][0] < distortion <= curve[-1][0]:
        return None
    distortions, taus, errors = zip(*curve, strict=True)
    best = float(np.interp(distortion, distortions, taus))
    best_error = float(np.interp(distortion, distortions, errors))
    gain = best - lossless[1]
    if gain < max(LEAST_GAIN, NORMAL_95 * np.hypot(best_error, lossless[2])):
        return None
    share = (tau - lossless[1]) / gain
    parts = (error, share * best_error, (1 - share) * lossless[2])
    half = NORMAL_95 * float(np.linalg.norm(parts)) / gain
    return share, share - half, share + half
