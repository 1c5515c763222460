"""Where a rule's τ over the lossless rule comes from: relaxation, q_mode, or greedier decoding than
asked for; and curves of τ and NLL of lossless decoding over the temperature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from results.metrics.intervals import LEVEL, RESAMPLES, SEED, Interval
from results.metrics.summary import Summary
from results.store.sample import Sample

Floats = NDArray[np.float64]
TEMPERATURES = (0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0, 1.15, 1.3)
"""The points of a curve; the temperature that a rule was asked for is one more."""
OFF_CURVE = 0.05
"""Share of the resamples that may leave the curve; above it there is no match."""
CHUNK = 1000
"""Resamples drawn at once, which bounds the memory."""


class Counts(NamedTuple):
    """What is summed over the prompts of a run, each [n]: tokens committed in cycles, cycles, nats,
    emitted tokens, score; the score is NaN where a prompt has none."""

    committed: Floats
    cycles: Floats
    nll: Floats
    tokens: Floats
    score: Floats

    @classmethod
    def of(cls, samples: Mapping[str, Sample], ids: Sequence[str]) -> Counts:
        """The counts of these prompts; nats and score are NaN where a sample has none."""
        rows = [
            (
                sum(one.committed),
                len(one.committed),
                _number(one.nll),
                len(one.output_ids),
                _number(one.score),
            )
            for one in (samples[name] for name in ids)
        ]
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
        right = np.clip(
            np.searchsorted(self.temperatures, at, side="right"), 1, len(self.temperatures) - 1
        )
        low, high = self.temperatures[right - 1], self.temperatures[right]
        share, rows = (at - low) / (high - low), np.arange(len(values))
        return np.asarray(values[rows, right - 1] * (1 - share) + values[rows, right] * share)

    def matched(self, values: Floats, wanted: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """The temperature [resamples] at which monotone `values` [resamples, T] reach `wanted`
        [resamples], the middle of a level stretch, the nearer end for what the curve does not
        reach; and whether it was left there."""
        rising = np.where(values[:, -1:] >= values[:, :1], 1.0, -1.0)
        values, wanted = values * rising, wanted * rising[:, 0]
        left = (wanted < values[:, 0]) | (wanted > values[:, -1])
        inside = np.clip(wanted, values[:, 0], values[:, -1])[:, None]
        first = self._crossing(values, inside, (values < inside).sum(1))
        last = self._crossing(values, inside, (values <= inside).sum(1))
        return (first + last) / 2, left

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


def pooled(run: Counts, draws: Floats) -> Pooled:
    """The ratios of a run in these resamples [resamples, n]."""
    committed, cycles, nll, tokens, score = (draws @ np.stack(run, 1)).T
    with np.errstate(divide="ignore", invalid="ignore"):
        return Pooled(committed / cycles, nll / tokens, score / draws.sum(1))


def curve_of(
    lossless: Mapping[float, Counts], plain: Mapping[float, Counts], draws: Floats
) -> Curve:
    """The curve in these resamples. `lossless` and `plain`: temperature -> the run there, over the
    same prompts."""
    temperatures = sorted(lossless)
    runs = (
        [pooled(lossless[t], draws) for t in temperatures],
        [pooled(plain[t], draws) for t in temperatures],
    )
    tokens = np.stack([draws @ plain[t].tokens for t in temperatures], 1)
    nll = monotone(np.stack([run.nll for run in runs[1]], 1), tokens)
    return Curve(
        np.array(temperatures),
        np.stack([run.tau for run in runs[0]], 1),
        nll,
        np.stack([run.score for run in runs[1]], 1),
    )


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


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


PARTS = {
    "tau_gain_relaxed": "relaxation",
    "tau_gain_greedier": "greedier decoding",
    "tau_gain_q": "q_mode: draft",
}
"""The parts of `tau_gain`, which add up to it, and their names in sentences."""
MATCHED, HOTTER, UNDEFINED = "matched", "hotter than T", "not defined"
"""What became of the match: the lossless temperature of equal NLL was found; the rule's NLL is
above that of lossless decoding at the temperature asked for; the rule's NLL is not on the curve."""


class Runs(NamedTuple):
    """The runs that tell a rule's gain apart, over the same prompts.

    own          the rule.
    exact        the rule with q_mode exact; `own` itself where it has no other.
    lossless     temperature -> the lossless rule on the same drafter, K, tree and stop rule.
    plain        temperature -> autoregressive decoding.
    argmax       the rule that keeps only what the lossless test or the argmax keeps; None where it
                 was not measured.
    is_strict    whether `exact` is the lossless rule itself.
    """

    own: Counts
    exact: Counts
    lossless: Mapping[float, Counts]
    plain: Mapping[float, Counts]
    argmax: Counts | None = None
    is_strict: bool = False

    def size(self) -> int:
        return len(self.own.cycles)


def joined(parts: Sequence[Runs]) -> Runs:
    """The runs of a row whose prompts come from several settings, each with the curve of its own
    setting."""
    first = parts[0]
    lossless, plain = (
        {t: _joined([getattr(part, name)[t] for part in parts]) for t in getattr(first, name)}
        for name in ("lossless", "plain")
    )
    argmax = [part.argmax for part in parts if part.argmax is not None]
    return Runs(
        _joined([part.own for part in parts]),
        _joined([part.exact for part in parts]),
        lossless,
        plain,
        _joined(argmax) if len(argmax) == len(parts) else None,
        first.is_strict,
    )


def _joined(counts: Sequence[Counts]) -> Counts:
    return Counts(*map(np.concatenate, zip(*counts, strict=True)))


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
    parts = [
        pooled(runs[0], draws).tau - pooled(runs[1], draws).tau for draws in resampled(len(ids))
    ]
    return _stated({"tau_gain": np.concatenate(parts)}, len(ids))


def split(runs: Runs, asked: float, resamples: int = RESAMPLES) -> dict[str, Any]:
    """The parts of `tau_gain` at the temperature asked for, above 0, each with `_ci95` by a
    bootstrap over prompts that redoes the match.

        tau_gain              τ(own) − τ(lossless at T)
        tau_gain_q            τ(own) − τ(exact)
        tau_gain_greedier     τ(lossless at T*) − τ(lossless at T), T* the temperature at which
                              plain decoding has the NLL of `exact`; 0 where that NLL is above plain
                              decoding's at T ("hotter than T")
        tau_gain_relaxed      τ(exact) − τ(lossless at T*), with T* = T where the rule is hotter
        tau_gain_temperature  T*
        tau_gain_match        `MATCHED`, `HOTTER`, or `UNDEFINED` where more than 5% of the
                              resamples leave the curve: there is then neither T* nor a part of it
        tau_gain_relaxed_by_score  relaxed with the score in the place of the NLL; only where plain
                                   decoding's scores at
                              temperature 0 and at T differ significantly
        tau_gain_argmax       τ(argmax) − τ(lossless at T), the mechanical split: what argmax tokens
                              bring

    Where `exact` is the lossless rule itself, there is nothing to match: all of the gain is
    q_mode's. Empty where a run took no cycle."""
    n = runs.size()
    if not all(run.cycles.sum() for run in (runs.own, runs.exact, *runs.lossless.values())):
        return {}
    found: dict[str, list[Floats]] = {}
    for draws in resampled(n, resamples):
        for name, values in _parts(runs, asked, draws).items():
            found.setdefault(name, []).append(values)
    whole = {name: np.concatenate(parts) for name, parts in found.items()}
    match = _match(whole)
    by_score = _differs(whole, n) and whole["left_by_score"][1:].mean() <= OFF_CURVE
    unknown = (
        ()
        if match != UNDEFINED
        else ("tau_gain_greedier", "tau_gain_relaxed", "tau_gain_temperature")
    )
    known = {
        name: one
        for name, one in whole.items()
        if name.startswith("tau_gain")
        and name not in unknown
        and (by_score or not name.endswith("by_score"))
    }
    return _stated(known, n) | {"tau_gain_match": match}


def _parts(runs: Runs, asked: float, draws: Floats) -> dict[str, Floats]:
    own, exact = pooled(runs.own, draws), pooled(runs.exact, draws)
    curve = curve_of(runs.lossless, runs.plain, draws)
    lossless = curve.at(curve.tau, asked)
    parts = {"tau_gain": own.tau - lossless, "tau_gain_q": own.tau - exact.tau}
    if runs.argmax is not None:
        parts["tau_gain_argmax"] = pooled(runs.argmax, draws).tau - lossless
    if runs.is_strict:
        nothing = np.zeros(len(draws))
        return parts | {
            "tau_gain_greedier": nothing,
            "tau_gain_relaxed": nothing,
            "left": nothing,
            "hotter": nothing,
            "tau_gain_temperature": nothing + asked,
        }
    matched, left = curve.matched(curve.nll, exact.nll)
    hotter = exact.nll > curve.at(curve.nll, asked)
    matched = np.where(hotter, asked, matched)
    there = curve.at(curve.tau, matched)
    parts |= {
        "tau_gain_greedier": there - lossless,
        "tau_gain_relaxed": exact.tau - there,
        "tau_gain_temperature": matched,
        "left": (left & ~hotter).astype(float),
        "hotter": hotter.astype(float),
    }
    return parts | _by_score(asked, exact, curve, draws)


def _by_score(asked: float, exact: Pooled, curve: Curve, draws: Floats) -> dict[str, Floats]:
    """The match by the score, made monotone between temperature 0 and the one asked for; empty
    without scores."""
    if not np.isfinite(curve.score).all() or not np.isfinite(exact.score).all():
        return {}
    here = curve.at(curve.score, asked)
    rising = (here >= curve.score[:, 0])[:, None]
    level = monotone(curve.score, np.repeat(draws.sum(1)[:, None], curve.score.shape[1], 1), rising)
    matched, left = curve.matched(level, exact.score)
    matched = np.minimum(matched, asked)
    beyond = (exact.score - curve.at(level, asked)) * np.where(rising[:, 0], 1, -1) > 0
    return {
        "tau_gain_relaxed_by_score": exact.tau - curve.at(curve.tau, matched),
        "left_by_score": (left & ~beyond).astype(float),
        "score_change": curve.score[:, 0] - here,
    }


def _match(values: Mapping[str, NDArray[Any]]) -> str:
    left = values["left"][1:] if len(values["left"]) > 1 else values["left"]
    if left.mean() > OFF_CURVE:
        return UNDEFINED
    return HOTTER if values["hotter"][0] else MATCHED


def _differs(values: Mapping[str, Floats], n: int) -> bool:
    """Whether plain decoding's scores at temperature 0 and at the one asked for differ
    significantly."""
    ends = interval(values["score_change"], n) if "score_change" in values else None
    return ends is not None and not ends[0] <= 0 <= ends[1]


def _stated(values: Mapping[str, Floats], n: int) -> dict[str, Any]:
    """Each statistic, whose first value is that of all prompts, with its interval."""
    return {
        key: value
        for name, one in values.items()
        for key, value in ((name, float(one[0])), (f"{name}_ci95", interval(one, n)))
    }


def findings(cells: Sequence[tuple[str, Summary]]) -> list[str]:
    """Sentences on the measured cells of one task: one for each that differs from the lossless rule
    in τ, and one for all that do not. `cells`: names and summaries; those without a split are left
    out."""
    differing, alike = [], []
    for name, summary in cells:
        interval_of_gain = summary.tau_gain_ci95
        if summary.tau_gain is None or interval_of_gain is None or summary.tau_gain_match is None:
            continue
        named = _with_interval(summary, "tau_gain")
        if interval_of_gain[0] <= 0 <= interval_of_gain[1]:
            alike.append(f"{name} {named}")
        else:
            verb = "gains" if summary.tau_gain > 0 else "loses"
            sentence = f"{_split(summary)}{_accuracies(summary)}"
            differing.append(f"{name} {verb} τ over the lossless rule, {named}: {sentence}.")
    if alike:
        n = max(summary.n for _, summary in cells)
        differing.append(
            f"{n} prompts show no difference in τ from the lossless rule for {'; '.join(alike)}."
        )
    return differing


def _split(summary: Summary) -> str:
    """The parts with their intervals, and what was matched."""
    parts = ", ".join(
        f"{words} {_with_interval(summary, part)}"
        for part, words in PARTS.items()
        if getattr(summary, part) is not None
    )
    if summary.tau_gain_match == UNDEFINED:
        return f"{parts}; the rest is not split, its NLL is not on the curve of lossless decoding"
    if summary.tau_gain_match == HOTTER:
        return f"{parts}; its text is less likely than plain decoding's at the same temperature"
    return (
        f"{parts}; its NLL is that of lossless decoding at T = {summary.tau_gain_temperature:.2f}"
    )


def _accuracies(summary: Summary) -> str:
    if summary.accuracy is None or summary.lossless_accuracy is None:
        return ""
    return f"; accuracy {summary.accuracy:.1%}, lossless {summary.lossless_accuracy:.1%}"


def _with_interval(summary: Summary, name: str) -> str:
    ends = getattr(summary, f"{name}_ci95")
    inside = "" if ends is None else f" [{_signed(ends[0])}, {_signed(ends[1])}]"
    return f"{_signed(getattr(summary, name))}{inside}"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
