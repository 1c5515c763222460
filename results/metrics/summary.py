"""From the samples of one cell to its metrics: one definition each, the same for every method.

A cycle is one draft–verify round; the token drawn from the prefill is emitted but belongs to no
cycle. Everything is pooled over the prompts of the cell; what the clock says, over those that were
timed. What cannot be known is None. Shares, accuracies and recovery are fractions of 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from itertools import combinations, compress, pairwise
from typing import Any

import numpy as np

from results.metrics.answer_speed import unit_names
from results.metrics.catalog import METRICS
from results.metrics.delta import Between
from results.metrics.intervals import Interval, edit_similarity
from results.metrics.metric import ALONE, ByItem, Sums, by_name
from results.metrics.phases import NAMES, time_shares
from results.store.cells import CellFolder
from results.store.sample import Compared, FailedSample, JudgeSummary, Sample, Timed, compare
from results.store.state import PROFILE

END = "_ci95"
"""How the name of a metric's 95% interval ends."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Summary:
    """The metrics of one cell, each computed when it is asked for: `summary.tau`,
    `summary.tau_ci95`.

    n, failed            prompts measured, prompts that failed and are left out
    metric, proportion   name of the task's score; whether it is 0 or 1
    is_baseline          the autoregressive cell, which is its own baseline
    asked                prompts that the command asked for; None: all of the task
    timed                prompts timed
    unscored             answers that the machine could not score, of the cell and of its baseline:
                         no accuracy is known
    tokens, cycles       emitted tokens, draft–verify cycles
    prefill_s, decode_s  seconds, summed over the timed prompts
    repeats              most answers to one prompt
    events               how often each flag of the rule was set on an emitted token
    phases               seconds of the parts of a cycle, from the profiling pass: mean over prompts
                         of their medians
    judge                scores of an LLM judge
    judged               what the verdict on it needs (`results.metrics.verdict.Judged`)
    sessions             measuring sessions of its timed prompts
    between              what differs between sessions, which is in the interval of every speed over
                         plain decoding; None: it is not counted
    sums                 name of a metric -> what prompts add to it
    stated               metrics that are not of these sums: name -> value or `Sums`, name_ci95 ->
                         interval
    later                name of a metric -> what computes it, together with others
    """

    n: int
    failed: int
    metric: str
    proportion: bool
    is_baseline: bool = False
    asked: int | None = None
    timed: int = 0
    unscored: int = 0
    tokens: int = 0
    cycles: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    repeats: int = 0
    events: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, float] | None = None
    judge: JudgeSummary | None = None
    judged: Any = None
    sessions: int = 0
    between: Between | None = None
    sums: Mapping[str, Sums] = field(default_factory=dict)
    stated: Mapping[str, Any] = field(default_factory=dict)
    later: Mapping[str, Callable[[], Mapping[str, Any]]] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        """A metric of the catalog; None if it was not measured."""
        if name not in self._values:
            self._values[name] = self._value(name)
        return self._values[name]

    def interval(self, name: str) -> Interval | None:
        """Its 95% interval, or None."""
        if name not in self._intervals:
            self._intervals[name] = self._interval(name)
        return self._intervals[name]

    def by_item(self, name: str) -> ByItem:
        """The sums of each item that rows are compared by; of what the clock said, of prompts timed
        at once. Empty for a metric that rows cannot be compared by."""
        metric = METRICS[name]
        if not metric.compared or name not in self.sums:
            return {}
        sums = self.sums[name]
        known = metric.estimator.known(sums.rows)
        names = sums.units if metric.estimator.clocked else sums.items
        return by_name(sums.rows[known], list(compress(names, known)))

    def with_values(self, **values: Any) -> Summary:
        """This summary with further metrics, intervals and fields set. Raises ValueError for any
        other name."""
        known = {each.name for each in fields(self)}
        stated = {name: value for name, value in values.items() if name not in known}
        unknown = [name for name in stated if name.removesuffix(END) not in METRICS]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: no metric of results/metrics/catalog.py")
        changes = {name: values[name] for name in known & values.keys()}
        return replace(self, stated={**self.stated, **stated}, **changes)

    def with_later(self, names: Iterable[str], compute: Callable[[], Mapping[str, Any]]) -> Summary:
        """This summary with metrics of other files, which `compute` gives, as `with_values` takes
        them, when the first of these names is asked for."""
        return replace(self, later={**self.later, **dict.fromkeys(names, cache(compute))})

    def plain(self) -> dict[str, Any]:
        """Every metric with its interval, as JSON holds them, and what else is known."""
        left_out = {
            "sums",
            "stated",
            "later",
            "is_baseline",
            "proportion",
            "judge",
            "judged",
            "sessions",
            "between",
        }
        left_out |= {name for name in ("events", "unscored") if not getattr(self, name)}
        names = [each.name for each in fields(self) if each.name not in left_out]
        whole = {name: getattr(self, name) for name in names}
        for name, metric in METRICS.items():
            if metric.adds is not None or name in self._stated_by(name):
                whole[name] = self.value(name)
                whole |= {} if metric.estimator is ALONE else {f"{name}{END}": self.interval(name)}
        if self.judge is not None:
            whole["judge"] = self.judge.model_dump(mode="json", exclude_unset=True)
        return whole

    def __getattr__(self, name: str) -> Any:
        stem = name.removesuffix(END)
        if stem not in METRICS:
            raise AttributeError(f"a summary has no {name}")
        return self.value(stem) if stem == name else self.interval(stem)

    @cached_property
    def _values(self) -> dict[str, float | None]:
        return {}

    @cached_property
    def _intervals(self) -> dict[str, Interval | None]:
        return {}

    def _stated_by(self, name: str) -> Mapping[str, Any]:
        """What is stated, where a metric or its interval is, or else what was to be computed later
        with it."""
        if {name, f"{name}{END}"} & self.stated.keys() or name not in self.later:
            return self.stated
        return self.later[name]()

    def _value(self, name: str) -> float | None:
        known, metric, sums = self._stated_by(name), METRICS[name], self._sums(name)
        if name in known and not isinstance(known[name], Sums):
            stated: float | None = known[name]
            return stated
        return None if sums is None else metric.estimator.value(sums, metric.statistic)

    def _interval(self, name: str) -> Interval | None:
        known, metric, sums = self._stated_by(name), METRICS[name], self._sums(name)
        if f"{name}{END}" in known or (name in known and not isinstance(known[name], Sums)):
            stated: Interval | None = known.get(f"{name}{END}")
            return stated
        if sums is None or (self.is_baseline and metric.relative):
            return None
        interval = metric.estimated_by(self.proportion).interval(sums, metric.statistic)
        over_plain = metric.relative == "ratio" and metric.clock
        if interval is None or not over_plain or self.between is None or not self.sessions:
            return interval
        return self.between.widened(interval, self.sessions)

    def _sums(self, name: str) -> Sums | None:
        metric = METRICS[name]
        stated = self._stated_by(name).get(name)
        sums = stated if isinstance(stated, Sums) else self.sums.get(name)
        incomplete = sums is not None and metric.every and not sums.whole
        return None if incomplete or (self.is_baseline and metric.relative == "change") else sums


def summarise(
    records: Sequence[Compared | FailedSample],
    *,
    metric: str,
    proportion: bool,
    phases: Mapping[str, float] | None = None,
    prompt_phases: Sequence[Mapping[str, float]] = (),
) -> Summary:
    """The summary of a cell.

    records          its prompts in any order, each once; failed ones are counted and left out
    metric           name of the task's score
    proportion       is the score 0 or 1?
    phases           seconds of the parts of a cycle (draft, verify, accept, commit) and of the
                     whole (cycle), from a profiling pass: mean over its prompts of their medians
    prompt_phases    these medians, one mapping for each of its prompts

    The autoregressive cell is its own baseline, with speedup 1 and no interval. Raises ValueError
    for repeated prompts, for a cell where only some samples are their own baseline, and for a
    proportion with a score other than 0 and 1."""
    pairs = _checked(records)
    samples, base = [pair.sample for pair in pairs], [pair.baseline for pair in pairs]
    is_baseline = all(pair.sample is pair.baseline for pair in pairs)
    unscored = sum(sample.unscored for sample in (samples if is_baseline else [*samples, *base]))
    if unscored:  # the accuracy of a part would look like that of the whole
        pairs = [_with_scores(pair, None, None) for pair in pairs]
    grouped = any(sample.group is not None for sample in samples)
    scored = scores_by_item(pairs, tried_of(metric)) if grouped else pairs
    if proportion and not grouped:
        _check_proportion(pairs)
    runs = [pair.timed for pair in pairs if pair.timed is not None]
    summary = Summary(
        n=len(pairs),
        failed=len(records) - len(pairs),
        metric=metric,
        proportion=proportion and not grouped,
        is_baseline=is_baseline,
        unscored=unscored,
        sums=_sums_of(pairs, scored),
        **_counted(samples),
        **_timed(runs),
        phases=None if phases is None else dict(phases),
    )
    return summary.with_values(**diversity(samples)).with_later(
        NAMES, lambda: time_shares([row.own for row in runs], phases, prompt_phases)
    )


def _counted(samples: Sequence[Sample]) -> dict[str, Any]:
    """What the decode loop counted."""
    flags: Counter[str] = Counter()
    for sample in samples:
        flags.update(sample.flags)
    return {
        "tokens": sum(len(sample.output_ids) for sample in samples),
        "cycles": sum(len(sample.committed) for sample in samples),
        "events": dict(flags),
    }


def _timed(rows: Sequence[Timed]) -> dict[str, Any]:
    """How much was timed."""
    return {
        "timed": len(rows),
        "sessions": len({row.started for row in rows}),
        "prefill_s": float(sum(row.own.prefill_s for row in rows)),
        "decode_s": float(sum(row.own.decode_s for row in rows)),
    }


def _check_proportion(pairs: Sequence[Compared]) -> None:
    for sample in (sample for pair in pairs for sample in (pair.sample, pair.baseline)):
        if sample.score not in (None, 0.0, 1.0):
            raise ValueError(
                f"score {sample.score} is not 0 or 1, but the task's metric is declared a "
                "proportion"
            )


def summary_of(folder: CellFolder, baseline: CellFolder, metric: str, proportion: bool) -> Summary:
    """The summary of all that a folder holds, whatever was asked for; `baseline`: that of its
    autoregressive baseline. Raises StoreError."""
    records = folder.samples()
    beside = records if baseline.key == folder.key else baseline.samples()
    timed = {row.id: row for row in folder.timed()}
    return summarise(
        compare(records, {record.id: record for record in beside}, timed),
        metric=metric,
        proportion=proportion,
        **profiled(folder),
    )


def profiled(folder: CellFolder) -> dict[str, Any]:
    """What the profiling pass found, as `summarise` takes it. Raises StoreError."""
    profile = folder.record(PROFILE) or {}
    return {"phases": profile.get("own"), "prompt_phases": profile.get("prompts") or ()}


def _checked(records: Sequence[Compared | FailedSample]) -> list[Compared]:
    """The prompts that did not fail, sorted by id. Raises ValueError as `summarise`."""
    repeated = len(records) - len({record.id for record in records})
    if repeated:
        raise ValueError(f"{repeated} prompts occur more than once: give each prompt's sample once")
    pairs = sorted(
        (record for record in records if isinstance(record, Compared)), key=lambda pair: pair.id
    )
    alone = sum(pair.sample is pair.baseline for pair in pairs)
    if alone not in (0, len(pairs)):
        raise ValueError(
            f"{alone} of {len(pairs)} samples are their own baseline: a cell has none or all such"
        )
    for sample in (pair.sample for pair in pairs):
        committed, accepted = len(sample.committed), len(sample.accepted)
        if committed != accepted:
            raise ValueError(
                f"{committed} cycles with committed tokens but {accepted} with accepted ones"
            )
    return pairs


def _sums_of(pairs: Sequence[Compared], scored: Sequence[Compared]) -> dict[str, Sums]:
    """What the prompts add to each metric; to those of items, what `scored` add."""
    with_units = [(each, unit_names(each)) for each in (pairs, scored)]
    sums = {}
    for name, metric in METRICS.items():
        if metric.adds is None:
            continue
        each, units = with_units[metric.by_item]
        rows = [metric.adds(pair) for pair in each]
        places = [place for place, row in enumerate(rows) if row]
        if places:
            sums[name] = Sums(
                np.array([rows[place] for place in places], float),
                [each[place].sample.item for place in places],
                [units[place] for place in places],
                [each[place].timed is not None for place in places],
                len(places) == len(each),
            )
    return sums


def _with_scores(pair: Compared, score: float | None, base_score: float | None) -> Compared:
    sample = baseline = replace(pair.sample, score=score)
    if pair.baseline is not pair.sample:
        baseline = replace(pair.baseline, score=base_score)
    return replace(pair, sample=sample, baseline=baseline)


def tried_of(metric: str) -> int:
    """k of a score called pass@k; 1 for every other."""
    tried = metric.removeprefix("pass@")
    return int(tried) if tried.isdigit() else 1


def scores_by_item(pairs: Sequence[Compared], tried: int = 1) -> list[Compared]:
    """One pair for each item of several samples, with its mean scores (pass@1 for passed or not)
    or, with `tried` of them, the chance that one of so many passes. Samples of one item depend on
    one another, so scores are of items."""
    items: dict[str, list[Compared]] = {}
    for pair in pairs:
        items.setdefault(pair.sample.item, []).append(pair)
    return [
        _with_scores(
            of_item[0],
            _passed([pair.sample.score for pair in of_item], tried),
            _passed([pair.baseline.score for pair in of_item], tried),
        )
        for of_item in items.values()
    ]


def _passed(scores: Sequence[float | None], tried: int) -> float | None:
    """The mean of the known scores or, for more than one try, 1 − C(n − c, k) ÷ C(n, k) of n
    scores, c of them 1: the chance that one of k passes. None for fewer scores than k."""
    known = [score for score in scores if score is not None]
    if len(known) < tried:
        return None
    if tried == 1:
        return float(np.mean(known))
    return 1 - math.comb(sum(score < 1 for score in known), tried) / math.comb(len(known), tried)


def diversity(samples: Sequence[Sample]) -> dict[str, Any]:
    """How much the answers to a prompt differ; samples of one prompt share their id or their group.

    distinct_2      distinct pairs of neighbouring tokens over all of them, in all answers to a
                    prompt; its mean
    self_agreement  edit similarity (as in `edit_similarity`) of two answers to a prompt: mean over
                    the pairs of its answers, then over prompts; nothing with one answer each
    repeats         most answers to one prompt"""
    answers_of: dict[str, list[list[int]]] = {}
    for sample in samples:
        answers_of.setdefault(sample.item, []).append(sample.output_ids)
    distinct, agreements = [], []
    for answers in answers_of.values():
        bigrams = [bigram for ids in answers for bigram in pairwise(ids)]
        if bigrams:
            distinct.append((len(set(bigrams)) / len(bigrams), 1))
        if len(answers) > 1:
            agreements.append(
                (float(np.mean([edit_similarity(a, b) for a, b in combinations(answers, 2)])), 1)
            )
    return {
        "distinct_2": Sums.of(distinct),
        "self_agreement": Sums.of(agreements),
        "repeats": max(map(len, answers_of.values()), default=0),
    }
