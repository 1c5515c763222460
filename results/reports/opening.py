"""The opening of a page: what was measured, and what the numbers show, in sentences made by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from results.metrics.catalog import Metric, metric
from results.metrics.non_inferiority import MARGIN, Verdict, verdict
from results.reports.conditions import machine
from results.reports.formats import TEMPLATES
from results.reports.viewer.cells import Group, Viewed
from results.store.summary import Interval, Summary

SPEEDS = ("answer_speedup_modelled", "answer_speedup")
"""How much sooner an answer is complete: over all prompts, else on the timed ones alone."""
NAMED = 4
"""Methods that a sentence names; of others it gives the number."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A measured cell and the best lossless one on the same prompts.

    cell     the cell
    summary  its metrics
    best     the lossless cell whose answers are complete soonest; the autoregressive one where there is no other
    task     name of the task
    """

    cell: Viewed
    summary: Summary
    best: Summary
    task: str

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


def best_lossless(group: Group) -> Summary | None:
    """The lossless cell with the greatest speed per answer; None where none was timed."""
    timed = [(found[1], summary) for cell, summary in measured(group) if cell.lossless and (found := speed(summary))]
    return max(timed, key=lambda one: one[0])[1] if timed else None


def standings(groups: Sequence[Group]) -> list[Standing]:
    """Every relaxed cell that can be compared with a lossless one, the fastest first."""
    found = [Standing(cell, summary, best, group.task) for group in groups if (best := best_lossless(group)) is not None
             for cell, summary in measured(group) if not cell.lossless and speed(summary) is not None]
    return sorted(found, key=lambda one: -_value(one.summary))


def sentences(groups: Sequence[Group]) -> list[str]:
    """What the numbers show: which relaxed methods answer sooner than every lossless one, beyond both intervals; which
    gain tokens a cycle or a second but no time; which lose accuracy; what is undecided, and the prompts it would take.
    Empty where no relaxed method was timed beside a lossless one."""
    known = standings(groups)
    if not known:
        return []
    ahead = [one for one in known if _is_above(speed(one.summary), speed(one.best))]
    others = [one for one in known if one not in ahead]
    longer = [one for one in others if _is_above(_per_token(one.summary), _per_token(one.best))
              and (one.summary.length_ratio_ci95 or (0, 0))[0] > 1]
    greedier = [one for one in known if _is_greedier(one.summary)]
    worse = [one for one in known if one.accuracy is not None and one.accuracy.kind == "worse"]
    undecided = [one for one in known if one.accuracy is not None and one.accuracy.kind == "undecided"]
    return [text for text in (_ahead(ahead, len(known)), _only("longer answers use up", longer),
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
    """Whether more of a gain in τ over the lossless rule comes from greedier decoding than from relaxation."""
    parts, gain = (summary.tau_gain_greedier, summary.tau_gain_relaxed), summary.tau_gain_ci95
    return None not in parts and gain is not None and gain[0] > 0 and (parts[0] or 0.0) > (parts[1] or 0.0)


def _ahead(ahead: Sequence[Standing], of: int) -> str:
    if not ahead:
        return (f"None of {_count(of, 'relaxed cell')} completes answers sooner than the best lossless method on the "
                "same prompts beyond both intervals.")
    told = [f"{one.name} ({_times(one.summary)} against {_times(one.best)}"
            f"{'' if one.accuracy is None else f', accuracy {one.accuracy.text}'})" for one in ahead]
    verb = "complete" if len(ahead) > 1 else "completes"
    return (f"{len(ahead)} of {_count(of, 'relaxed cell')} {verb} answers sooner than the best lossless "
            f"method on the same prompts, beyond both intervals: {_listed(told)}.")


def _only(cause: str, cells: Sequence[Standing]) -> str:
    if not cells:
        return ""
    told = [f"{one.name} (length {one.summary.length_ratio:.2f}×)" for one in cells]
    return f"Faster by the token, but {cause} the gain: {_listed(told)}."


def _greedier(cells: Sequence[Standing]) -> str:
    told = [f"{one.name} ({one.summary.tau_gain_greedier:.2f} of {one.summary.tau_gain:.2f})" for one in cells]
    return f"More of the gain in τ is greedier decoding than relaxation: {_listed(told)}." if told else ""


def _worse(cells: Sequence[Standing]) -> str:
    told = [f"{one.name} ({100 * (one.summary.accuracy_change or 0):+.1f} pp)".replace("-", "−") for one in cells]
    return f"Less accurate than the target alone: {_listed(told)}." if told else ""


def _undecided(cells: Sequence[Standing]) -> str:
    if not cells:
        return ""
    needed = sorted(one.accuracy.needed for one in cells if one.accuracy is not None and one.accuracy.needed)
    takes = f"; deciding takes about {_span(needed)} prompts a cell" if needed else ""
    return (f"Whether accuracy falls by more than {100 * MARGIN:g} points is undecided for {_count(len(cells), 'cell')}"
            f"{takes}.")


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]:,}" if numbers[0] == numbers[-1] else f"{numbers[0]:,} to {numbers[-1]:,}"


def _times(summary: Summary) -> str:
    return f"{_value(summary):.2f}×"


def _listed(told: Sequence[str]) -> str:
    more = len(told) - NAMED
    return ", ".join(told[:NAMED]) + (f" and {more} more" if more > 0 else "")


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
    where = f", on {machine(dict(environment))}" if environment.get("cpu") else ""
    when = f", {str(environment['since'])[:10]}" if environment.get("since") else ""
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
