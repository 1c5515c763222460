"""What a row gains over the best lossless one on the same prompts, and whether that is a gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from results.metrics.answer_speed import Priced, answer_speedup
from results.metrics.gain import NLL_MARGIN, gain_tests, verdicts
from results.metrics.metric import Sums
from results.metrics.non_inferiority import Verdict
from results.metrics.quality_loss import score_change, score_pairs
from results.metrics.summary import Summary
from results.metrics.tau_gain import gain
from results.store.compared import Compared
from results.store.timed import is_rated


@dataclass(frozen=True, slots=True)
class Answered:
    """The reported prompts of a row.

    pairs      each beside autoregressive decoding.
    settings   prompt id -> the setting that decoded it; empty where one setting decoded all.
    lossless   its method is lossless, so that nothing is to be decided about it.
    """

    pairs: Sequence[Compared]
    settings: Mapping[str, str] = field(default_factory=dict)
    lossless: bool = False


def over_best(own: Answered, best: Answered, margin: float) -> dict[str, Any]:
    """The metrics `over_best_…` of a row, each with `_ci95`, over the prompts that both rows answered.

        over_best_tau            difference of τ
        over_best_length         Σ own tokens ÷ Σ tokens of the best lossless row
        over_best_answer         ratio of `answer_speedup_modelled`, prompt by prompt
        over_best_accuracy       difference of the scores
        over_best_tests          whether it is a gain (`results.metrics.gain`); None for a lossless row

    `margin`: loss of score that counts as none."""
    values = answers_over_best(own, best, margin)
    if not values:
        return {}
    own, best = _common(own, best)
    parts = gain(*({pair.id: pair.sample for pair in row.pairs} for row in (own, best)))
    values |= {name.replace("tau_gain", "over_best_tau"): value for name, value in parts.items()}
    lengths = [[len(run.output_ids) for run in (mine.sample, other.sample)]
               for mine, other in zip(own.pairs, best.pairs, strict=True)]
    return values | {"over_best_length": Sums.of(lengths)}


def answers_over_best(own: Answered, best: Answered, margin: float) -> dict[str, Any]:
    """Of the metrics of `over_best` those of speed and score, and the tests. Empty where no prompt was answered by
    both."""
    whole = own
    own, best = _common(own, best)
    if not own.pairs:
        return {}
    beside = [Compared(mine.sample, replace(other.sample)) for mine, other in zip(own.pairs, best.pairs, strict=True)]
    change = score_change(score_pairs(beside))
    values = {f"over_best_accuracy{end}": change[f"accuracy_change{end}"] for end in ("", "_ci95")}
    priced = Priced.of(own.pairs, own.settings)
    over = priced.estimate(answer_speedup, Priced.of(best.pairs, best.settings))
    plain = Priced.of(whole.pairs, whole.settings).estimate(answer_speedup)
    values |= {"over_best_answer": None if over is None else over.value,
               "over_best_answer_ci95": None if over is None else over.interval()}
    if own.lossless or over is None or plain is None:
        return values | {"over_best_tests": None}
    return values | {"over_best_tests": gain_tests(over, plain, whole.pairs, margin)}


def _common(own: Answered, best: Answered) -> tuple[Answered, Answered]:
    """Both rows over the prompts that both answered, sorted by id; timed are those that both were timed on."""
    mine, others = ({pair.id: pair for pair in row.pairs} for row in (own, best))
    ids = sorted(mine.keys() & others.keys())
    clocks = [{pair.id for pair in pairs.values() if pair.timed is not None and is_rated(pair.timed)}
              for pairs in (mine, others)]
    timed = clocks[0] & clocks[1]
    rows = [replace(row, pairs=[pairs[name] if name in timed else replace(pairs[name], timed=None) for name in ids])
            for row, pairs in ((own, mine), (best, others))]
    return rows[0], rows[1]


def findings(cells: Sequence[tuple[str, Summary]], margin: float) -> list[str]:
    """A sentence on each row of one task and temperature that was compared with the best lossless one: is it a gain?
    With several rows, one on all of them comes first. `margin`: loss of score that counts as none."""
    tests = {name: summary.over_best_tests for name, summary in cells if summary.over_best_tests is not None}
    decided = verdicts(tests)
    sentences = [_finding(name, decided[name], summary, margin) for name, summary in cells if name in decided]
    return sentences if len(decided) < 2 else [_on_all(decided), *sentences]


def _on_all(decided: Mapping[str, Verdict]) -> str:
    """Which rows are a gain, and how many are what else."""
    of: dict[str, list[str]] = {}
    for name, one in decided.items():
        of.setdefault(one.kind, []).append(name)
    ahead = of.pop("gain", [])
    others = ", ".join(f"{len(names)} {kind}" for kind, names in of.items())
    named = f"{'; '.join(ahead)} {'are gains' if len(ahead) > 1 else 'is a gain'}" if ahead else "none is a gain"
    return (f"Of {len(decided)} rows, {named}: faster than the best lossless method and than plain decoding, and not "
            f"worse than it by more than the margin (p-values corrected over the rows by Holm's method)"
            f"{f'; {others}' if others else ''}.")


def _finding(name: str, decided: Verdict, summary: Summary, margin: float) -> str:
    length = "" if summary.over_best_length is None else f", {summary.over_best_length:.2f}× as long"
    speeds = (f"answers {_ratio(summary, 'over_best_answer')} as fast as the best lossless method's and "
              f"{_ratio(summary, 'answer_speedup_modelled')} as fast as plain decoding's{length}")
    return f"{name}: {decided.text}. {speeds[0].upper()}{speeds[1:]}; {_quality(summary, margin)}."


def _quality(summary: Summary, margin: float) -> str:
    """`accuracy −1.2 pp [−6.0, +3.5], of which −5 pp count as no loss`: beside plain decoding."""
    tests = summary.over_best_tests
    assert tests is not None, "only rows with tests have a verdict"
    if tests.measure == "nll":
        change = None if summary.nll is None or summary.baseline_nll is None else summary.nll - summary.baseline_nll
        return f"no score can judge; NLL {_signed(change, 3)} nats, of which +{NLL_MARGIN:g} count as no loss"
    change, interval = summary.accuracy_change, summary.accuracy_change_ci95
    shown = "" if interval is None else f" [{', '.join(_signed(100 * end, 1) for end in interval)}]"
    points = _signed(None if change is None else 100 * change, 1)
    return f"accuracy {points} pp{shown}, of which −{100 * margin:g} count as no loss"


def _ratio(summary: Summary, name: str) -> str:
    """`1.25× [1.10, 1.40]`."""
    value, interval = getattr(summary, name), getattr(summary, f"{name}_ci95")
    ends = "" if interval is None else f" [{', '.join(f'{end:.2f}' for end in interval)}]"
    return f"{'–' if value is None else f'{value:.2f}×'}{ends}"


def _signed(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:+.{digits}f}".replace("-", "−")
