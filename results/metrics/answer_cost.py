"""What an answer costs, not only a token: relaxed rules can make answers longer, and per-token speed then flatters.

Own answers and those of autoregressive decoding are compared prompt by prompt. Sums come first; medians over prompts
stand beside them, because a few runaway answers hold much of the tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from results.metrics import intervals
from results.store.sample import Sample

LOOP_PERIOD, LOOP_TOKENS, LOOP_TURNS = 200, 64, 4
"""Longest period of a loop, and its shortest length: so many tokens, and so many periods."""
CENSORED_ABOVE = 0.1
"""Share of the lossless answers at the length limit above which lengths cannot be compared."""
CENSORED = ("answer_speedup", "answer_speedup_modelled", "length_ratio", "length_ratio_median", "pass_ratio",
            "pass_ratio_median", "pass_ratio_strict", "loop_share", "loop_change", "no_answer_share",
            "no_answer_change", "length_adjusted_speedup", "over_best_length", "over_best_answer")
"""Metrics that a length limit censors."""
LENGTH = "length"
"""How a turn ended at the length limit."""


def answer_costs(samples: Sequence[Sample], base: Sequence[Sample]) -> dict[str, Any]:
    """Length, target passes and runaways of the answers, beside those of autoregressive decoding, `base`, which is
    `samples` itself in the autoregressive cell. Both are in the same order.

    length_ratio, pass_ratio     sums over prompts: own tokens ÷ the baseline's; the baseline's passes ÷ own, where a
                                 pass is a forward of the target after the prefill
    …_median                     median over prompts of the ratio of each
    cap_hit_share                answers of which a turn ended at the length limit, over all
    loop_share                   answers of which a turn ends in a loop (`ends_in_loop`), over all
    no_answer_share              scored answers in which the scorer found no answer, over those scored in both
    …_change                     the share minus the baseline's, prompts paired; None in the autoregressive cell
    """
    is_own_baseline = samples is base
    lengths, base_lengths = _lengths(samples), _lengths(base)
    passes, base_passes = _passes(samples), _passes(base)
    ratios = {**_ratio("length_ratio", lengths, base_lengths), **_ratio("pass_ratio", base_passes, passes)}
    if is_own_baseline:  # the same runs on both sides: 1 by definition
        ratios = {name: None if name.endswith("_ci95") else value for name, value in ratios.items()}
    shares: dict[str, Any] = {}
    for name, event in (("cap_hit", is_capped), ("loop", loops)):
        own, other = [event(run) for run in samples], [event(run) for run in base]
        shares |= _share(name, own, None if is_own_baseline else other) | {f"baseline_{name}_share": _mean(other)}
    unanswered = [(own.answer is None, other.answer is None) for own, other in zip(samples, base, strict=True)
                  if own.score is not None and other.score is not None]
    missing, base_missing = [own for own, _ in unanswered], [other for _, other in unanswered]
    shares |= _share("no_answer", missing, None if is_own_baseline else base_missing)
    return ratios | shares | {"baseline_no_answer_share": _mean(base_missing)}


def lossless_pass_ratio(samples: Sequence[Sample], lossless: Sequence[Sample]) -> dict[str, Any]:
    """`pass_ratio_strict`: target passes of the lossless rule on the same drafter ÷ own, over the common prompts. Does
    relaxation still save passes per answer?"""
    own, other = ({sample.id: sample for sample in runs} for runs in (samples, lossless))
    ids = sorted(own.keys() & other.keys())
    ratio = _ratio("pass_ratio_strict", _passes([other[i] for i in ids]), _passes([own[i] for i in ids]))
    return {name: value for name, value in ratio.items() if "median" not in name}


def ends_in_loop(ids: Sequence[int]) -> bool:
    """Whether the last max(64, 4 d) tokens repeat with a period d ≤ 200: the runaway form, high acceptance without
    end."""
    tail = np.asarray(ids)
    for period in range(1, min(LOOP_PERIOD, len(tail) // LOOP_TURNS) + 1):
        size = max(LOOP_TOKENS, LOOP_TURNS * period)
        if size <= len(tail) and (tail[-size:-period] == tail[len(tail) - size + period:]).all():
            return True
    return False


def is_capped(run: Sample) -> bool:
    """Whether a turn of the answer ended at the length limit."""
    return LENGTH in run.finish


def loops(run: Sample) -> bool:
    """Whether a turn of the answer ends in a loop."""
    return any(map(ends_in_loop, _turns(run)))


def passes_of(run: Sample) -> int:
    """Forwards of the target after the prefill."""
    return len(run.committed)


def censoring(baseline_cap_hit_share: float | None) -> str:
    """Why lengths of this cell cannot be compared, as a footnote; empty where they can."""
    if baseline_cap_hit_share is None or baseline_cap_hit_share <= CENSORED_ABOVE:
        return ""
    return f"censored: {baseline_cap_hit_share:.0%} of the lossless answers end at the length limit"


def _turns(run: Sample) -> Iterator[Sequence[int]]:
    """The tokens of each turn."""
    ends = np.cumsum(run.turn_tokens)
    for size, end in zip(run.turn_tokens, ends.tolist(), strict=True):
        yield run.output_ids[end - size:end]


def _lengths(runs: Sequence[Sample]) -> NDArray[np.float64]:
    return np.array([len(run.output_ids) for run in runs], float)


def _passes(runs: Sequence[Sample]) -> NDArray[np.float64]:
    return np.array([passes_of(run) for run in runs], float)


def _ratio(name: str, above: NDArray[np.float64], below: NDArray[np.float64]) -> dict[str, Any]:
    """Sum over sum, and the median over the prompts that have a ratio; both with paired bootstrap intervals."""
    total, each = below.sum(), above[below > 0] / below[below > 0]
    return {
        name: float(above.sum() / total) if total > 0 else None,
        f"{name}_ci95": intervals.ratio_interval(above[below > 0], below[below > 0]),
        f"{name}_median": float(np.median(each)) if len(each) else None,
        f"{name}_median_ci95": intervals.median_interval(each),
    }


def _share(name: str, own: Sequence[bool], other: Sequence[bool] | None) -> dict[str, Any]:
    """A share with Wilson's interval, and its paired difference to that of the baseline, `other`."""
    change, interval = None, None
    if other:
        change = float(np.mean(own) - np.mean(other))
        interval = intervals.difference_interval(np.asarray(other, float), np.asarray(own, float))
    return {f"{name}_share": _mean(own), f"{name}_share_ci95": intervals.proportion_interval(sum(own), len(own)),
            f"{name}_change": change, f"{name}_change_ci95": interval}


def _mean(values: ArrayLike) -> float | None:
    array = np.asarray(values, float)
    return float(array.mean()) if len(array) else None
