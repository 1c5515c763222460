"""Lay out a report and its grid as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from results.metrics.intervals import NORMAL_95
from results.metrics.tau_gain import findings
from results.reports.grid import Grid, locks, outcome, sizes
from results.reports.published import Key, load_published
from results.reports.published_findings import findings_of
from results.reports.spec import Column, Coords, TableSpec
from results.reports.table import Cell, Number, Row, Table, groups_of
from results.store.summary import Interval, Summary

EVENTS = {
    "vacuous_bound": "the calibrated tolerance is at least ln 2, the largest possible divergence: the certified bound "
                     "is vacuous",
}
"""Events that a rule records while decoding and a reader must know of: name -> note at the cell."""


def lay_out(spec: TableSpec, grid: Grid) -> Table:
    """The table of a report, from the outcome of each of its cells."""
    return _Layout(spec, grid).table()


class _Layout:
    """Builds one table.

    spec        the report.
    grid        coordinates -> outcome.
    published   the paper's numbers; empty without a paper.
    doubts      what is wrong with a number of the paper, by its place.
    coords      (row labels, column labels) -> coordinates of the cell there.
    notes       footnotes so far.
    """

    def __init__(self, spec: TableSpec, grid: Grid):
        self.spec, self.grid = spec, grid
        self.published = load_published(spec.published.file) if spec.published else {}
        self.doubts = findings_of(spec.published.file) if spec.published else {}
        self.coords = {self._place(point.coords): point.coords for point in spec.points()}
        self.notes: list[str] = []

    def table(self) -> Table:
        spec = self.spec
        stub = tuple(axis for axis in spec.rows if len(spec.axes[axis]) > 1) or spec.rows[-1:]
        columns = list(dict.fromkeys(column for _, column in self.coords))
        rows = tuple(self._row(row, columns, stub) for row in dict.fromkeys(row for row, _ in self.coords))
        headers = (*(" · ".join(column) for column in columns), *([spec.mean] if spec.mean else []))
        shows_gain = "tau_gain" in spec.metrics()
        return Table(spec, stub, headers, spec.values, mark_best(rows), self._caption(stub), tuple(self.notes),
                     tuple(self._findings()) if shows_gain else ())

    def _place(self, coords: Coords) -> tuple[Coords, Coords]:
        """(row labels, column labels) of a cell."""
        labels = self.spec.labels(coords)
        return tuple(labels[axis] for axis in self.spec.rows), tuple(labels[axis] for axis in self.spec.columns)

    def _row(self, row: Coords, columns: Sequence[Coords], stub: Sequence[str]) -> Row:
        coords = [self.coords.get((row, column)) for column in columns]
        cells = [self._cell(place) for place in coords]
        first = next(place for place in coords if place is not None)
        if self.spec.mean:
            cells.append(self._mean(self.spec.mean, first, cells))
        entries = self.spec.entries(first)
        is_baseline = any(entries[axis].baseline for axis in self.spec.rows)
        return Row(tuple(entries[axis].label for axis in stub), is_baseline, tuple(cells))

    def _cell(self, coords: Coords | None) -> Cell:
        columns = self.spec.values
        if coords is None:
            return Cell("absent", {}, tuple(Number(column) for column in columns))
        labels, result, blanks = self.spec.labels(coords), outcome(self.grid, coords), self._blanks(coords)
        summary = result.summary
        if summary is None:
            note = self._note(f"{result.state}: {result.reason}")
            return Cell(result.state, labels, blanks, reason=result.reason, notes=(note,))
        numbers = tuple(
            replace(blank, value=blank.column.metric.value(summary), interval=blank.column.metric.interval(summary))
            for blank in blanks
        )
        notes = tuple(self._note(text) for text in _remarks(summary))
        return Cell("measured", labels, numbers, summary.n, summary.failed, notes=notes)

    def _mean(self, header: str, coords: Coords, cells: Sequence[Cell]) -> Cell:
        """The mean over the columns of a row, if every column has a value. `coords`: any cell of the row."""
        labels = self.spec.labels(coords) | dict.fromkeys(self.spec.columns, header)
        present = [cell for cell in cells if cell.state != "absent"]
        numbers = [self._mean_number([cell.numbers[i] for cell in present], blank)
                   for i, blank in enumerate(self._blanks(coords, header))]
        return Cell("mean", labels, tuple(numbers))

    def _mean_number(self, parts: Sequence[Number], blank: Number) -> Number:
        values = [part.value for part in parts if part.value is not None]
        if len(values) < len(parts):
            return replace(blank, notes=(self._note("no mean: a column has no value"),))
        mean = sum(values) / len(values)
        return replace(blank, value=mean, interval=mean_interval(mean, [part.interval for part in parts]))

    def _blanks(self, coords: Coords, header: str = "") -> tuple[Number, ...]:
        """The numbers of a cell before they are measured: with those of the paper, where it has them. `header` names a
        column of the paper in place of the cell's own."""
        spec = self.spec
        if spec.published is None:
            return tuple(Number(column) for column in spec.values)
        names = {axis: entry.published_label for axis, entry in spec.entries(coords).items()}
        pair = names[spec.published.pair]
        row = " / ".join(names[axis] for axis in spec.rows if axis != spec.published.pair)
        header = header or " / ".join(names[axis] for axis in spec.columns)
        return tuple(self._blank(column, Key(pair, row, header, column.published_name or column.metric.name))
                     for column in spec.values)

    def _blank(self, column: Column, key: Key) -> Number:
        paper = self.published.get(key)
        if paper is None:
            return Number(column)
        scale, unit = column.published_scale, column.metric.shown(1.0)
        printed = paper.in_unit(scale * unit) + column.metric.sign
        ends = [self.published.get(key._replace(value_name=f"{key.value_name}_{end}")) for end in ("low", "high")]
        if None not in ends:
            printed += f" [{', '.join(end.in_unit(scale * unit) for end in ends if end is not None)}]"
        notes = tuple(self._note(text) for text in self.doubts.get(key, ()))
        return Number(column, published=paper.value * scale, printed=printed, paper_notes=notes)

    def _note(self, text: str) -> int:
        """The index of a footnote; cells with the same text share one."""
        if text not in self.notes:
            self.notes.append(text)
        return self.notes.index(text)

    def _caption(self, stub: Sequence[str]) -> str:
        spec, summaries = self.spec, [held.summary for held in self.grid.values() if held.summary is not None]
        parts = [spec.axes[axis][0].label for axis in spec.rows if axis not in stub] + [sizes(self.grid)]
        if any(column.metric.interval(summary) for summary in summaries for column in spec.values):
            parts.append("brackets: 95% interval")
        scores = self._scores() if {"accuracy", "recovery"} & set(spec.metrics()) else ""
        parts += [f"score: {scores}"] if scores else []
        return "; ".join(part for part in (*parts, locks(self.grid)) if part)

    def _scores(self) -> str:
        """`exact_match (mini_gsm), pass@1 (mini_code)`: the scores, each with the labels of the axis that decides which
        one is used."""
        metrics = {coords: summary.metric for coords in self.coords.values()
                   if (summary := outcome(self.grid, coords).summary) is not None}
        scores = list(dict.fromkeys(metrics.values()))
        for axis in range(len(self.spec.axes)) if len(scores) > 1 else ():
            pairs = dict.fromkeys((coords[axis], score) for coords, score in metrics.items())
            if len(pairs) == len({label for label, _ in pairs}):  # each label has one score
                labels = {score: [label for label, other in pairs if other == score] for score in scores}
                return ", ".join(f"{score} ({', '.join(labels[score])})" for score in scores)
        return ", ".join(scores)

    def _findings(self) -> list[str]:
        """Sentences on what each relaxed rule gains, by groups of rows that share all labels but the last."""
        groups: dict[Coords, list[tuple[str, Summary]]] = {}
        axes = (*self.spec.rows[:-1], *self.spec.columns)
        for (row, column), coords in self.coords.items():
            summary = outcome(self.grid, coords).summary
            if summary is not None:
                labels = zip(axes, (*row[:-1], *column), strict=True)
                varying = tuple(label for axis, label in labels if len(self.spec.axes[axis]) > 1)
                groups.setdefault(varying, []).append((row[-1], summary))
        return [": ".join([*([", ".join(labels)] if labels else []), sentence])
                for labels, points in groups.items() for sentence in findings(points)]


def _remarks(summary: Summary) -> list[str]:
    """What a reader must know of a measured cell."""
    n, failed = summary.n, summary.failed
    remarks = [f"{failed} of {n + failed} prompts failed and are left out"] if failed else []
    return remarks + [text for event, text in EVENTS.items() if summary.events.get(event)]


def mean_interval(mean: float, intervals: Sequence[Interval | None]) -> Interval | None:
    """95% interval of a mean over columns. They hold different prompts, so the variances of their values add; each
    standard error is read off its interval. None if a column has no interval."""
    known = [interval for interval in intervals if interval is not None]
    if len(known) < len(intervals):
        return None
    errors = [(high - low) / (2 * NORMAL_95) for low, high in known]
    half = NORMAL_95 * math.sqrt(sum(error**2 for error in errors)) / len(errors)
    return mean - half, mean + half


def mark_best(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Mark the best number of each column within a group of rows. Baselines neither compete nor win."""
    marked = []
    for _, group in groups_of(rows):
        rivals = [row for row in group if not row.baseline]
        marked += [row if row.baseline else _with_best(row, rivals) for row in group]
    return tuple(marked)


def _with_best(row: Row, rivals: Sequence[Row]) -> Row:
    cells = []
    for c, cell in enumerate(row.cells):
        columns = zip(*(rival.cells[c].numbers for rival in rivals), strict=True)
        numbers = tuple(replace(number, best=is_best(number, column))
                        for number, column in zip(cell.numbers, columns, strict=True))
        cells.append(replace(cell, numbers=numbers))
    return replace(row, cells=tuple(cells))


def is_best(number: Number, rivals: Sequence[Number]) -> bool:
    """Whether a number is the best of its column. Numbers that print alike are equally good; if all do, none is
    best."""
    values = {rival.text: rival.value for rival in rivals if rival.value is not None}
    better = number.column.metric.better
    if number.value is None or better is None or len(values) < 2:
        return False
    best = (max if better == "higher" else min)(values.values())
    return values[number.text] == best
