"""The opening of a page: what was measured, and what the numbers show, in sentences made by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from results.metrics.catalog import Metric, metric
from results.metrics.non_inferiority import MARGIN, Verdict, verdict
from results.metrics.over_best import Answered, Kind, answers_over_best, by_chance, remains
from results.reports.conditions import machine
from results.reports.formats import TEMPLATES
from results.reports.viewer.groups import Group, Viewed
from results.store.compared import Compared, compare
from results.store.summary import Interval, Summary

SPEEDS = ("answer_speedup_modelled", "answer_speedup")
"""How much sooner an answer is complete: over all prompts, else on the timed ones alone."""
BEST = "the best lossless method on the same prompts"
NAMED = 4
"""Methods that a sentence names; of others it gives the number."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A measured cell beside the best lossless one on the same prompts: that whose answers are complete soonest.

    cell     the cell
    summary  its metrics, `answers_over_best` among them
    best     the metrics of the lossless one
    task     name of the task
    """

    cell: Viewed
    summary: Summary
    best: Summary
    task: str

    @property
    def kind(self) -> Kind | None:
        """Whether its gain over the lossless one remains, by the rule of every table."""
        return remains(self.summary, MARGIN)

    @property
    def name(self) -> str:
        return f"{self.cell.method} on {self.task}"

    @property
    def accuracy(self) -> Verdict | None:
        """Whether its score is worse than the baseline's; None without scores."""
        change, interval = self.summary.accuracy_change, self.summary.accuracy_change_ci95
        return None if change is None or interval is None else verdict(change, interval, self.summary.n)


def speed(summary: Summary) -> tuple[Metric, float, Interval | None] | None:
    """The metric, value and interval of a cell's speed per answer; None where it was not timed."""
    for name in SPEEDS:
        if (value := metric(name).value(summary)) is not None:
            return metric(name), value, metric(name).interval(summary)
    return None


def measured(group: Group) -> list[tuple[Viewed, Summary]]:
    """The cells of a group with metrics."""
    return [(cell, cell.summary) for cell in group.cells if cell.summary is not None]


def best_lossless(group: Group) -> tuple[Viewed, Summary] | None:
    """The lossless cell with the greatest speed per answer; None where none was timed."""
    timed = [(found[1], cell, summary) for cell, summary in measured(group)
             if cell.lossless and (found := speed(summary))]
    return max(timed, key=lambda speed: speed[0])[1:] if timed else None


def standings(groups: Sequence[Group]) -> list[Standing]:
    """Every relaxed cell that can be compared with a lossless one, the fastest first."""
    ranked = []
    for group in groups:
        found = best_lossless(group)
        if found is None:
            continue
        best = row_of(group, found[0])
        for cell, summary in measured(group):
            if not cell.lossless and speed(summary) is not None:
                over = answers_over_best(row_of(group, cell), best)
                ranked.append(Standing(cell, summary.with_values(**over), found[1], group.task))
    return sorted(ranked, key=lambda standing: -_value(standing.summary))


def row_of(group: Group, cell: Viewed) -> Answered:
    """The answers of a cell beside those of the autoregressive one; none where that is not in the group."""
    baseline = next((member for member in group.cells if member.baseline), None)
    known = {} if baseline is None else baseline.answers.samples
    pairs = compare(cell.samples if baseline is not cell else known.values(), known, cell.answers.timed)
    return Answered([pair for pair in pairs if isinstance(pair, Compared)])


def sentences(groups: Sequence[Group]) -> list[str]:
    """What the numbers show: for which relaxed methods a gain over every lossless one remains, as
    `results.metrics.over_best.remains` judges it; which gain at a price, or at a quality that no score judges; which
    gain tokens a cycle or a second but no time; which lose accuracy; what is undecided, and the prompts it would take.
    Empty where no relaxed method was timed beside a lossless one."""
    every = standings(groups)
    if not every:
        return []
    ahead = [standing for standing in every if standing.kind == "gain"]
    priced = [standing for standing in every if standing.kind == "gain at a price"]
    unjudged = [standing for standing in every if standing.kind == "unjudged"]
    others = [standing for standing in every if standing.kind in ("no gain", "undecided", None)]
    longer = [other for other in others if _is_above(_per_token(other.summary), _per_token(other.best))
              and (other.summary.length_ratio_ci95 or (0, 0))[0] > 1]
    greedier = [standing for standing in every if _is_greedier(standing.summary)]
    worse = [standing for standing in every if standing.accuracy is not None and standing.accuracy.kind == "worse"]
    undecided = [standing for standing in every
                 if standing.accuracy is not None and standing.accuracy.kind == "undecided"]
    return [text for text in (_ahead(ahead, len(every)), _priced(priced), _unjudged(unjudged), _longer(longer),
                              _greedier(greedier), _worse(worse), _undecided(undecided)) if text]


def _value(summary: Summary) -> float:
    found = speed(summary)
    return 0.0 if found is None else found[1]


def _is_above(own: tuple[Metric, float, Interval | None] | None,
              best: tuple[Metric, float, Interval | None] | None) -> bool:
    """Whether the interval of one number lies above that of another."""
    if own is None or best is None or own[2] is None:
        return False
    return own[2][0] > (best[1] if best[2] is None else best[2][1])


def _per_token(summary: Summary) -> tuple[Metric, float, Interval | None] | None:
    return None if summary.speedup is None else (metric("speedup"), summary.speedup, summary.speedup_ci95)


def _is_greedier(summary: Summary) -> bool:
    """Whether more of a gain in τ over the lossless rule comes from greedier decoding than from others."""
    greedier, relaxed, gain = summary.tau_gain_greedier, summary.tau_gain_relaxed, summary.tau_gain_ci95
    if greedier is None or relaxed is None or gain is None or gain[0] <= 0:
        return False
    return greedier > max(relaxed, summary.tau_gain_q or 0.0)


def _ahead(ahead: Sequence[Standing], of: int) -> str:
    if not ahead:
        return (f"None of {_count(of, 'relaxed cell')} is shown to complete answers sooner than {BEST}, at no worse "
                "score.")
    verb = "complete" if len(ahead) > 1 else "completes"
    sentence = (f"{len(ahead)} of {_count(of, 'relaxed cell')} {verb} answers sooner than {BEST}: "
                f"{_listed([_over(standing) for standing in ahead])}.")
    return f"{sentence} {by_chance(of, 'cells')}" if of > 1 else sentence


def _over(standing: Standing) -> str:
    """`mars on gsm (1.25× [1.10, 1.40] as fast, accuracy not worse)`: beside the best lossless cell."""
    summary, interval = standing.summary, standing.summary.over_best_answer_ci95
    change, bounds = summary.over_best_accuracy, summary.over_best_accuracy_ci95
    ends = "" if interval is None else f" [{', '.join(f'{end:.2f}' for end in interval)}]"
    score = "" if change is None or bounds is None else f", accuracy {verdict(change, bounds, summary.n).text}"
    return f"{standing.name} ({summary.over_best_answer or 0:.2f}×{ends} as fast{score})"


def _priced(cells: Sequence[Standing]) -> str:
    return f"Sooner, but less accurate than {BEST}: {_listed([_over(cell) for cell in cells])}." if cells else ""


def _unjudged(cells: Sequence[Standing]) -> str:
    parts = [_over(cell) for cell in cells]
    return f"Sooner than {BEST}, at a quality that no score judges: {_listed(parts)}." if parts else ""


def _longer(cells: Sequence[Standing]) -> str:
    parts = [f"{cell.name} (length {cell.summary.length_ratio:.2f}×)" for cell in cells]
    return f"Faster by the token, but longer answers use up the gain: {_listed(parts)}." if parts else ""


def _greedier(cells: Sequence[Standing]) -> str:
    parts = [f"{cell.name} ({cell.summary.tau_gain_greedier:.2f} of {cell.summary.tau_gain:.2f})" for cell in cells]
    return f"More of the gain in τ is greedier decoding than relaxation: {_listed(parts)}." if parts else ""


def _worse(cells: Sequence[Standing]) -> str:
    parts = [f"{cell.name} ({100 * (cell.summary.accuracy_change or 0):+.1f} pp)".replace("-", "−") for cell in cells]
    return f"Less accurate than the target alone: {_listed(parts)}." if parts else ""


def _undecided(cells: Sequence[Standing]) -> str:
    if not cells:
        return ""
    needed = sorted(cell.accuracy.needed for cell in cells if cell.accuracy is not None and cell.accuracy.needed)
    takes = f"; deciding takes about {_span(needed)} prompts a cell" if needed else ""
    return (f"Whether accuracy falls by more than {100 * MARGIN:g} points is undecided for {_count(len(cells), 'cell')}"
            f"{takes}.")


def _span(ordered: Sequence[int | str]) -> str:
    low, high = (f"{count:,}" if isinstance(count, int) else count for count in (ordered[0], ordered[-1]))
    return low if low == high else f"{low} to {high}"


def _listed(parts: Sequence[str]) -> str:
    more = len(parts) - NAMED
    return ", ".join(parts[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def scope(groups: Sequence[Group], environment: Mapping[str, Any]) -> str:
    """One sentence: how many cells, of how many methods, on which tasks, how many prompts, where and when."""
    known = [(group, cell, summary) for group in groups for cell, summary in measured(group)]
    if not known:
        return ""
    methods = {cell.label for _, cell, _ in known}
    tasks = list(dict.fromkeys(group.task for group, _, _ in known))
    abouts = list(dict.fromkeys(group.about for group, _, _ in known))
    prompts = sorted({summary.n for _, _, summary in known})
    rows = [row for _, cell, _ in known for row in cell.timed]
    threads = [row.threads or 0 for row in rows]
    where = f", on {machine(dict(environment), threads)}" if environment.get("cpu") else ""
    days = sorted({row.started[:10] for row in rows})
    days = days or [str(environment.get("since", ""))[:10]]
    when = f", {_span(days)}" if days[0] else ""
    setting = "; ".join(abouts[:2]) + (" and others" if len(abouts) > 2 else "")
    return (f"{_count(len(known), 'cell')} of {_count(len(methods), 'method')} on {_listed(tasks)} ({setting}), "
            f"{_span(prompts)} prompts each{where}{when}.")


def overview(groups: Sequence[Group], environment: Mapping[str, Any], figure: Markup | None = None) -> Markup | None:
    """The opening of a page; `figure`: the overview as inline SVG. None where no cell has metrics."""
    about = scope(groups, environment)
    if not about:
        return None
    return Markup(TEMPLATES.get_template("overview.html.j2").render(
        scope=about, sentences=sentences(groups), figure=figure))
