"""What a row gains over the best lossless one on the same prompts, and whether that remains a gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from results.metrics import intervals
from results.metrics.answer_speed import Drawn, Floats, Priced
from results.metrics.non_inferiority import verdict
from results.metrics.quality_loss import score_change, score_pairs, shows_loss
from results.metrics.speed import rated
from results.metrics.tau_gain import gains
from results.store.compared import Compared
from results.store.summary import Summary

TAU_PARTS = {"tau_gain": "over_best_tau", "tau_gain_relaxed": "over_best_tau_relaxed",
             "tau_gain_greedier": "over_best_tau_greedier"}
Kind = Literal["gain", "gain at a price", "unjudged", "greedier", "no gain", "undecided"]
OTHER_KINDS: dict[Kind, str] = {"gain at a price": "faster but worse", "unjudged": "faster at a quality not judged",
                                "greedier": "faster by greedier decoding alone", "no gain": "no gain",
                                "undecided": "undecided"}


@dataclass(frozen=True, slots=True)
class Answered:
    """The reported prompts of a row.

    pairs      each beside autoregressive decoding.
    settings   prompt id -> the setting that decoded it; empty where one setting decoded all.
    """

    pairs: Sequence[Compared]
    settings: Mapping[str, str] = field(default_factory=dict)


def over_best(own: Answered, best: Answered, greedy: Answered | None = None) -> dict[str, Any]:
    """The metrics `over_best_…` of a row, each with `_ci95`, over the prompts that both rows answered.

        over_best_tau            difference of τ; its parts …_relaxed and …_greedier as in `tau_gain`
        over_best_length         Σ own tokens ÷ Σ tokens of the best lossless row
        over_best_answer         ratio of `answer_speedup_modelled`, over the same resampled prompts
        over_best_accuracy       difference of the scores
        over_best_judged         whether the score can judge: it would show the loss of every right answer; without
                                 an interval

    `greedy`: the best lossless row at temperature 0, with which the part of τ due to greedier decoding is
    estimated."""
    values = answers_over_best(own, best)
    if not values:
        return {}
    own, best = _common(own, best)
    runs = {"own": own.pairs, "lossless": best.pairs}
    if greedy is not None:
        runs |= {"exact": own.pairs, "lossless_greedy": greedy.pairs}
    parts = gains({name: [pair.sample for pair in pairs] for name, pairs in runs.items()})
    values |= {f"{new}{end}": parts[f"{old}{end}"] for old, new in TAU_PARTS.items() if old in parts
               for end in ("", "_ci95")}
    lengths = [[len(run.output_ids) for run in (mine.sample, other.sample)]
               for mine, other in zip(own.pairs, best.pairs, strict=True)]
    mine, others = np.array(lengths, float).T
    return values | {"over_best_length": float(mine.sum() / others.sum()) if others.sum() else None,
                     "over_best_length_ci95": intervals.ratio_interval(mine[others > 0], others[others > 0])}


def answers_over_best(own: Answered, best: Answered) -> dict[str, Any]:
    """Of the metrics of `over_best` those that `remains` judges by first: over_best_answer, and what concerns the
    score. Empty where no prompt was answered by both."""
    own, best = _common(own, best)
    if not own.pairs:
        return {}
    beside = [Compared(mine.sample, replace(other.sample)) for mine, other in zip(own.pairs, best.pairs, strict=True)]
    scores = score_pairs(beside)
    change, judged = score_change(scores), shows_loss([lossless for lossless, _ in scores.values()])
    values = {f"over_best_accuracy{end}": change[f"accuracy_change{end}"] for end in ("", "_ci95")}
    return values | _answers(own, best) | {"over_best_judged": judged}


def _answers(own: Answered, best: Answered) -> dict[str, Any]:
    mine, other = Priced(own.pairs, own.settings), Priced(best.pairs, best.settings)

    def ratio(at: Drawn) -> Floats:
        return np.asarray(mine.answer_speedup(at) / other.answer_speedup(at))

    if not (mine.sizes[1] and mine.is_known and other.is_known):
        return {"over_best_answer": None, "over_best_answer_ci95": None}
    return {"over_best_answer": float(ratio(mine.everything())), "over_best_answer_ci95": mine.resampled([ratio])[0]}


def _common(own: Answered, best: Answered) -> tuple[Answered, Answered]:
    """Both rows over the prompts that both answered, sorted by id; timed are those that both were timed on."""
    mine, others = ({pair.id: pair for pair in row.pairs} for row in (own, best))
    ids = sorted(mine.keys() & others.keys())
    clocks = [{row.id for row in rated([pair.timed for pair in pairs.values() if pair.timed is not None])}
              for pairs in (mine, others)]
    timed = clocks[0] & clocks[1]
    rows = [replace(row, pairs=[pairs[name] if name in timed else replace(pairs[name], timed=None) for name in ids])
            for row, pairs in ((own, mine), (best, others))]
    return rows[0], rows[1]


def findings(cells: Sequence[tuple[str, Summary]], margin: float) -> list[str]:
    """A sentence on each row of one task that was compared with the best lossless one: does a gain remain after
    length, greediness and the best K are taken out? With several rows, one on all of them comes first. `margin`: loss
    of score that counts as none."""
    kinds = {name: kind for name, summary in cells if (kind := remains(summary, margin)) is not None}
    sentences = [_finding(name, kinds[name], summary, margin) for name, summary in cells if name in kinds]
    return sentences if len(kinds) < 2 else [_on_all(kinds), *sentences, by_chance(len(kinds), "rows")]


def _on_all(kinds: Mapping[str, Kind]) -> str:
    """Which rows remain a gain, and how many are what else."""
    gains_of = [name for name, kind in kinds.items() if kind == "gain"]
    counts = {words: sum(one == kind for one in kinds.values()) for kind, words in OTHER_KINDS.items()}
    others = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
    remain = f"{'; '.join(gains_of) or 'none'} {'remain' if len(gains_of) > 1 else 'remains'} a gain"
    return (f"Of {len(kinds)} rows, {remain} over the best lossless method when length, greedier decoding and K are "
            f"accounted for{f'; {others}' if others else ''}.")


def by_chance(number: int, things: str) -> str:
    """How many of so many intervals would lie above 1 by chance."""
    wrong = number * (1 - intervals.LEVEL) / 2
    return (f"Intervals hold at 95% for each of these {number} {things} alone: of as many {things} without any "
            f"difference, about {wrong:.1g} would look faster by chance.")


def _finding(name: str, kind: Kind, summary: Summary, margin: float) -> str:
    assert summary.over_best_answer is not None, "`remains` judges no other"
    answer, plain = _ratio(summary, "over_best_answer"), _beside_plain(summary)
    length = "" if summary.over_best_length is None else f", with answers {summary.over_best_length:.2f}× as long"
    score = _score(summary, margin)
    if kind == "gain":
        return f"{name} remains a gain: answers {answer} as fast as the best lossless method's{length}{score}."
    if kind == "gain at a price":
        return f"{name} is faster, {answer} per answer{length}, and worse{score}."
    if kind == "unjudged":
        own, change = summary.accuracy, summary.over_best_accuracy
        right = "the task has no score" if own is None or change is None else (
            f"the score of the best lossless method is {100 * abs(own - change):.1f}%, too low to show a loss")
        return f"{name} is faster, {answer} per answer{length}; its quality is not judged: {right}."
    if kind == "greedier":
        return (f"{name} is faster, {answer} per answer{length}, but shows no gain in τ beyond that of greedier "
                f"decoding: relaxation {_signed(summary.over_best_tau_relaxed)}"
                f"{_interval(summary.over_best_tau_relaxed_ci95, '{:+.2f}')}.")
    if kind == "no gain":
        return f"{name} is no gain: answers {answer} as fast as the best lossless method's{plain}{length}{score}."
    return (f"{name} is undecided after {summary.n} prompts: answers {answer} as fast as the best lossless method's"
            f"{plain}{length}{score}.")


def _ratio(summary: Summary, name: str) -> str:
    """`1.25× [1.10, 1.40]`."""
    return f"{getattr(summary, name):.2f}×{_interval(getattr(summary, f'{name}_ci95'), '{:.2f}')}"


def _beside_plain(summary: Summary) -> str:
    """How fast answers are beside plain decoding's, where they are not shown to be faster."""
    plain = summary.answer_speedup_modelled_ci95
    if plain is None or plain[0] > 1:
        return ""
    return f", {_ratio(summary, 'answer_speedup_modelled')} as fast as plain decoding's"


def remains(summary: Summary, margin: float) -> Kind | None:
    """Whether a row's gain over the best lossless one remains; None without a comparison.

    Plain decoding is lossless too, and faster than every draft where a forward over several tokens costs much more than
    over one: "faster" is faster than both.

    gain             answers are faster, both intervals exclude 1; the part of τ that is no greedier decoding, where it
                     was estimated, is above 0; and the score, which could show it, is not shown to be worse
    gain at a price  faster, and the score is worse
    greedier         faster, but the interval of τ's other part does not exclude 0
    unjudged         else a gain, but the score could not show a loss: the best lossless row has few right answers
    no gain          answers are not faster, an interval ends at or below 1; or it holds 1, and the score is worse
    undecided        an interval holds 1, and the score is not shown to be worse
    """
    speed, score = summary.over_best_answer_ci95, summary.over_best_accuracy_ci95
    if speed is None or summary.over_best_answer is None:
        return None
    plain, change = summary.answer_speedup_modelled_ci95 or speed, summary.over_best_accuracy
    worse = change is not None and score is not None and verdict(change, score, summary.n, margin).kind == "worse"
    if min(speed[0], plain[0]) <= 1:
        return "no gain" if min(speed[1], plain[1]) <= 1 or worse else "undecided"
    if worse:
        return "gain at a price"
    relaxed = summary.over_best_tau_relaxed_ci95
    if relaxed is not None and relaxed[0] <= 0:
        return "greedier"
    return "unjudged" if summary.over_best_judged is False else "gain"


def _score(summary: Summary, margin: float) -> str:
    if summary.over_best_accuracy is None or summary.over_best_accuracy_ci95 is None:
        return ""
    change, interval = summary.over_best_accuracy, summary.over_best_accuracy_ci95
    ends = ", ".join(_signed(100 * end, 1) for end in interval)
    decided = verdict(change, interval, summary.n, margin).text
    return f"; accuracy {_signed(100 * change, 1)} pp [{ends}], {decided}"


def _interval(interval: tuple[float, float] | None, form: str) -> str:
    return "" if interval is None else f" [{', '.join(form.format(end) for end in interval)}]".replace("-", "−")


def _signed(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")
