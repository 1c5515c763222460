"""The outcome of each point of a report: measured, failed or missing, the latter two with a reason;
and under what conditions its cells were measured, as captions and files state it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from results.metrics.summary import Summary
from results.reports.axes import Entry
from results.reports.spec import Coords, ReportSpec
from results.store.sample import TimingSession
from results.store.traces import TraceFolder

FIELDS = ("cell", "pair", "temperature", "seed", "repeats", "theta", "machine", "date", "session")
"""The conditions as columns of a CSV file."""
OF_ALTERED = ("distortion", "distortion_answer", "equal_d_distortion")
"""The metrics of a row that is the altered target (`Entry.altered`)."""
DRIFT = 0.1
"""Relative change of the baseline's tokens/s within a session above which a table says so."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """How one cell was measured.

    pair          the pair's name
    temperature   of the decoding
    seed          of the prompts' random streams
    repeats       measured repetitions, each with other streams
    theta         the rule's θ; None for a rule without one
    machine       model of processor or accelerator, and the CPU threads of its clock
    date          day of the measurement, ISO 8601
    lock          digest of the dependency lock, `sha256:…`; None if unknown
    baseline      name of the cell of autoregressive decoding beside it, and the size of its batches
    sessions      the sessions of its timed prompts
    cell          name of the cell, which says what was measured; of a row over several their names,
                  joined by " + "
    proportion    whether its scores are 0 or 1, so that accuracy is a proportion of prompts
    """

    pair: str
    temperature: float
    seed: int
    repeats: int
    theta: float | None
    machine: str
    date: str
    lock: str | None = None
    baseline: str = ""
    sessions: tuple[TimingSession, ...] = ()
    cell: str = ""
    proportion: bool = True

    def plain(self) -> dict[str, Any]:
        """`FIELDS` -> value."""
        sessions = " + ".join(session.text for session in self.sessions)
        named = (
            self.cell or None,
            self.pair,
            self.temperature,
            self.seed,
            self.repeats,
            self.theta,
        )
        return dict(zip(FIELDS, (*named, self.machine, self.date, sessions or None), strict=True))


def columns_of(conditions: Conditions | None, axes: Collection[str]) -> dict[str, Any]:
    """`FIELDS` -> value as columns of a CSV file; an axis of one of these names, such as theta,
    takes its column."""
    values = dict.fromkeys(FIELDS) if conditions is None else conditions.plain()
    return {name: value for name, value in values.items() if name not in axes}


def machine(environment: dict[str, Any], threads: Iterable[int]) -> str:
    """`AMD EPYC 7B13, 1 thread` or `2 × NVIDIA H200`, from an environment record and the numbers of
    CPU threads of the clock (0: not recorded)."""
    if accelerator := environment.get("accelerator"):
        count = accelerator.get("count", 1)
        return f"{count} × {accelerator['name']}" if count > 1 else str(accelerator["name"])
    cpu = environment.get("cpu") or {}
    model = str(cpu.get("model", "unknown processor"))
    return ", ".join(part for part in (model, counted(threads)) if part)


def counted(threads: Iterable[int]) -> str:
    """`1 thread and 2 threads`: each number once, without those that were not recorded."""
    return " and ".join(
        f"{count} thread{'s' * (count > 1)}" for count in sorted(set(threads)) if count
    )


def stated(conditions: Iterable[Conditions]) -> list[str]:
    """The conditions in words, each value once: pair, seeds, temperature, θ, machine, date,
    lock."""
    cells = list(conditions)
    if not cells:
        return []
    repeats, dates = max(cell.repeats for cell in cells), sorted({cell.date for cell in cells})
    seeds = _values([cell.seed for cell in cells])
    parts = [
        f"pair {', '.join(dict.fromkeys(cell.pair for cell in cells))}",
        f"{'seeds' if ',' in seeds else 'seed'} {seeds}"
        + (f", {repeats} repeats" if repeats > 1 else ""),
        f"temperature {_values([cell.temperature for cell in cells])}",
    ]
    thetas = [cell.theta for cell in cells if cell.theta is not None]
    parts += [f"θ = {_values(thetas)}"] if thetas else []
    machines = dict.fromkeys(cell.machine for cell in cells)
    # cells that were not timed have no number of threads: the name alone would only repeat that of
    # the others
    parts += [
        ", ".join(
            name
            for name in machines
            if not any(other.startswith(f"{name}, ") for other in machines)
        )
    ]
    parts += [dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"]
    locks = sorted({cell.lock for cell in cells if cell.lock is not None})
    parts += [f"lock {', '.join(lock[: len('sha256:') + 12] for lock in locks)}"] if locks else []
    return parts


def drifts(speeds: Sequence[tuple[Conditions, float | None]]) -> dict[str, float]:
    """Baseline cell -> relative drift of its tokens/s within one session, where that is above
    `DRIFT`."""
    speeds_of: dict[tuple[str, TimingSession], list[float]] = {}
    for conditions, speed in speeds:
        if speed and len(conditions.sessions) == 1:
            speeds_of.setdefault((conditions.baseline, conditions.sessions[0]), []).append(speed)
    changes = {name: max(speeds) / min(speeds) - 1 for (name, _), speeds in speeds_of.items()}
    return {name: change for name, change in changes.items() if change > DRIFT}


def _values(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in sorted(set(numbers)))


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
    altered      how the target is altered whose D it has; empty for a cell that was decoded.
    """

    state: Literal["measured", "failed", "missing"]
    summary: Summary | None = None
    reason: str = ""
    trace: TraceFolder | None = None
    conditions: Conditions | None = None
    unjudged: str = ""
    agreement: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    altered: str = ""

    @classmethod
    def measured(
        cls,
        summary: Summary,
        trace: TraceFolder | None = None,
        conditions: Conditions | None = None,
        unjudged: str = "",
    ) -> Outcome:
        return cls("measured", summary, trace=trace, conditions=conditions, unjudged=unjudged)

    @classmethod
    def failed(cls, reason: str) -> Outcome:
        """The cell was run but could not be completed."""
        return cls("failed", None, reason)

    @classmethod
    def missing(cls, reason: str = "not run yet") -> Outcome:
        return cls("missing", None, reason)


Grid = Mapping[Coords, Outcome]


def outcome(grid: Grid, coords: Coords) -> Outcome:
    """The outcome at a point; a point that the grid does not hold is missing."""
    return grid.get(coords, Outcome.missing())


def sizes(grid: Grid, clocked: bool) -> str:
    """`n = 24 prompts per cell`, or the range if cells differ; where the clock has a part in what
    is shown, `, 12 of them timed`, with the number of measuring sessions. Empty without a measured
    cell."""
    summaries = [
        result.summary
        for result in grid.values()
        if result.summary is not None and not result.altered
    ]
    if not summaries:
        return ""
    size, timed = (
        _span([summary.n for summary in summaries]),
        _span([summary.timed for summary in summaries]),
    )
    said = f"n = {size} prompt{'' if size == '1' else 's'} per cell"
    count = len({session for each in conditions(grid) for session in each.sessions})
    if (
        not clocked or not count
    ):  # none under a cost profile, whose clock is modelled for all prompts
        return said
    return f"{said}, {timed} of them timed in {count} session{'s' * (count > 1)}"


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def conditions(grid: Grid) -> list[Conditions]:
    """How the measured cells of a grid were measured."""
    return [result.conditions for result in grid.values() if result.conditions is not None]


def unmeasured(spec: ReportSpec, grid: Grid) -> list[tuple[str, Outcome]]:
    """(`label / label / …`, outcome) of every point of the report without a summary."""
    outcomes = [(" / ".join(point.coords), outcome(grid, point.coords)) for point in spec.points()]
    return [(name, result) for name, result in outcomes if result.summary is None]


def panels(
    spec: ReportSpec, axes: tuple[str, ...], each: int = 1
) -> list[tuple[str, dict[str, str]]]:
    """(title, {axis: label}) of each place, of which `each` panels are drawn. Titles omit axes with
    a single entry, except that of a figure's only panel."""
    every = product(*(labels_of(spec.axes[axis]) for axis in axes))
    places = [dict(zip(axes, labels, strict=True)) for labels in every]
    named = [
        axis for axis in axes if len(places) * each == 1 or len(labels_of(spec.axes[axis])) > 1
    ]
    return [(", ".join(at[axis] for axis in named), at) for at in places]


def labels_of(axis: tuple[Entry, ...]) -> list[str]:
    """The labels of an axis, each once: entries for different cells may share one."""
    return list(dict.fromkeys(entry.label for entry in axis))
