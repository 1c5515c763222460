"""Metrics of drafts: what a cycle commits, and which draft tokens are kept."""

from __future__ import annotations

import numpy as np

from results.metrics.metric import ALONE, Addends, Metric, declared
from results.store.sample import Compared

POSITIONS = 8
"""Draft positions whose acceptance rate is a metric of its own."""


@declared("τ", "", 2, "higher", compared=True, axis_unit="tokens per cycle")
def tau(pair: Compared) -> Addends:
    """Tokens committed per draft–verify cycle, pooled, the correction or bonus token included; 1 ≤
    τ ≤ K + 1."""
    return sum(pair.sample.committed), len(pair.sample.committed)


@declared("τ of the mean answer", "", 2, "higher", compared=True, axis_unit="tokens per cycle")
def tau_mean(pair: Compared) -> Addends:
    """The mean over answers of each answer's tokens per cycle, as some tools print the accept
    length: short answers count as much as long ones. Speed follows τ, which is pooled."""
    committed = pair.sample.committed
    return (sum(committed) / len(committed), 1) if committed else None


@declared("τ, timed prompts", "", 2, None, estimator=ALONE)
def timed_tau(pair: Compared) -> Addends:
    """τ of the timed prompts alone."""
    return None if pair.timed is None else (sum(pair.sample.committed), len(pair.sample.committed))


tau_gain = Metric(
    "tau_gain",
    "Δτ",
    "",
    2,
    None,
    "τ minus that of the lossless rule on the same drafter, settings and prompts. Interval: "
    "bootstrap over prompts.",
    signed=True,
)


@declared("Accepted length", "", 2, "higher", compared=True, axis_unit="tokens per cycle")
def accept_len(pair: Compared) -> Addends:
    """Accepted draft tokens per cycle, without the correction or bonus token."""
    return sum(pair.sample.accepted), len(pair.sample.accepted)


@declared("Acceptance rate", "%", 1, "higher", every=True, compared=True)
def acceptance_rate(pair: Compared) -> Addends:
    """Accepted draft tokens over those that the target verified: of a tree, all its nodes."""
    sample = pair.sample
    if len(sample.nodes) != len(sample.accepted):
        return None  # the sample does not say what each cycle drafted
    return sum(sample.accepted), sum(sample.nodes)


def _at(position: int) -> Metric:
    def adds(pair: Compared) -> Addends:
        sample = pair.sample
        if len(sample.levels) != len(sample.accepted):
            return None
        kept = sum(count >= position for count in sample.accepted)
        return kept, sum(depth >= position for depth in sample.levels)

    definition = (
        f"Acceptance rate by position: cycles that accepted at least {position} draft tokens, over "
        "those whose draft was so deep."
    )
    return Metric(
        f"acceptance_{position}",
        f"Accepted at {position}",
        "%",
        1,
        "higher",
        definition,
        adds=adds,
        every=True,
    )


acceptance = tuple(_at(position) for position in range(1, POSITIONS + 1))


@declared("From the draft", "%", 1, None)
def draft_share(pair: Compared) -> Addends:
    """Emitted tokens that came from the draft, over all emitted."""
    # an end-of-text token inside a draft cuts the cycle: what was accepted behind it is not emitted
    kept = int(np.minimum(pair.sample.accepted, pair.sample.committed).sum())
    return kept, len(pair.sample.output_ids)


@declared("Relaxed", "%", 1, None)
def relaxed_share(pair: Compared) -> Addends:
    """Accepted draft tokens that the lossless test rejects with the same random numbers and that
    are not the target's argmax, over all emitted tokens."""
    return pair.sample.relaxed, len(pair.sample.output_ids)


@declared("Greedier", "%", 1, None)
def greedier_share(pair: Compared) -> Addends:
    """Accepted draft tokens that the lossless test rejects with the same random numbers although
    they are the target's argmax, over all emitted tokens: not relaxed, but greedier than the
    temperature implies."""
    return pair.sample.greedier, len(pair.sample.output_ids)


@declared("Pruned ρ", "%", 1, None)
def pruned_share(pair: Compared) -> Addends:
    """Draft tokens dropped before verification, over all drafted."""
    return pair.sample.pruned, pair.sample.drafted
