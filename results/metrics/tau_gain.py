"""Where a rule's τ over the lossless rule comes from: relaxation, q_mode, or greedier decoding than asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from results.metrics.curve import OFF_CURVE, Counts, Curve, Floats, Pooled, curve_of, interval, monotone, pooled
from results.metrics.curve import resamples as resampled
from results.metrics.distortion import nearest
from results.metrics.intervals import RESAMPLES
from results.metrics.summary import Summary
from results.store.sample import Sample

PARTS = {"tau_gain_relaxed": "relaxation", "tau_gain_greedier": "greedier decoding", "tau_gain_q": "q_mode: draft"}
"""The parts of `tau_gain`, which add up to it, and their names in sentences."""
MATCHED, HOTTER, UNDEFINED = "matched", "hotter than T", "not defined"
"""What became of the match: the lossless temperature of equal NLL was found; the rule's NLL is above that of lossless
decoding at the temperature asked for; the rule's NLL is not on the curve."""


class Runs(NamedTuple):
    """The runs that tell a rule's gain apart, over the same prompts.

    own          the rule.
    exact        the rule with q_mode exact; `own` itself where it has no other.
    lossless     temperature -> the lossless rule on the same drafter, K, tree and stop rule.
    plain        temperature -> autoregressive decoding.
    argmax       the rule that keeps only what the lossless test or the argmax keeps; None where it was not measured.
    is_strict    whether `exact` is the lossless rule itself.
    spectrum     [n, 15] of `exact`, as `results.metrics.distortion.spectrum`; None where a prompt has none.
    """

    own: Counts
    exact: Counts
    lossless: Mapping[float, Counts]
    plain: Mapping[float, Counts]
    argmax: Counts | None = None
    is_strict: bool = False
    spectrum: Floats | None = None

    def size(self) -> int:
        return len(self.own.cycles)


def joined(parts: Sequence[Runs]) -> Runs:
    """The runs of a row whose prompts come from several settings, each with the curve of its own setting."""
    first = parts[0]
    lossless, plain = ({t: _joined([getattr(part, name)[t] for part in parts]) for t in getattr(first, name)}
                       for name in ("lossless", "plain"))
    argmax = [part.argmax for part in parts if part.argmax is not None]
    spectra = [part.spectrum for part in parts if part.spectrum is not None]
    return Runs(_joined([part.own for part in parts]), _joined([part.exact for part in parts]), lossless, plain,
                _joined(argmax) if len(argmax) == len(parts) else None, first.is_strict,
                np.concatenate(spectra) if len(spectra) == len(parts) else None)


def _joined(counts: Sequence[Counts]) -> Counts:
    return Counts(*map(np.concatenate, zip(*counts, strict=True)))


def common(runs: Iterable[Mapping[str, Sample]]) -> list[str]:
    """Ids of the prompts that every run answered, sorted."""
    every = [set(run) for run in runs]
    return sorted(set.intersection(*every)) if every else []


def gain(own: Mapping[str, Sample], lossless: Mapping[str, Sample]) -> dict[str, Any]:
    """`tau_gain`, τ(own) − τ(lossless), with `_ci95` by a paired bootstrap over the prompts that both answered. Empty
    where neither took a cycle."""
    ids = common([own, lossless])
    runs = [Counts.of(run, ids) for run in (own, lossless)]
    if not all(run.cycles.sum() for run in runs):
        return {}
    parts = [pooled(runs[0], draws).tau - pooled(runs[1], draws).tau for draws in resampled(len(ids))]
    return _stated({"tau_gain": np.concatenate(parts)}, len(ids))


def split(runs: Runs, asked: float, resamples: int = RESAMPLES) -> dict[str, Any]:
    """The parts of `tau_gain` at the temperature asked for, above 0, each with `_ci95` by a bootstrap over prompts that
    redoes the match.

        tau_gain              τ(own) − τ(lossless at T)
        tau_gain_q            τ(own) − τ(exact)
        tau_gain_greedier     τ(lossless at T*) − τ(lossless at T), T* the temperature at which plain decoding has the
                              NLL of `exact`; 0 where that NLL is above plain decoding's at T ("hotter than T")
        tau_gain_relaxed      τ(exact) − τ(lossless at T*), with T* = T where the rule is hotter
        tau_gain_temperature  T*
        tau_gain_match        `MATCHED`, `HOTTER`, or `UNDEFINED` where more than 5% of the resamples leave the curve:
                              there is then neither T* nor a part of it
        tau_gain_relaxed_by_score  relaxed with the score in the place of the NLL; only where plain decoding's scores at
                              temperature 0 and at T differ significantly
        tau_gain_relaxed_by_kl  relaxed with T* the temperature of least KL divergence, at most the one asked for
        tau_gain_argmax       τ(argmax) − τ(lossless at T), the mechanical split: what argmax tokens bring

    Where `exact` is the lossless rule itself, there is nothing to match: all of the gain is q_mode's. Empty where a run
    took no cycle."""
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
    unknown = () if match != UNDEFINED else ("tau_gain_greedier", "tau_gain_relaxed", "tau_gain_temperature")
    known = {name: one for name, one in whole.items() if name.startswith("tau_gain") and name not in unknown
             and (by_score or not name.endswith("by_score"))}
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
        return parts | {"tau_gain_greedier": nothing, "tau_gain_relaxed": nothing, "left": nothing, "hotter": nothing,
                        "tau_gain_temperature": nothing + asked}
    matched, left = curve.matched(curve.nll, exact.nll)
    hotter = exact.nll > curve.at(curve.nll, asked)
    matched = np.where(hotter, asked, matched)
    there = curve.at(curve.tau, matched)
    if runs.spectrum is not None:
        closest = np.minimum(nearest(draws @ runs.spectrum), asked)
        parts["tau_gain_relaxed_by_kl"] = exact.tau - curve.at(curve.tau, closest)
    parts |= {"tau_gain_greedier": there - lossless, "tau_gain_relaxed": exact.tau - there,
              "tau_gain_temperature": matched, "left": _share(left & ~hotter), "hotter": _share(hotter)}
    return parts | _by_score(asked, exact, curve, draws)


def _by_score(asked: float, exact: Pooled, curve: Curve, draws: Floats) -> dict[str, Floats]:
    """The match by the score, made monotone between temperature 0 and the one asked for; empty without scores."""
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
        "left_by_score": _share(left & ~beyond), "score_change": curve.score[:, 0] - here}


def _share(events: NDArray[np.bool_]) -> Floats:
    return events.astype(float)


def _match(values: Mapping[str, NDArray[Any]]) -> str:
    left = values["left"][1:] if len(values["left"]) > 1 else values["left"]
    if left.mean() > OFF_CURVE:
        return UNDEFINED
    return HOTTER if values["hotter"][0] else MATCHED


def _differs(values: Mapping[str, Floats], n: int) -> bool:
    """Whether plain decoding's scores at temperature 0 and at the one asked for differ significantly."""
    ends = interval(values["score_change"], n) if "score_change" in values else None
    return ends is not None and not ends[0] <= 0 <= ends[1]


def _stated(values: Mapping[str, Floats], n: int) -> dict[str, Any]:
    """Each statistic, whose first value is that of all prompts, with its interval."""
    return {key: value for name, one in values.items()
            for key, value in ((name, float(one[0])), (f"{name}_ci95", interval(one, n)))}


def findings(cells: Sequence[tuple[str, Summary]]) -> list[str]:
    """Sentences on the measured cells of one task: one for each that differs from the lossless rule in τ, and one for
    all that do not. `cells`: names and summaries; those without a split are left out."""
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
        differing.append(f"{n} prompts show no difference in τ from the lossless rule for {'; '.join(alike)}.")
    return differing


def _split(summary: Summary) -> str:
    """The parts with their intervals, and what was matched."""
    parts = ", ".join(f"{words} {_with_interval(summary, part)}" for part, words in PARTS.items()
                      if getattr(summary, part) is not None)
    if summary.tau_gain_match == UNDEFINED:
        return f"{parts}; the rest is not split, its NLL is not on the curve of lossless decoding"
    if summary.tau_gain_match == HOTTER:
        return f"{parts}; its text is less likely than plain decoding's at the same temperature"
    return f"{parts}; its NLL is that of lossless decoding at T = {summary.tau_gain_temperature:.2f}"


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
