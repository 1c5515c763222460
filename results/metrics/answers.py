"""Metrics of texts: how likely, how long, how alike answers are, and whether they end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from results.metrics.metric import ALONE, SKEWED, WILSON, Addends, Metric, declared
from results.store.sample import Compared, Sample

LOOP_PERIOD, LOOP_TOKENS, LOOP_TURNS = 200, 64, 4
"""Longest period of a loop, and its shortest length: so many tokens, and so many periods."""
CENSORED_ABOVE = 0.1
"""Share of the lossless answers at the length limit above which lengths cannot be compared."""
LENGTH = "length"
"""How a turn ended at the length limit."""


@declared("NLL", "", 3, None, estimator=SKEWED, every=True)
def nll(pair: Compared) -> Addends:
    """Mean −log p(token) of the emitted tokens under the raw target, nats. A value below that of
    plain sampling at the same temperature means that the output is greedier than the temperature
    implies."""
    sample = pair.sample
    return None if sample.nll is None else (sample.nll, len(sample.output_ids))


distinct_2 = Metric(
    "distinct_2",
    "Distinct-2",
    "%",
    1,
    None,
    "Distinct pairs of neighbouring tokens over all such pairs in a prompt's answers, all "
    "repeats pooled; mean over prompts. Comparable only at equal numbers of repeats.",
)
self_agreement = Metric(
    "self_agreement",
    "Self-agreement",
    "%",
    1,
    None,
    "Edit similarity of two answers to one prompt with different random numbers, mean over "
    "pairs and prompts.",
)


@declared("Length ratio", "×", 2, None, relative="ratio", censored=True)
def length_ratio(pair: Compared) -> Addends:
    """Emitted tokens over those of autoregressive decoding of the same prompts, sum over sum: above
    1, faster tokens are spent on longer answers. Interval: Student's t on the logarithm, as for all
    ratios here."""
    return len(pair.sample.output_ids), len(pair.baseline.output_ids)


@declared("Truncated", "%", 1, "lower", estimator=WILSON, compared=True)
def truncated_share(pair: Compared) -> Addends:
    """Answers of which a turn ended at the length limit, over all. A limit hides length, and an
    unfinished answer counts as wrong. Interval: Wilson."""
    return LENGTH in pair.sample.finish, 1


@declared("Baseline truncated", "%", 1, None, estimator=ALONE)
def baseline_truncated_share(pair: Compared) -> Addends:
    """Answers of autoregressive decoding of which a turn ended at the length limit. Above 10%,
    lengths and loops of the cell are marked as censored."""
    return LENGTH in pair.baseline.finish, 1


@declared("Loops", "%", 1, "lower", estimator=WILSON, compared=True, censored=True)
def loop_share(pair: Compared) -> Addends:
    """Answers of which a turn ends in a loop: its last max(64, 4 d) tokens repeat with a period d
    of at most 200. Interval: Wilson."""
    return any(map(ends_in_loop, _turns(pair.sample))), 1


out_of_head_1k = Metric(
    "out_of_head_1k",
    "Out of head / 1k",
    "",
    1,
    "lower",
    "Per 1,000 emitted tokens, the accepted draft tokens that the lossless test rejects with "
    "the same random numbers and whose probability is below a fifth of the largest "
    "(processed; at temperature 0, at temperature 1). Rules that lengthen answers commit "
    "these. Interval: bootstrap over prompts.",
)


def ends_in_loop(ids: Sequence[int]) -> bool:
    """Whether the last max(64, 4 d) tokens repeat with a period d ≤ 200: the runaway form, high
    acceptance without end."""
    tail = np.asarray(ids)
    longest = min(LOOP_PERIOD, len(tail) // LOOP_TURNS)
    repeated: list[int] = (
        (1 + np.flatnonzero(tail[-1 - longest : -1][::-1] == tail[-1])).tolist() if longest else []
    )
    for period in repeated:
        size = max(LOOP_TOKENS, LOOP_TURNS * period)
        if size <= len(tail) and (tail[-size:-period] == tail[len(tail) - size + period :]).all():
            return True
    return False


def _turns(run: Sample) -> Iterator[Sequence[int]]:
    """The tokens of each turn."""
    ends = np.cumsum(run.turn_tokens)
    for size, end in zip(run.turn_tokens, ends.tolist(), strict=True):
        yield run.output_ids[end - size : end]


def censoring(baseline_truncated_share: float | None) -> str:
    """Why lengths of this cell cannot be compared, as a footnote; empty where they can."""
    if baseline_truncated_share is None or baseline_truncated_share <= CENSORED_ABOVE:
        return ""
    return (
        f"censored: {baseline_truncated_share:.0%} of the lossless answers end at the length limit"
    )
