"""From a report and its grid to a table of plain cells; the renderers only differ in how they print it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

from results.metrics.intervals import NORMAL_95
from results.metrics.tau_gain import findings
from results.reports.grid import Grid, outcome, sizes
from results.reports.published import Numbers, load_published
from results.reports.spec import Coords, ReportSpec, Value
from results.store.summary import Interval, Summary

EVENTS = {
    "vacuous_bound": "the calibrated tolerance is at least ln 2, the largest divergence there is: the certified bound "
                     "says nothing here",
}
"""What a rule noted while it decoded and a reader must know, as a note to the cell."""


@dataclass(frozen=True, slots=True)
class Number:
    """One value of a cell in the summary's unit; `value` is None where it could not be measured. `notes` are indices
    into the table's notes, `published` the paper's number in the same unit."""

    of: Value
    value: float | None = None
    interval: Interval | None = None
    published: float | None = None
    best: bool = False
    notes: tuple[int, ...] = ()

    @property
    def _sign(self) -> str:
        return "+" if self.of.of.signed else ""

    @property
    def text(self) -> str:
        return "–" if self.value is None else _printed(self.of, self.value, self._sign) + self.of.of.sign

    @property
    def interval_text(self) -> str:
        """`[2.01, 2.19]`; empty without an interval, and where the value is fixed by definition and it has no width."""
        if self.interval is None or self.interval[0] == self.interval[1]:
            return ""
        return f"[{', '.join(_printed(self.of, end, self._sign) for end in self.interval)}]"

    @property
    def difference(self) -> float | None:
        return None if self.value is None or self.published is None else self.value - self.published

    @property
    def published_text(self) -> str:
        """`paper 3.75× (−1.65)`; empty without a published number."""
        if self.published is None:
            return ""
        paper = replace(self, value=self.published).text
        if self.difference is None:
            return f"paper {paper}"
        return f"paper {paper} ({_printed(self.of, self.difference, sign='+')})"


@dataclass(frozen=True, slots=True)
class Cell:
    """All values at one place. `state` is "mean" for the computed column, "absent" where the report asks for no cell.
    `at` are the labels by axis."""

    state: Literal["measured", "failed", "missing", "mean", "absent"]
    at: Mapping[str, str]
    numbers: tuple[Number, ...]
    n: int | None = None
    failed_prompts: int | None = None
    reason: str = ""
    notes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    labels: Coords
    baseline: bool
    cells: tuple[Cell, ...]


@dataclass(slots=True)
class Table:
    """`stub` names the axes of the row labels; an axis with a single entry is told in the caption instead. `columns`
    are labels (joined where several axes lie in the columns), each as wide as there are `values`."""

    spec: ReportSpec
    stub: tuple[str, ...]
    columns: list[str]
    values: tuple[Value, ...]
    rows: list[Row]
    caption: str
    notes: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    @property
    def groups(self) -> list[tuple[Coords, list[Row]]]:
        """Consecutive rows that share all labels but the last."""
        return [(labels, list(rows)) for labels, rows in groupby(self.rows, key=lambda row: row.labels[:-1])]


def lay_out(spec: ReportSpec, grid: Grid) -> Table:
    """The table of a report of kind "table"."""
    stub = tuple(axis for axis in spec.rows if len(spec.axes[axis]) > 1) or spec.rows[-1:]
    notes: list[str] = []
    points = {point.coords: _places(spec, point.coords) for point in spec.points()}
    columns = list(dict.fromkeys(column for _, column in points.values()))
    at = {place: coords for coords, place in points.items()}
    published = load_published(spec.published.file) if spec.published else {}
    rows = []
    for labels in dict.fromkeys(row for row, _ in points.values()):
        coords = [at.get((labels, column)) for column in columns]
        cells = [_cell(spec, grid, place, published, notes) for place in coords]
        known = next(place for place in coords if place is not None)
        if spec.mean:
            cells.append(_mean(spec, known, cells, published, notes))
        entries = spec.entries(known)
        shown = tuple(entries[axis].label for axis in stub)
        rows.append(Row(shown, any(entries[axis].baseline for axis in spec.rows), tuple(cells)))
    names = [" · ".join(column) for column in columns] + ([spec.mean] if spec.mean else [])
    told = [spec.axes[axis][0].label for axis in spec.rows if axis not in stub]
    table = Table(spec, stub, names, spec.values, rows, "; ".join([*told, *_caption(spec, grid)]), notes)
    table.rows = _mark_best(table)
    if any(value.metric == "tau_gain" for value in spec.values):
        table.findings = _findings(spec, grid, at)
    return table


def _findings(spec: ReportSpec, grid: Grid, at: Mapping[tuple[Coords, Coords], Coords]) -> list[str]:
    """What the relaxed points come to, by groups of rows that share all labels but the last."""
    groups: dict[Coords, list[tuple[str, Summary]]] = {}
    for (row, column), coords in at.items():
        summary = outcome(grid, coords).summary
        if summary is not None:
            labels = dict(zip((*spec.rows[:-1], *spec.columns), (*row[:-1], *column), strict=True))
            told = tuple(label for axis, label in labels.items() if len(spec.axes[axis]) > 1)
            groups.setdefault(told, []).append((row[-1], summary))
    return [": ".join([*([", ".join(told)] if told else []), line])
            for told, points in groups.items() for line in findings(points)]


def _places(spec: ReportSpec, coords: Coords) -> tuple[Coords, Coords]:
    at = dict(zip(spec.axes, coords, strict=True))
    return tuple(at[axis] for axis in spec.rows), tuple(at[axis] for axis in spec.columns)


def _cell(spec: ReportSpec, grid: Grid, coords: Coords | None, published: Numbers, notes: list[str]) -> Cell:
    if coords is None:
        return Cell("absent", {}, tuple(Number(value) for value in spec.values))
    at = dict(zip(spec.axes, coords, strict=True))
    found = outcome(grid, coords)
    paper = _paper(spec, coords, published)
    if found.summary is None:
        numbers = tuple(Number(value, published=known) for value, known in zip(spec.values, paper, strict=True))
        note = _note(notes, f"{found.state}: {found.reason}")
        return Cell(found.state, at, numbers, reason=found.reason, notes=(note,))
    numbers = tuple(
        Number(value, value.of.value(found.summary), value.of.interval(found.summary), known)
        for value, known in zip(spec.values, paper, strict=True)
    )
    n, failed = found.summary.n, found.summary.failed
    said = [f"{failed} of {n + failed} prompts failed and are left out"] if failed else []
    said += [text for event, text in EVENTS.items() if found.summary.events.get(event)]
    return Cell("measured", at, numbers, n, failed, notes=tuple(_note(notes, text) for text in said))


def _mean(
    spec: ReportSpec, coords: Coords, cells: Sequence[Cell], published: Numbers, notes: list[str]
) -> Cell:
    """The mean over the columns, only where every column has a value. `coords` is any point of the row."""
    at = dict(zip(spec.axes, coords, strict=True)) | dict.fromkeys(spec.columns, spec.mean)
    paper = _paper(spec, coords, published, spec.mean)
    numbers = []
    for i, value in enumerate(spec.values):
        parts = [cell.numbers[i] for cell in cells if cell.state != "absent"]
        if any(part.value is None for part in parts):
            numbers.append(Number(value, published=paper[i], notes=(_note(notes, "no mean: a column has no value"),)))
            continue
        mean = sum(part.value for part in parts) / len(parts)
        numbers.append(Number(value, mean, _mean_interval(mean, [part.interval for part in parts]), paper[i]))
    return Cell("mean", at, tuple(numbers))


def _mean_interval(mean: float, intervals: Sequence[Interval | None]) -> Interval | None:
    """The columns hold different prompts, so the variances of their values add; each is read off its interval."""
    if any(interval is None for interval in intervals):
        return None
    errors = [(high - low) / (2 * NORMAL_95) for low, high in intervals]
    half = NORMAL_95 * math.sqrt(sum(error**2 for error in errors)) / len(errors)
    return mean - half, mean + half


def _paper(spec: ReportSpec, coords: Coords, published: Numbers, column: str = "") -> list[float | None]:
    """The published number of each value at this point, None where the paper has none."""
    if spec.published is None:
        return [None] * len(spec.values)
    at = spec.entries(coords)
    pair = at[spec.published.pair].published_label
    row = " / ".join(at[axis].published_label for axis in spec.rows if axis != spec.published.pair)
    column = column or " / ".join(at[axis].published_label for axis in spec.columns)
    found = [published.get((pair, row, column, value.published_name or value.metric)) for value in spec.values]
    return [None if x is None else x * value.published_scale for x, value in zip(found, spec.values, strict=True)]


def _mark_best(table: Table) -> list[Row]:
    """Mark the best value of each column within a group of rows, where it has rivals; equal prints are equally good.
    Where all are equal none is best."""
    rows = []
    for _, group in table.groups:
        rivals = [row for row in group if not row.baseline]
        for row in group:
            cells = [
                replace(cell, numbers=tuple(
                    replace(number, best=not row.baseline and _is_best(number, [r.cells[c].numbers[i] for r in rivals]))
                    for i, number in enumerate(cell.numbers)
                ))
                for c, cell in enumerate(row.cells)
            ]
            rows.append(replace(row, cells=tuple(cells)))
    return rows


def _is_best(number: Number, rivals: Sequence[Number]) -> bool:
    known = [rival for rival in rivals if rival.value is not None]
    if number.value is None or number.of.of.better is None or len({rival.text for rival in known}) < 2:
        return False
    best = (max if number.of.of.better == "higher" else min)(known, key=lambda rival: rival.value)
    return number.text == best.text


def _caption(spec: ReportSpec, grid: Grid) -> list[str]:
    parts = [sizes(grid)]
    if any(value.of.interval(held.summary) for held in grid.values() if held.summary for value in spec.values):
        parts.append("brackets: 95% interval")
    scores = _scores(spec, grid)
    if scores and any(value.metric in ("accuracy", "recovery") for value in spec.values):
        parts.append(f"score: {scores}")
    return [part for part in parts if part]


def _scores(spec: ReportSpec, grid: Grid) -> str:
    """`exact_match (mini_gsm), pass@1 (mini_code)`: the scores, and the entries of the axis they go with."""
    held = {point.coords: outcome(grid, point.coords).summary for point in spec.points()}
    scores = {coords: summary.metric for coords, summary in held.items() if summary is not None}
    names = list(dict.fromkeys(scores.values()))
    for i in range(len(spec.axes)) if len(names) > 1 else ():
        if len({(coords[i], score) for coords, score in scores.items()}) == len({coords[i] for coords in scores}):
            places = {name: dict.fromkeys(at[i] for at, score in scores.items() if score == name) for name in names}
            return ", ".join(f"{name} ({', '.join(found)})" for name, found in places.items())
    return ", ".join(names)


def _note(notes: list[str], text: str) -> int:
    if text not in notes:
        notes.append(text)
    return notes.index(text)


def _printed(value: Value, x: float, sign: str = "") -> str:
    text: Any = f"{value.of.shown(x):{sign}.{value.decimals}f}"
    return text.replace("-", "−")
