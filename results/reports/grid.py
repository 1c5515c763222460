"""The outcome of each point of a report: measured, failed or missing, the latter two with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

from results.metrics.summary import Summary
from results.reports.axes import Entry
from results.reports.conditions import Conditions
from results.reports.spec import Coords, ReportSpec
from results.store.traces import TraceFolder


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one cell. Make one with `measured`, `failed` or `missing`.

    state        measured, failed, or missing.
    summary      the cell's metrics; None unless it was measured.
    reason       why it was not measured, in one line.
    trace        its trace, if the report reads traces.
    conditions   how it was measured; None if that is unknown.
    unjudged     why an LLM judge has not graded it; empty where its task is not judged.
    agreement    measure -> series -> numbers, where answers were compared by models of meaning.
    notes        what a reader must know of it, each a footnote.
    """

    state: Literal["measured", "failed", "missing"]
    summary: Summary | None = None
    reason: str = ""
    trace: TraceFolder | None = None
    conditions: Conditions | None = None
    unjudged: str = ""
    agreement: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def measured(cls, summary: Summary, trace: TraceFolder | None = None, conditions: Conditions | None = None,
                 unjudged: str = "") -> Outcome:
        return cls("measured", summary, trace=trace, conditions=conditions, unjudged=unjudged)

    @classmethod
    def failed(cls, reason: str) -> Outcome:
        """The cell was run but could not be completed."""
        return cls("failed", None, reason)

    @classmethod
    def missing(cls, reason: str = "not run yet") -> Outcome:
        return cls("missing", None, reason)

    def untimed(self) -> Outcome:
        """Without the sessions of timed prompts, of which nothing is shown."""
        return self if self.conditions is None else replace(self, conditions=replace(self.conditions, sessions=()))


Grid = Mapping[Coords, Outcome]


def outcome(grid: Grid, coords: Coords) -> Outcome:
    """The outcome at a point; a point that the grid does not hold is missing."""
    return grid.get(coords, Outcome.missing())


def sizes(grid: Grid, clocked: bool) -> str:
    """`n = 24 prompts per cell`, or the range if cells differ; where the clock has a part in what is shown, `, 12 of
    them timed`, with the number of measuring sessions. Empty without a measured cell."""
    summaries = [held.summary for held in grid.values() if held.summary is not None]
    if not summaries:
        return ""
    size, timed = _span([summary.n for summary in summaries]), _span([summary.timed for summary in summaries])
    said = f"n = {size} prompt{'' if size == '1' else 's'} per cell"
    if not clocked or timed == "0":
        return said
    count = len({session for held in conditions(grid) for session in held.sessions})
    return f"{said}, {timed} of them timed" + (f" in {count} session{'s' * (count > 1)}" if count else "")


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def conditions(grid: Grid) -> list[Conditions]:
    """How the measured cells of a grid were measured."""
    return [held.conditions for held in grid.values() if held.conditions is not None]


def unmeasured(spec: ReportSpec, grid: Grid) -> list[tuple[str, Outcome]]:
    """(`label / label / …`, outcome) of every point of the report without a summary."""
    outcomes = [(" / ".join(point.coords), outcome(grid, point.coords)) for point in spec.points()]
    return [(name, result) for name, result in outcomes if result.summary is None]


def panels(spec: ReportSpec, axes: tuple[str, ...], each: int = 1) -> list[tuple[str, dict[str, str]]]:
    """(title, {axis: label}) of each place, of which `each` panels are drawn. Titles omit axes with a single entry,
    except that of a figure's only panel."""
    every = product(*(labels_of(spec.axes[axis]) for axis in axes))
    places = [dict(zip(axes, labels, strict=True)) for labels in every]
    named = [axis for axis in axes if len(places) * each == 1 or len(labels_of(spec.axes[axis])) > 1]
    return [(", ".join(at[axis] for axis in named), at) for at in places]


def labels_of(axis: tuple[Entry, ...]) -> list[str]:
    """The labels of an axis, each once: entries for different cells may share one."""
    return list(dict.fromkeys(entry.label for entry in axis))
