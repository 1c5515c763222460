"""The opening of a page: what gains in τ consist of, what was measured, and what the numbers show, in sentences made by
rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from results.metrics.answer_speed import modelled_speeds
from results.metrics.catalog import metric
from results.metrics.intervals import Interval
from results.metrics.metric import Metric
from results.metrics.selection import answered, choose
from results.metrics.summary import Summary
from results.metrics.verdict import MARGIN, Answered, Verdict, answers_over_best, verdicts
from results.reports.conditions import machine
from results.reports.formats import TEMPLATES
from results.reports.splits import COLUMNS, Split
from results.reports.viewer.groups import Group, Viewed
from results.store.compared import Compared, compare
from results.store.timed import timing_order

SPEEDS = ("answer_speedup_modelled", "answer_speedup")
"""How much sooner an answer is complete: over all prompts, else on the timed ones alone."""
BEST = "the best lossless method on the same prompts"
NAMED = 4
"""Methods that a sentence names; of others it gives the number."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A measured cell beside the best lossless answers to the same prompts (`best_lossless`).

    cell     the cell
    summary  its metrics, `answers_over_best` among them
    best     the speeds of the lossless answers (`modelled_speeds`)
    task     name of the task
    gain     the verdict on it, by the rule of every table; None where nothing can judge
    """

    cell: Viewed
    summary: Summary
    best: Mapping[str, Any]
    task: str
    gain: Verdict | None = None

    @property
    def name(self) -> str:
        return f"{self.cell.name} on {self.task}"


def speed(summary: Summary) -> tuple[Metric, float, Interval | None] | None:
    """The metric, value and interval of a cell's speed per answer; None where it was not timed."""
    for name in SPEEDS:
        if (value := summary.value(name)) is not None:
            return metric(name), value, summary.interval(name)
    return None


def measured(group: Group) -> list[tuple[Viewed, Summary]]:
    """The cells of a group with metrics."""
    return [(cell, cell.summary) for cell in group.cells if cell.summary is not None]


def best_lossless(group: Group) -> Answered | None:
    """The lossless answers that others are compared with, chosen as the rows of tables choose: each half of the
    prompts from the drafting cell that is fastest on the other half. Plain decoding's where no other lossless cell was
    timed; None where no prompt of either half was."""
    timed = [cell for cell, summary in measured(group) if cell.lossless and speed(summary) is not None]
    cells = [cell for cell in timed if not cell.baseline] or timed
    rows = {cell.key: row_of(group, cell).pairs for cell in cells}
    try:
        chosen = choose(rows, timing_order(group.ids), lossless=True) if rows else []
    except ValueError:  # a single prompt, or one timed: nothing can be selected, nor decided
        return None
    best = answered(rows, chosen, lossless=True)
    return best if best.pairs else None


def standings(groups: Sequence[Group]) -> list[Standing]:
    """Every relaxed cell that can be compared with a lossless one, the fastest first."""
    known: list[Standing] = []
    for group in groups:
        found = best_lossless(group)
        if found is None:
            continue
        speeds, mine = modelled_speeds(found.pairs, found.settings), []
        for cell, summary in measured(group):
            if not cell.lossless and speed(summary) is not None:
                over = answers_over_best(row_of(group, cell), found, MARGIN)
                mine.append(Standing(cell, summary.with_values(**over), speeds, group.task))
        decided = verdicts({one.cell.key: one.summary.over_best_tests for one in mine if one.summary.over_best_tests})
        known += [replace(one, gain=decided.get(one.cell.key)) for one in mine]
    return sorted(known, key=lambda one: -_value(one.summary))


def row_of(group: Group, cell: Viewed) -> Answered:
    """The answers of a cell beside those of the autoregressive one; none where that is not in the group."""
    baseline = next((member for member in group.cells if member.baseline), None)
    known = {} if baseline is None else baseline.answers.samples
    pairs = compare(cell.samples if baseline is not cell else known.values(), known, cell.answers.timed)
    return Answered([pair for pair in pairs if isinstance(pair, Compared)])


def sentences(groups: Sequence[Group]) -> list[str]:
    """What the numbers show: which relaxed methods are a gain (`results.metrics.gain`) and which at a price; which gain
    tokens a cycle or a second but no time; what is undecided, and the prompts it would take. Where no relaxed
    method was timed beside a lossless one, the fastest of these, or that there is none; empty where nothing was timed.
    """
    rows = standings(groups)
    if not rows:
        return _fastest(groups)
    of: dict[str, list[Standing]] = {}
    for one in rows:
        of.setdefault("" if one.gain is None else one.gain.kind, []).append(one)
    longer = [one for one in rows if one not in of.get("gain", []) and _is_faster_by_token(one)
              and (one.summary.length_ratio_ci95 or (0, 0))[0] > 1]
    greedier = [one for one in rows if _is_greedier(one.summary)]
    return [text for text in (_ahead(of.get("gain", []), len(rows)), _priced(of.get("gain at a price", [])),
                              _longer(longer), _greedier(greedier), _none(of.get("no gain", [])),
                              _undecided(of.get("undecided", []))) if text]


def _fastest(groups: Sequence[Group]) -> list[str]:
    """The lossless cell whose answers are complete soonest beside the target alone."""
    timed = [(_value(summary), group, cell, summary) for group in groups for cell, summary in measured(group)
             if not cell.baseline and speed(summary) is not None]
    found = [one for one in timed if one[2].lossless]
    if not found:
        return ["No lossless method was timed beside these cells, so none can be shown to be a gain: add rule=lossless."
                ] if timed else []
    value, group, cell, summary = max(found, key=lambda one: one[0])
    interval = (speed(summary) or (None, value, None))[2]
    ends = "" if interval is None else f" [{', '.join(f'{end:.2f}' for end in interval)}]"
    return [f"The fastest lossless method is {cell.name} on {group.task}: answers {value:.2f}×{ends} as fast as the "
            "target alone."]


def _value(summary: Summary) -> float:
    found = speed(summary)
    return 0.0 if found is None else found[1]


def _is_faster_by_token(one: Standing) -> bool:
    """Whether the interval of the speed by the token lies above that of the best lossless answers."""
    own, best = one.summary.speedup_modelled_ci95, one.best["speedup_modelled_ci95"]
    return own is not None and best is not None and own[0] > best[1]


def _is_greedier(summary: Summary) -> bool:
    """Whether a gain in τ over the lossless rule is shown to come from greedier decoding more than from relaxation."""
    greedier, relaxed, gain = map(summary.interval, ("tau_gain_greedier", "tau_gain_relaxed", "tau_gain"))
    if greedier is None or relaxed is None or gain is None:
        return False
    return gain[0] > 0 and greedier[0] > relaxed[1]


def _ahead(ahead: Sequence[Standing], of: int) -> str:
    if not ahead:
        return (f"None of {_count(of, 'relaxed cell')} is shown to be a gain: to complete answers sooner than {BEST} "
                f"and than plain decoding, without losing more than {100 * MARGIN:g} points of its score.")
    verb = "are gains" if len(ahead) > 1 else "is a gain"
    return f"{len(ahead)} of {_count(of, 'relaxed cell')} {verb} over {BEST}: {_listed([_over(one) for one in ahead])}."


def _over(one: Standing) -> str:
    """`mars on gsm (1.25× [1.10, 1.40] as fast, accuracy −1.0 pp)`: speed beside the best lossless cell, score beside
    plain decoding."""
    summary, interval = one.summary, one.summary.over_best_answer_ci95
    ends = "" if interval is None else f" [{', '.join(f'{end:.2f}' for end in interval)}]"
    change = summary.accuracy_change
    score = "" if change is None else f", accuracy {100 * change:+.1f} pp".replace("-", "−")
    return f"{one.name} ({summary.over_best_answer or 0:.2f}×{ends} as fast{score})"


def _priced(cells: Sequence[Standing]) -> str:
    """Those that are faster and worse by more than the margin."""
    parts = [_over(one) for one in cells]
    return f"Sooner than {BEST}, but worse by more than the margin: {_listed(parts)}." if parts else ""


def _longer(cells: Sequence[Standing]) -> str:
    parts = [f"{cell.name} (length {cell.summary.length_ratio:.2f}×)" for cell in cells]
    return f"Faster by the token, but longer answers use up the gain: {_listed(parts)}." if parts else ""


def _greedier(cells: Sequence[Standing]) -> str:
    parts = [f"{cell.name} ({cell.summary.tau_gain_greedier:.2f} of {cell.summary.tau_gain:.2f})" for cell in cells]
    return f"More of the gain in τ is greedier decoding than relaxation: {_listed(parts)}." if parts else ""


def _none(cells: Sequence[Standing]) -> str:
    return f"Shown to be no gain: {_listed([one.name for one in cells])}." if cells else ""


def _undecided(cells: Sequence[Standing]) -> str:
    if not cells:
        return ""
    needed = sorted(one.gain.needed for one in cells if one.gain is not None and one.gain.needed)
    takes = f"; deciding takes about {_span(needed)} prompts a cell" if needed else ""
    return f"Undecided: {_count(len(cells), 'cell')}{takes}."


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


def overview(groups: Sequence[Group], environment: Mapping[str, Any], figure: Markup | None = None,
             splits: Sequence[Split] = (), gains: Markup | None = None) -> Markup | None:
    """The opening of a page; `figure`: the overview as inline SVG; `gains`: that of `splits`, which it then opens with.
    None where no cell has metrics."""
    about = scope(groups, environment)
    if not about:
        return None
    return Markup(TEMPLATES.get_template("overview.html.j2").render(
        scope=about, sentences=sentences(groups), figure=figure, splits=splits, gains=gains, columns=COLUMNS))
