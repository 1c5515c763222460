"""The lines under a table or figure: how many prompts, under what conditions, and what brackets and
bold print mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from results.metrics.catalog import CLOCKED
from results.metrics.metric import ALONE
from results.metrics.verdict import FAMILY
from results.reports.grid import Grid, conditions, outcome, sizes, stated, unmeasured
from results.reports.spec import ReportSpec, TableSpec

INTERVAL_OF_MEAN = "from the standard errors of the averaged columns"
BOLD = (
    "bold: the best of its column, and what does not differ significantly from it (paired "
    "bootstrap, Holm, 5%), where that is at most half of the rows"
)
GAIN = (
    "gain: faster per token than the fastest lossless setting that distorts no more; no gain "
    "above 5%: less than 1.05 times as fast. Each is one-sided at 5%, corrected for "
    f"{FAMILY} settings of rules whatever the table shows; controls are judged as rules are. What "
    "distorts over 5% more than every lossless setting, greedy decoding among them, is no gain, "
    "however fast"
)

SELECTION = (
    "each row's setting is selected on one half of the prompts and reported on the other, both "
    "ways, by its modelled speed per token"
)


def caption(
    spec: TableSpec, grid: Grid, stub: Sequence[str], lines: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """The three lines under a table: what was measured and on how many prompts; how its intervals
    and marks are made; on which machine, when, with which versions. `stub`: the axes that label its
    rows; `lines`: of its frame."""
    named = {column.metric.name for column in spec.values}
    what = [
        spec.axes[axis][0].label
        for axis in (*spec.rows, *spec.columns)
        if _is_untold(spec, axis, stub)
    ]
    what += [sizes(grid, bool(named & CLOCKED)), "" if spec.choice is None else SELECTION]
    scored = scores(spec, grid) if named & {"accuracy", "recovery", "accuracy_change"} else ""
    what += [f"score: {scored}"] if scored else []
    how = (
        [f"95% intervals: {methods(spec, grid)}"]
        if any(line["interval"] and line["ci_low"] != line["ci_high"] for line in lines)
        else []
    )
    how += [GAIN] if any(line["verdict"] for line in lines) else []
    how += [BOLD] if any(line["best"] for line in lines) else []
    if spec.published and any(line["published"] is not None for line in lines):
        how += [
            "paper: as "
            f"printed{f', on {spec.published.hardware}' * bool(spec.published.hardware)}; the "
            "difference of ours behind it"
        ]
    first, *others = (
        "; ".join(part for part in parts if part) for parts in (what, how, stated(conditions(grid)))
    )
    return tuple(
        f"{line}." for line in (first, *(line[:1].upper() + line[1:] for line in others)) if line
    )


def figure_caption(spec: ReportSpec, grid: Grid, metrics: Iterable[str], bars: str) -> str:
    """The line under a figure: prompts, what its `bars` are, conditions; then what was not
    measured."""
    parts = [
        sizes(grid, bool(CLOCKED & set(metrics))),
        bars * bool(conditions(grid)),
        *stated(conditions(grid)),
    ]
    if absent := unmeasured(spec, grid):
        first, missing = absent[0]
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        parts.append(f"not measured: {first} ({missing.state}: {missing.reason}){more}")
    return "; ".join(filter(None, parts))


def _is_untold(spec: TableSpec, axis: str, stub: Sequence[str]) -> bool:
    """Whether the label of an axis with one entry is shown neither in the rows nor in the
    headers."""
    return len(spec.axes[axis]) == 1 and axis in spec.rows and axis not in stub


def methods(spec: TableSpec, grid: Grid) -> str:
    """`bootstrap over prompts; Wilson for Accuracy`: how the intervals of the columns are made. A
    score has one kind where it is 0 or 1, and another where it is not."""
    kinds: dict[str, list[str]] = {}
    for column in spec.values:
        if column.measure.estimator is ALONE:
            continue
        made = {
            column.measure.estimated_by(cell.proportion).words: cell.proportion
            for cell in conditions(grid)
        }
        for kind, proportion in made.items() if len(made) > 1 else ():
            scored = "scores of 0 or 1" if proportion else "other scores"
            kinds.setdefault(kind, []).append(f"{column.name} ({scored})")
        if len(made) < 2:
            [kind] = made or [column.measure.estimated_by(proportion=True).words]
            kinds.setdefault(kind, []).append(column.name)
    [first, *rest] = kinds.items()
    means = [f"those of means {INTERVAL_OF_MEAN}"] if spec.mean else []
    return "; ".join(
        [first[0], *(f"{kind} for {', '.join(headers)}" for kind, headers in rest), *means]
    )


def scores(spec: TableSpec, grid: Grid) -> str:
    """`exact_match (mini_gsm), pass@1 (mini_code)`: the scores, each with the labels of the axis
    that decides which one is used."""
    metrics = {
        point.coords: summary.metric
        for point in spec.points()
        if (summary := outcome(grid, point.coords).summary) is not None
    }
    names = list(dict.fromkeys(metrics.values()))
    for axis in range(len(spec.axes)) if len(names) > 1 else ():
        pairs = dict.fromkeys((coords[axis], score) for coords, score in metrics.items())
        if len(pairs) == len({label for label, _ in pairs}):  # each label has one score
            labels = {score: [label for label, other in pairs if other == score] for score in names}
            return ", ".join(f"{score} ({', '.join(labels[score])})" for score in names)
    return ", ".join(names)
