"""From the samples of one cell to its summary: one definition per metric, the same for every method.

A cycle is one draft–verify round; the token drawn from the prefill is emitted but belongs to no cycle. Everything is
pooled over the prompts of the cell; speeds over those that were timed (`results.metrics.speed`). What cannot be known
is None. Shares, accuracies and recovery are fractions of 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics import intervals
from results.metrics.answer_cost import answer_costs
from results.metrics.answer_speed import answer_speeds
from results.metrics.intervals import Interval
from results.metrics.phases import time_shares
from results.metrics.quality_loss import score_change, score_pairs
from results.metrics.roofline import roofline
from results.metrics.speed import speeds
from results.store.compared import Compared
from results.store.sample import FailedSample, Sample
from results.store.summary import Summary

Floats = NDArray[np.float64]

def summarise(records: Sequence[Compared | FailedSample], *, metric: str, proportion: bool,
              phases: Mapping[str, float] | None = None, prompt_phases: Sequence[Mapping[str, float]] = (),
              baseline_phases: Mapping[str, float] | None = None, reads: Mapping[str, float] | None = None) -> Summary:
    """The summary of a cell.

    records          its prompts in any order, each once; failed ones are counted and left out
    metric           name of the task's score
    proportion       is the score 0 or 1?
    phases           seconds of the parts of a cycle (draft, verify, accept, commit) and of the whole (cycle), from a
                     profiling pass: mean over its prompts of their medians
    prompt_phases    these medians, one mapping for each of its prompts
    baseline_phases  as phases, of the baseline
    reads            what a step of the baseline reads (`results.metrics.roofline`)

    The autoregressive cell is its own baseline, with speedup 1 and no interval. Raises ValueError for repeated prompts
    and for a cell where only some samples are their own baseline."""
    repeated = len(records) - len({record.id for record in records})
    if repeated:
        raise ValueError(f"{repeated} prompts occur more than once: give each prompt's sample once")
    pairs = sorted((record for record in records if isinstance(record, Compared)), key=lambda pair: pair.id)
    samples, base = [pair.sample for pair in pairs], [pair.baseline for pair in pairs]
    alone = sum(own is other for own, other in zip(samples, base, strict=True))
    if alone not in (0, len(pairs)):
        raise ValueError(f"{alone} of {len(pairs)} samples are their own baseline: a cell has none or all such")
    autoregressive = alone == len(pairs)
    cycles, speed = _cycles(samples), speeds(pairs, autoregressive)
    unscored = sum(run.unscored for run in (samples if autoregressive else [*samples, *base]))
    if unscored:  # the accuracy of a part would look like that of the whole
        pairs = [replace(pair, sample=replace(pair.sample, score=None), baseline=replace(pair.baseline, score=None))
                 for pair in pairs]
        samples, base = [pair.sample for pair in pairs], [pair.baseline for pair in pairs]
    return Summary(
        n=len(samples), failed=len(records) - len(samples), metric=metric,
        **_unscored(unscored),
        **cycles,
        **_rule_events(samples),
        **speed,
        **_ideal_speedup(cycles["tau"], phases, baseline_phases),
        roofline=roofline(base, speed["baseline_tokens_per_s"], reads),
        **time_shares([pair.timed.own for pair in pairs if pair.timed is not None], phases, prompt_phases),
        **_quality(pairs, metric, proportion, autoregressive),
        **_agreement(samples, base),
        **answer_costs(samples, samples if autoregressive else base),
        **answer_speeds(pairs, autoregressive),
        **_likelihood(samples, base),
        **diversity(samples),
    )


def _unscored(answers: int) -> dict[str, Any]:
    return {"unscored": answers} if answers else {}


def _cycles(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the draft–verify cycles did. A position that was not drafted counts as not accepted."""
    committed = np.array([count for sample in samples for count in sample.committed], dtype=int)
    accepted = np.array([count for sample in samples for count in sample.accepted], dtype=int)
    if len(committed) != len(accepted):
        raise ValueError(f"{len(committed)} cycles with committed tokens but {len(accepted)} with accepted ones")
    cycles, tokens = len(committed), sum(len(sample.output_ids) for sample in samples)
    histogram = np.bincount(accepted)
    at_least = histogram[::-1].cumsum()[::-1]
    drafted = [sample for sample in samples if sample.committed]
    cycles_each = [len(sample.committed) for sample in drafted]
    # An end-of-text token inside a draft cuts the cycle: what was accepted behind it is never emitted.
    from_draft = [int(np.minimum(sample.accepted, sample.committed).sum()) for sample in samples]
    return {
        "tokens": tokens,
        "cycles": cycles,
        "tau": _ratio(committed.sum(), cycles),
        "tau_ci95": intervals.ratio_interval([sum(sample.committed) for sample in drafted], cycles_each),
        "accept_len": _ratio(accepted.sum(), cycles),
        "accept_len_ci95": intervals.ratio_interval([sum(sample.accepted) for sample in drafted], cycles_each),
        **_token_shares(samples, {"draft_share": from_draft, "relaxed_share": [sample.relaxed for sample in samples],
                                  "greedier_share": [sample.greedier for sample in samples]}),
        "accept_histogram": histogram.tolist(),
        "accept_by_position": [float(count / cycles) for count in at_least[1:]],
    }


def _token_shares(samples: Sequence[Sample], counts: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Counts per prompt as shares of the emitted tokens."""
    tokens = [len(sample.output_ids) for sample in samples]
    shares: dict[str, Any] = {}
    for name, of_prompts in counts.items():
        shares |= {name: _ratio(sum(of_prompts), sum(tokens)), f"{name}_ci95": _pooled_interval(of_prompts, tokens)}
    return shares


def _rule_events(samples: Sequence[Sample]) -> dict[str, Any]:
    """Pruned over drafted tokens, and how often each flag of the rule was set; nothing where neither happened."""
    drafted, pruned = [sample.drafted for sample in samples], [sample.pruned for sample in samples]
    flags: Counter[str] = Counter()
    for sample in samples:
        flags.update(sample.flags)
    share = {"pruned_share": _ratio(sum(pruned), sum(drafted)), "pruned_share_ci95": _pooled_interval(pruned, drafted)}
    return {**(share if any(drafted) else {}), **({"events": dict(flags)} if flags else {})}


def _ideal_speedup(tau: float | None, phases: Mapping[str, float] | None,
                   baseline_phases: Mapping[str, float] | None) -> dict[str, Any]:
    """τ · t_ar ÷ (t_draft + t_verify): the speedup if a cycle cost its two model calls alone; and the share of a cycle
    that these take, of the same pass: the share of the ideal speedup that its cycles reach."""
    if phases is None or baseline_phases is None or tau is None:
        return {"speedup_ideal": None, "efficiency": None, "phases": None}
    calls = phases["draft"] + phases["verify"]
    return {"speedup_ideal": tau * baseline_phases["cycle"] / calls, "efficiency": calls / phases["cycle"],
            "phases": dict(phases)}


def _quality(compared: Sequence[Compared], metric: str, proportion: bool, autoregressive: bool) -> dict[str, Any]:
    samples, base = [pair.sample for pair in compared], [pair.baseline for pair in compared]
    if any(sample.group is not None for sample in samples):
        return _quality_of_groups(compared, samples, base, tried_of(metric))
    pairs = [(own.score == 1, other.score == 1) for own, other in zip(samples, base, strict=True)
             if own.score is not None and other.score is not None]
    paired_test = proportion and not autoregressive
    both = score_pairs(compared)
    return {
        **_accuracies([run.score for run in samples], [run.score for run in base], proportion),
        **_recovery_interval(both),
        **score_change(both),
        "mcnemar_p": intervals.mcnemar_p([a for a, _ in pairs], [b for _, b in pairs]) if paired_test else None,
    }


def _quality_of_groups(compared: Sequence[Compared], samples: Sequence[Sample],
                       base: Sequence[Sample], tried: int) -> dict[str, Any]:
    """Several samples per item: the mean over items of their mean scores (pass@1 for passed or not) or, with `tried` of
    them, of the chance that one of so many passes; and pass@k.

    Samples of one item depend on one another, so intervals are over items, and there is no paired test."""
    by_item, base_by_item = _scores_by_item(samples, samples), _scores_by_item(samples, base)
    scores, base_scores = list(by_item.values()), list(base_by_item.values())
    passed, base_passed = _passed(by_item, tried), _passed(base_by_item, tried)
    both = {item: (base_passed[item], passed[item]) for item in passed if item in base_passed}
    if tried == 1:
        both = score_pairs(compared)
    return {
        **_accuracies(list(passed.values()), list(base_passed.values()), False),
        **_recovery_interval(both),
        **score_change(both),
        "mcnemar_p": None,
        "pass_at_k": intervals.pass_at_k(scores),
        "baseline_pass_at_k": intervals.pass_at_k(base_scores),
    }


def tried_of(metric: str) -> int:
    """k of a score called pass@k; 1 for every other."""
    tried = metric.removeprefix("pass@")
    return int(tried) if tried.isdigit() else 1


def _passed(scores: Mapping[str, Sequence[float]], tried: int) -> dict[str, float]:
    """Item -> its mean score or, for more than one try, 1 − C(n − c, k) ÷ C(n, k) of its n scores, c of them 1: the
    chance that one of k passes. Items with fewer scores than k are left out."""
    if tried == 1:
        return {item: float(np.mean(own)) for item, own in scores.items()}
    return {item: 1 - math.comb(sum(score < 1 for score in own), tried) / math.comb(len(own), tried)
            for item, own in scores.items() if len(own) >= tried}


def _scores_by_item(samples: Sequence[Sample], runs: Sequence[Sample]) -> dict[str, list[float]]:
    """Item -> the known scores of `runs`; `samples` say which item each run answers."""
    groups: dict[str, list[float]] = {}
    for sample, run in zip(samples, runs, strict=True):
        if run.score is not None:
            groups.setdefault(sample.item, []).append(run.score)
    return groups


def _accuracies(scores: Sequence[float | None], base_scores: Sequence[float | None],
                proportion: bool) -> dict[str, Any]:
    accuracy, interval = _accuracy(scores, proportion)
    base_accuracy, base_interval = _accuracy(base_scores, proportion)
    return {
        "accuracy": accuracy,
        "accuracy_ci95": interval,
        "baseline_accuracy": base_accuracy,
        "baseline_accuracy_ci95": base_interval,
        "recovery": _optional_ratio(accuracy, base_accuracy),
    }


def _recovery_interval(both: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """`both`: item -> its score under the baseline, and under the method. None unless the baseline is right on at least
    ten items: resamples on which it is never right have no ratio."""
    base, own = ([pair[side] for pair in both.values()] for side in (0, 1))

    def ratio(own: Floats, base: Floats, axis: int) -> Floats:
        known = base.sum(axis) > 0
        return np.where(known, own.sum(axis) / np.where(known, base.sum(axis), 1.0), np.inf)

    enough = sum(score > 0 for score in base) >= 10
    return {"recovery_ci95": intervals.paired_interval([own, base], ratio) if enough else None}


def _accuracy(scores: Sequence[float | None], proportion: bool) -> tuple[float | None, Interval | None]:
    """Mean and 95% interval of the known scores. Raises ValueError for a proportion with a score other than 0 and 1."""
    values = [float(score) for score in scores if score is not None]
    if not proportion:
        return _mean(values), intervals.mean_interval(values)
    if odd := next((score for score in values if score not in (0.0, 1.0)), None):
        raise ValueError(f"score {odd} is not 0 or 1, but the task's metric is declared a proportion")
    return _mean(values), intervals.proportion_interval(int(sum(values)), len(values))


def _agreement(samples: Sequence[Sample], base: Sequence[Sample]) -> dict[str, Any]:
    pairs = [(own.output_ids, other.output_ids) for own, other in zip(samples, base, strict=True)]
    equal, similar = [own == other for own, other in pairs], [intervals.edit_similarity(*pair) for pair in pairs]
    return {
        "precision": _mean(equal),
        "precision_ci95": intervals.proportion_interval(sum(equal), len(equal)),
        "edit_similarity": _mean(similar),
        "edit_similarity_ci95": intervals.mean_interval(similar),
    }


def _likelihood(samples: Sequence[Sample], base: Sequence[Sample]) -> dict[str, Any]:
    """Nats per emitted token under the raw target, of the cell and of its baseline; None unless every run has them."""
    likelihood: dict[str, Any] = {}
    for name, runs in (("nll", samples), ("baseline_nll", base)):
        nats = [run.nll for run in runs if run.nll is not None]
        tokens = [len(run.output_ids) for run in runs]
        known = len(nats) == len(runs) and sum(tokens) > 0
        likelihood[name] = _ratio(sum(nats), sum(tokens)) if known else None
        likelihood[f"{name}_ci95"] = intervals.ratio_interval(nats, tokens) if known else None
    return likelihood


def diversity(samples: Sequence[Sample]) -> dict[str, Any]:
    """How much the answers to a prompt differ; samples of one prompt share their id or their group.

    distinct_2      distinct pairs of neighbouring tokens over all of them, in all answers to a prompt; its mean
    self_agreement  edit similarity (as in `edit_similarity`) of two answers to a prompt: mean over the pairs of its
                    answers, then over prompts; None with one answer each
    repeats         most answers to one prompt"""
    answers_of: dict[str, list[list[int]]] = {}
    for sample in samples:
        answers_of.setdefault(sample.item, []).append(sample.output_ids)
    distinct, agreements = [], []
    for answers in answers_of.values():
        bigrams = [bigram for ids in answers for bigram in pairwise(ids)]
        if bigrams:
            distinct.append(len(set(bigrams)) / len(bigrams))
        if len(answers) > 1:
            agreements.append(float(np.mean([intervals.edit_similarity(a, b) for a, b in combinations(answers, 2)])))
    return {"distinct_2": _mean(distinct), "distinct_2_ci95": intervals.mean_interval(distinct),
            "self_agreement": _mean(agreements), "self_agreement_ci95": intervals.mean_interval(agreements),
            "repeats": max(map(len, answers_of.values()), default=0)}


def _pooled_interval(numerators: Sequence[float] | Floats, denominators: Sequence[float] | Floats) -> Interval | None:
    """`ratio_interval` over the prompts that have a denominator."""
    pairs = [(a, b) for a, b in zip(numerators, denominators, strict=True) if b > 0]
    return intervals.ratio_interval([a for a, _ in pairs], [b for _, b in pairs])


def _ratio(a: float, b: float) -> float | None:
    return float(a / b) if b > 0 else None


def _optional_ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else _ratio(a, b)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None
