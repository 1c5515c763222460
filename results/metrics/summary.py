"""From the samples of one cell to its metrics. One definition each, the same for every method.

A cycle is one draft-verify round; the token drawn from the prefill is emitted but belongs to no cycle. Everything is
pooled over the cell's prompts. What cannot be known is None. Shares, accuracies and recovery are fractions of 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from results.metrics import intervals
from results.metrics.phases import spent

Sample = Mapping[str, Any]


def summarise(samples: Sequence[Sample], *, metric: str, proportion: bool, phases: Mapping[str, float] | None = None,
              baseline_phases: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The summary of a cell.

    `samples` are the lines of samples.jsonl, in any order, one a prompt; failed ones are counted and left out.
    `metric` names the task's score, `proportion` says that it is 0 or 1. A cell whose samples carry no baseline is the
    autoregressive cell: it is its own baseline, with speedup 1 and no interval. `phases` are median seconds of the
    parts of a cycle (draft, verify, accept, commit) and of the whole (cycle), from a pass of its own, those of the
    baseline likewise.
    Raises ValueError for repeated prompts and for a cell where only some samples carry a baseline."""
    ids = [sample["id"] for sample in samples]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{len(ids) - len(set(ids))} prompts occur more than once: give each prompt's sample once")
    good = sorted((sample for sample in samples if "error" not in sample), key=lambda sample: sample["id"])
    with_baseline = sum(sample["baseline"] is not None for sample in good)
    if with_baseline not in (0, len(good)):
        raise ValueError(f"{with_baseline} of {len(good)} samples carry a baseline: a cell has it for all or for none")
    own = with_baseline == 0
    base = good if own else [sample["baseline"] for sample in good]
    cycles, speed = _cycles(good), _speed(good, base, own)
    return {
        **cycles,
        **speed,
        **_ideal(cycles["tau"], speed["speedup"], phases, baseline_phases),
        **spent(speed["prefill_s"], speed["decode_s"], phases),
        **_likelihood(good, base),
        **diversity(good),
        **_quality(good, base, proportion, own),
        **_events(good),
        **_agreement(good, base),
        "metric": metric,
        "n": len(good),
        "failed": len(samples) - len(good),
    }


def _cycles(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the draft-verify cycles did. A position that was not drafted counts as not accepted."""
    committed = np.array([c for sample in samples for c in sample["committed"]], dtype=int)
    accepted = np.array([a for sample in samples for a in sample["accepted"]], dtype=int)
    if len(committed) != len(accepted):
        raise ValueError(f"{len(committed)} cycles with committed tokens but {len(accepted)} with accepted ones")
    cycles, tokens = len(committed), sum(len(sample["output_ids"]) for sample in samples)
    histogram = np.bincount(accepted)
    at_least = histogram[::-1].cumsum()[::-1]
    drafted = [sample for sample in samples if sample["committed"]]
    each = [len(sample["committed"]) for sample in drafted]
    return {
        "tau": _ratio(committed.sum(), cycles),
        "tau_ci95": _listed(intervals.ratio_interval([sum(sample["committed"]) for sample in drafted], each)),
        "accept_len": _ratio(accepted.sum(), cycles),
        "accept_len_ci95": _listed(intervals.ratio_interval([sum(sample["accepted"]) for sample in drafted], each)),
        # An end-of-text token inside a draft cuts the cycle: what was accepted behind it is never emitted.
        "draft_share": _ratio(np.minimum(accepted, committed).sum(), tokens),
        "relaxed_share": _ratio(sum(sample["relaxed"] for sample in samples), tokens),
        "greedier_share": _ratio(sum(sample["greedier"] for sample in samples), tokens),
        "accept_histogram": histogram.tolist(),
        "accept_by_position": [float(count / cycles) for count in at_least[1:]],
        "tokens": tokens,
        "cycles": cycles,
    }


def _events(samples: Sequence[Sample]) -> dict[str, Any]:
    """Drafted tokens that were pruned, over all drafted; and how often each flag of the rule was set."""
    pruned, drafted = (sum(sample[name] for sample in samples) for name in ("pruned", "drafted"))
    flags: dict[str, int] = {}
    for sample in samples:
        for name, count in sample.get("flags", {}).items():
            flags[name] = flags.get(name, 0) + count
    return {**({"pruned_share": pruned / drafted} if drafted else {}), **({"events": flags} if flags else {})}


def _speed(samples: Sequence[Sample], base: Sequence[Sample], own: bool) -> dict[str, Any]:
    tokens, seconds, prefill = _timing(samples)
    base_tokens, base_seconds, _ = _timing(base)
    rate, base_rate = _ratio(tokens.sum(), seconds.sum()), _ratio(base_tokens.sum(), base_seconds.sum())
    # A prompt answered by the token of the prefill alone took no decode time and has no rate of its own.
    timed = (tokens > 0) & (seconds > 0) & (base_tokens > 0) & (base_seconds > 0)
    arms = tokens[timed], seconds[timed], base_tokens[timed], base_seconds[timed]
    interval = ratios = None
    if not own:
        interval = intervals.speedup_interval(*arms)
        ratios = (arms[0] / arms[1]) / (arms[2] / arms[3])
    return {
        "tokens_per_s": rate,
        "tokens_per_s_ci95": _listed(intervals.ratio_interval(arms[0], arms[1])),
        "baseline_tokens_per_s": base_rate,
        "speedup": _over(rate, base_rate),
        "speedup_ci95": _listed(interval),
        "speedup_mean_of_ratios": _over(rate, base_rate) if own else _mean(ratios),
        "e2e_tokens_per_s": _ratio(tokens.sum(), (prefill + seconds).sum()),
        "prefill_s": float(prefill.sum()),
        "decode_s": float(seconds.sum()),
    }


def _ideal(tau: float | None, speedup: float | None, phases: Mapping[str, float] | None,
           baseline: Mapping[str, float] | None) -> dict[str, Any]:
    """What the accepted length would give if a cycle cost its two model calls alone, and how much of it is reached."""
    if phases is None or baseline is None or tau is None:
        return {"speedup_ideal": None, "efficiency": None, "phases": None}
    ideal = tau * baseline["cycle"] / (phases["draft"] + phases["verify"])
    return {"speedup_ideal": ideal, "efficiency": _over(speedup, ideal), "phases": dict(phases)}


def _likelihood(samples: Sequence[Sample], base: Sequence[Sample]) -> dict[str, Any]:
    """Nats per emitted token under the raw target, of the cell and of its baseline."""
    found: dict[str, Any] = {}
    for name, runs in (("nll", samples), ("baseline_nll", base)):
        nats, tokens = [run.get("nll") for run in runs], [len(run["output_ids"]) for run in runs]
        known = bool(nats) and None not in nats
        found[name] = _ratio(sum(nats), sum(tokens)) if known else None
        found[f"{name}_ci95"] = _listed(intervals.ratio_interval(nats, tokens)) if known and sum(tokens) else None
    return found


def diversity(samples: Sequence[Sample]) -> dict[str, Any]:
    """How much a prompt's answers differ; samples of one prompt share their id or their group.

    distinct_2      distinct pairs of neighbouring tokens over all of them, in all answers to a prompt; its mean
    self_agreement  edit similarity (as in `edit_similarity`) of two answers to a prompt: mean over the pairs of its
                    answers, then over prompts; None with one answer each
    repeats         answers a prompt, at most"""
    prompts: dict[str, list[list[int]]] = {}
    for sample in samples:
        prompts.setdefault(sample.get("group") or sample["id"], []).append(sample["output_ids"])
    shares, agreements = [], []
    for answers in prompts.values():
        pairs = [pair for ids in answers for pair in pairwise(ids)]
        if pairs:
            shares.append(len(set(pairs)) / len(pairs))
        if len(answers) > 1:
            agreements.append(_mean([intervals.edit_similarity(a, b) for a, b in combinations(answers, 2)]))
    return {"distinct_2": _mean(shares), "self_agreement": _mean(agreements),
            "repeats": max(map(len, prompts.values()), default=0)}


def _timing(runs: Sequence[Sample]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Emitted tokens, decode seconds and prefill seconds, each [prompts]."""
    tokens = np.array([len(run["output_ids"]) for run in runs], dtype=float)
    seconds = np.array([run["decode_s"] for run in runs], dtype=float)
    return tokens, seconds, np.array([run["prefill_s"] for run in runs], dtype=float)


def _quality(samples: Sequence[Sample], base: Sequence[Sample], proportion: bool, own: bool) -> dict[str, Any]:
    if any(sample.get("group") is not None for sample in samples):
        return _quality_of_groups(samples, base)
    accuracy, interval = _accuracy([run["score"] for run in samples], proportion)
    base_accuracy, base_interval = _accuracy([run["score"] for run in base], proportion)
    pairs = [(a["score"], b["score"]) for a, b in zip(samples, base, strict=True)]
    known = [(a == 1, b == 1) for a, b in pairs if a is not None and b is not None]
    test = intervals.mcnemar_p([a for a, _ in known], [b for _, b in known]) if proportion and not own else None
    return {
        "accuracy": accuracy,
        "accuracy_ci95": interval,
        "baseline_accuracy": base_accuracy,
        "baseline_accuracy_ci95": base_interval,
        "recovery": _over(accuracy, base_accuracy),
        "mcnemar_p": test,
    }


def _quality_of_groups(samples: Sequence[Sample], base: Sequence[Sample]) -> dict[str, Any]:
    """Several samples an item: the mean over items of their means (pass@1, for passed or not), and pass@k. Samples of
    one item depend on one another, so intervals are over items, and there is no paired test."""
    runs, base_runs = (_grouped(samples, arm) for arm in (samples, base))
    accuracy, interval = _accuracy([float(np.mean(scores)) for scores in runs], False)
    base_accuracy, base_interval = _accuracy([float(np.mean(scores)) for scores in base_runs], False)
    return {
        "accuracy": accuracy,
        "accuracy_ci95": interval,
        "baseline_accuracy": base_accuracy,
        "baseline_accuracy_ci95": base_interval,
        "recovery": _over(accuracy, base_accuracy),
        "mcnemar_p": None,
        "pass_at_k": intervals.pass_at_k(runs),
        "baseline_pass_at_k": intervals.pass_at_k(base_runs),
    }


def _grouped(samples: Sequence[Sample], arm: Sequence[Sample]) -> list[list[float]]:
    """The known scores of `arm`, an item's samples together."""
    groups: dict[str, list[float]] = {}
    for sample, run in zip(samples, arm, strict=True):
        if run["score"] is not None:
            groups.setdefault(sample["group"], []).append(run["score"])
    return list(groups.values())


def _accuracy(scores: Sequence[float | None], proportion: bool) -> tuple[float | None, list[float] | None]:
    known = [float(score) for score in scores if score is not None]
    if proportion and any(score not in (0.0, 1.0) for score in known):
        odd = next(score for score in known if score not in (0.0, 1.0))
        raise ValueError(f"score {odd} is not 0 or 1, but the task's metric is declared a proportion")
    right = int(sum(known))
    interval = intervals.proportion_interval(right, len(known)) if proportion else intervals.mean_interval(known)
    return _mean(known), _listed(interval)


def _agreement(samples: Sequence[Sample], base: Sequence[Sample]) -> dict[str, Any]:
    pairs = [(a["output_ids"], b["output_ids"]) for a, b in zip(samples, base, strict=True)]
    return {
        "precision": _mean([a == b for a, b in pairs]),
        "edit_similarity": _mean([intervals.edit_similarity(a, b) for a, b in pairs]),
    }


def _ratio(a: float, b: float) -> float | None:
    return float(a / b) if b > 0 else None


def _over(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else _ratio(a, b)


def _mean(values: Sequence[float] | np.ndarray | None) -> float | None:
    return None if values is None or len(values) == 0 else float(np.mean(values))


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)
