"""What became of each point of a report: measured, failed, or missing, the latter two with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from results.reports.spec import Coords, ReportSpec
from results.store.summary import Summary
from results.store.traces import TraceFolder


@dataclass(frozen=True, slots=True)
class Outcome:
    """A cell's `summary` and, where a report reads it, its `trace`; or why there is none. Make one with `measured`,
    `failed` or `missing`."""

    state: Literal["measured", "failed", "missing"]
    summary: Summary | None = None
    reason: str = ""
    trace: TraceFolder | None = None

    @classmethod
    def measured(cls, summary: Summary, trace: TraceFolder | None = None) -> Outcome:
        return cls("measured", summary, trace=trace)

    @classmethod
    def failed(cls, reason: str) -> Outcome:
        """The cell was run and could not be finished."""
        return cls("failed", None, reason)

    @classmethod
    def missing(cls, reason: str = "not run yet") -> Outcome:
        return cls("missing", None, reason)


Grid = Mapping[Coords, Outcome]


def outcome(grid: Grid, coords: Coords) -> Outcome:
    """The outcome at a point; a point that the grid does not hold is missing."""
    return grid.get(coords, Outcome.missing())


def sizes(grid: Grid) -> str:
    """`n = 24 prompts a cell`, or the range where cells differ; empty without a measured cell."""
    found = sorted({held.summary.n for held in grid.values() if held.summary is not None})
    if not found:
        return ""
    return f"n = {found[0]} prompts a cell" if len(found) == 1 else f"n = {found[0]} to {found[-1]} prompts a cell"


def unmeasured(spec: ReportSpec, grid: Grid) -> list[tuple[str, Outcome]]:
    """(`label / label / …`, outcome) of every point of the report without a summary."""
    held = [(" / ".join(point.coords), outcome(grid, point.coords)) for point in spec.points()]
    return [(name, found) for name, found in held if found.summary is None]
