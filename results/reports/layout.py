"""Lay out a report and its grid as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from results.metrics import verdict
from results.metrics.catalog import JUDGED
from results.metrics.intervals import NORMAL_95, Interval
from results.metrics.paired import relative
from results.metrics.summary import Summary
from results.metrics.tau_gain import findings
from results.reports.annotations import Annotator, rivals
from results.reports.arrange import blocks, in_lines, mark_best, stacked
from results.reports.captions import caption
from results.reports.columns import Column
from results.reports.grid import Grid, outcome
from results.reports.published import Key, doubts_of, load_published
from results.reports.spec import Coords, ReportSpec, TableSpec
from results.reports.table import Cell, Note, Number, Row, Table

EVENTS = {
    "vacuous_bound": "the calibrated tolerance is at least ln 2, the largest possible divergence: the certified bound "
                     "is vacuous",
}
"""Events that a rule records while decoding and a reader must know of: name -> note at the cell."""

DOUBTED = "the paper contradicts this number elsewhere: results/published/doubts.csv and notes.yaml"


def place_in_paper(spec: TableSpec, coords: Coords, value_name: str, header: str = "") -> Key:
    """The place of a number in the paper's table. `header` names a column of the paper in place of the cell's own."""
    names = {axis: entry.published_label for axis, entry in spec.entries(coords).items()}
    pair = spec.published.pair if spec.published else ""
    row = " / ".join(names[axis] for axis in spec.rows if axis != pair and names[axis])
    return Key(names.get(pair, ""), row, header or " / ".join(names[axis] for axis in spec.columns), value_name)


def published_value(spec: ReportSpec, coords: Coords, value_name: str) -> float | None:
    """A number of the paper at this cell, as it is printed; None where the paper has none."""
    if not isinstance(spec, TableSpec) or spec.published is None:
        return None
    printed = load_published(spec.published.file).get(place_in_paper(spec, coords, value_name))
    return None if printed is None else printed.value


def lay_out(spec: TableSpec, grid: Grid) -> Table:
    """One table of a report, from the outcome of each of its cells."""
    return _Layout(spec, grid).table()


def lay_out_all(spec: TableSpec, grid: Grid) -> list[Table]:
    """The tables of a report. All but the first leave out what was measured in no cell."""
    summaries = [held.summary for held in grid.values() if held.summary is not None]
    first, *others = spec.tables()
    known = [(other, tuple(column for column in other.values
                           if any(summary.value(column.metric.name) is not None for summary in summaries)))
             for other in others]
    rest = [other.model_copy(update={"values": columns}) for other, columns in known if columns]
    return [block for table in (first, *rest) for block in blocks(lay_out(table, grid))]


class _Layout:
    """Builds one table.

    spec        the report.
    grid        coordinates -> outcome.
    published   the paper's numbers; empty without a paper.
    doubts      what is wrong with a number of the paper, by its place.
    coords      (row labels, column labels) -> coordinates of the cell there.
    notes       footnotes so far.
    annotator   what a reader must know of single numbers.
    """

    def __init__(self, spec: TableSpec, grid: Grid):
        self.spec, self.grid = spec, grid
        self.published = load_published(spec.published.file) if spec.published else {}
        self.doubts = doubts_of(spec.published.file) if spec.published else {}
        self.coords = {self._place(point.coords): point.coords for point in spec.points()}
        self.notes: list[str] = []
        self.annotator = Annotator(spec, grid, self._note)

    def table(self) -> Table:
        spec = self.spec
        stub = tuple(axis for axis in spec.rows if len(spec.axes[axis]) > 1) or spec.rows[-1:]
        columns = list(dict.fromkeys(column for _, column in self.coords))
        places = {axis: [entry.label for entry in spec.axes[axis]] for axis in spec.rows}
        in_order = sorted(dict.fromkeys(row for row, _ in self.coords), key=lambda row: [
            places[axis].index(label) for axis, label in zip(spec.rows, row, strict=True)])
        rows = tuple(self._row(row, columns, stub) for row in in_order)
        headers = (*map(self._header, columns), *([spec.mean] if spec.mean else []))
        under = tuple(self._under(column) for column in columns) + ((spec.values,) if spec.mean else ())
        marked = mark_best(rows)
        table = Table(spec, stub, headers, under, marked, caption(spec, self.grid, stub, marked),
                      tuple(self.notes), tuple(self._findings()))
        if spec.stacked:
            return stacked(table, columns)
        return in_lines(table) if spec.lines else table

    def _place(self, coords: Coords) -> tuple[Coords, Coords]:
        """(row labels, column labels) of a cell."""
        labels = self.spec.labels(coords)
        return tuple(labels[axis] for axis in self.spec.rows), tuple(labels[axis] for axis in self.spec.columns)

    def _header(self, column: Coords) -> str:
        """The labels of the column axes; a bare number says what it is one of."""
        return " · ".join(f"{axis} {label}" if label.replace(".", "", 1).isdigit() else label
                          for axis, label in zip(self.spec.columns, column, strict=True))

    def _under(self, column: Coords) -> tuple[Column, ...]:
        """The columns under a header, given by the labels of the column axes."""
        if self.spec.stacked:
            return self.spec.values
        labels = dict(zip(self.spec.columns, column, strict=True))
        return tuple(value for value in self.spec.values if value.allows(labels))

    def _row(self, row: Coords, columns: Sequence[Coords], stub: Sequence[str]) -> Row:
        coords = [self.coords.get((row, column)) for column in columns]
        cells = [self._cell(place, self._under(column)) for place, column in zip(coords, columns, strict=True)]
        first = next(place for place in coords if place is not None)
        if self.spec.mean:
            cells.append(self._mean(self.spec.mean, first, cells))
        entries = self.spec.entries(first)
        is_baseline = any(entries[axis].baseline for axis in self.spec.rows)
        return Row(tuple(entries[axis].label for axis in stub), is_baseline, tuple(cells))

    def _cell(self, coords: Coords | None, columns: tuple[Column, ...]) -> Cell:
        if coords is None:
            return Cell("absent", {}, tuple(Number(column) for column in columns))
        labels, result = self.spec.labels(coords), outcome(self.grid, coords)
        blanks = self._blanks(coords, columns)
        summary = result.summary
        if summary is None:
            note = self._note(f"{result.state}: {result.reason}")
            return Cell(result.state, labels, blanks, reason=result.reason, notes=(note,))
        annotated = self.annotator.annotated
        numbers = tuple(blank if blank.absent else annotated(self._measured(blank, coords), result, coords)
                        for blank in blanks)
        notes = tuple(self._note(text) for text in (
            *result.notes, *remarks(summary, "speedup" in {column.metric.name for column in columns})))
        return Cell("measured", labels, numbers, summary.n, summary.failed, notes=notes)

    def _measured(self, blank: Number, coords: Coords) -> Number:
        """The number with its value and interval, or why it has none."""
        held = outcome(self.grid, coords)
        column, summary = blank.column, held.summary
        if summary is None:
            return blank
        if not column.reference:
            value = summary.value(column.metric.name)
            reason = held.unjudged if value is None and column.metric.name in JUDGED else ""
            return replace(blank, value=value, interval=summary.interval(column.metric.name), reason=reason)
        labels = self.spec.labels(coords) | column.reference
        other = outcome(self.grid, tuple(labels[axis] for axis in self.spec.axes))
        name, relation = column.metric.name, "over" if column.over else "minus"
        theirs = {} if other.summary is None else other.summary.by_item(name)
        value, interval = relative(name, relation, summary.by_item(name), theirs)
        said = f"no {relation}: {' / '.join(column.reference.values())} was not measured on the same prompts"
        notes = blank.notes if value is not None else (*blank.notes, self._note(said))
        return replace(blank, value=value, interval=interval, notes=notes)

    def _mean(self, header: str, coords: Coords, cells: Sequence[Cell]) -> Cell:
        """The mean over the columns of a row, if every column has a value. `coords`: any cell of the row."""
        labels = self.spec.labels(coords) | dict.fromkeys(self.spec.columns, header)
        present = [cell for cell in cells if cell.state != "absent"]
        numbers = [self._mean_number([cell.numbers[i] for cell in present], blank)
                   for i, blank in enumerate(self._blanks(coords, self.spec.values, header))]
        return Cell("mean", labels, tuple(numbers))

    def _mean_number(self, parts: Sequence[Number], blank: Number) -> Number:
        values = [part.value for part in parts if part.value is not None]
        if len(values) < len(parts):
            return replace(blank, notes=(self._note("no mean: a column has no value"),))
        mean = sum(values) / len(values)
        items = tuple(items for part in parts for items in part.items)
        interval = mean_interval(mean, [part.interval for part in parts])
        return replace(blank, value=mean, interval=interval, items=items)

    def _blanks(self, coords: Coords, columns: Sequence[Column], header: str = "") -> tuple[Number, ...]:
        """The numbers of a cell before they are measured: with those of the paper, where it has them. `header` names a
        column of the paper in place of the cell's own."""
        labels, numbers = self.spec.labels(coords), []
        for column in columns:
            name = column.published_name or column.metric.name
            here = self._blank(column, place_in_paper(self.spec, coords, name, header))
            numbers.append(here if column.allows(labels) else Number(column, absent=True))
        return tuple(numbers)

    def _blank(self, column: Column, key: Key) -> Number:
        paper = self.published.get(key)
        if paper is None:
            return Number(column)
        scale, unit = column.published_scale, column.measure.shown(1.0)
        printed = paper.in_unit(scale * unit)
        ends = [self.published.get(key._replace(value_name=f"{key.value_name}_{end}")) for end in ("low", "high")]
        if None not in ends:
            printed += f" [{', '.join(end.in_unit(scale * unit) for end in ends if end is not None)}]"
        notes = tuple(self._note(Note(text, DOUBTED)) for text in self.doubts.get(key, ()))
        return Number(column, published=paper.value * scale, printed=printed, paper_notes=notes)

    def _note(self, text: str) -> int:
        """The index of a footnote; cells with the same text share one."""
        if text not in self.notes:
            self.notes.append(text)
        return self.notes.index(text)

    def _findings(self) -> list[str]:
        """Sentences on what each rule gains, by groups of rows that share all labels but the last; none on baselines
        and on the rows that others are compared with, and none in a table that shows no gain."""
        shown = {column.metric.name for column in self.spec.values}
        told: dict[str, Callable[[Sequence[tuple[str, Summary]]], list[str]]] = {
            "tau_gain": findings, "equal_d_speed": verdict.findings}
        tell = next((one for name, one in told.items() if name in shown), None)
        if tell is None:
            return []
        row, sentences, choice = self.spec.rows[-1], [], self.spec.choice
        compared = {choice.lossless, choice.lossless_greedy} if choice is not None else set()
        for labels, cells in rivals(self.spec, self.grid).items():
            points = [(label, summary) for coords, summary in cells.items()
                      if (label := self.spec.labels(coords)[row]) not in compared]
            sentences += [": ".join([*([", ".join(labels)] if labels else []), one]) for one in tell(points)]
        return sentences


def remarks(summary: Summary, with_speed: bool) -> list[str]:
    """What a reader must know of a measured cell, `with_speed` of its speedup too."""
    n, failed = summary.n, summary.failed
    texts = [f"{failed} of {n + failed} prompts failed and are left out"] if failed else []
    texts += [text for event, text in EVENTS.items() if summary.events.get(event)]
    if with_speed and summary.repeatable is not None and summary.repeatable < 1:
        said = "timed prompts have other tokens than in the quality pass"
        texts.append(Note(f"{1 - summary.repeatable:.0%} of {summary.timed} {said}", f"some {said}"))
    return texts


def mean_interval(mean: float, intervals: Sequence[Interval | None]) -> Interval | None:
    """95% interval of a mean over columns. They hold different prompts, so the variances of their values add; each
    standard error is read off its interval. None if a column has no interval."""
    known = [interval for interval in intervals if interval is not None]
    if len(known) < len(intervals):
        return None
    errors = [(high - low) / (2 * NORMAL_95) for low, high in known]
    half = NORMAL_95 * math.sqrt(sum(error**2 for error in errors)) / len(errors)
    return mean - half, mean + half
