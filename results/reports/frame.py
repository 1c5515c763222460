"""The tidy frame of a report: a line for each number.

That of a table has its place, interval, published number and footnotes: every format reads it
(`formats.py`), and so do the short form (`reading.py`) and the page. That of a figure
(`figure_frame`) is what is drawn, and its CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pandas as pd

from results.metrics import verdict
from results.metrics.catalog import CLOCKED, JUDGED, METRICS
from results.metrics.intervals import NORMAL_95, Interval
from results.metrics.paired import best_of, relative
from results.metrics.trace_metrics import quantities
from results.reports.annotations import Annotator, Note, remarks, rivals
from results.reports.captions import INTERVAL_OF_MEAN, caption
from results.reports.columns import Column
from results.reports.figures import Own, Traced
from results.reports.grid import OF_ALTERED, Grid, Outcome, columns_of, outcome
from results.reports.published import Place, by_place, doubts_of, load_published, place_in_paper
from results.reports.spec import Coords, FigureSpec, ReportSpec, TableSpec

DOUBTED = "the paper contradicts this number elsewhere: results/published/doubts.csv and notes.yaml"
UNTIMED = "not timed: a command without timed=0 adds the times"
INTERNAL = ["row", "head", "place", "column", "stub", "baseline", "items", "marks", "paper_marks"]
"""Columns of a table's frame that are no columns of a CSV file."""
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is laid out.

    spec       the report it belongs to.
    stub       the axes that label the rows; a row axis with one entry is told in the caption
               instead.
    headers    the header at each `head`; labels are joined if several axes lie in the columns.
    frame      a line for each number, in the order of rows, headers and metrics: the columns of a
               CSV file (`formats.long_csv`), and behind them `row`, `head` and `place` (indices of
               its row, header and metric), `column` (what is printed, and how), `stub` (labels of
               the row), `baseline` (whether the row is a reference that is never best), `items`
               (what rows are compared by), `marks` and `paper_marks` (indices of footnotes on our
               number and on the paper's).
    caption    what was measured, on how many prompts; how intervals and marks are made; where and
               when.
    notes      footnotes.
    findings   sentences on what the relaxed rules gain.
    names      label of a row -> how it is printed, where that is not the label itself.
    part       which of its metrics it holds, of a table in parts; empty for a whole one.
    reading    the short form: few columns, ± where an interval is symmetric, verdicts in one word.
    """

    spec: TableSpec
    stub: tuple[str, ...]
    headers: tuple[str, ...]
    frame: pd.DataFrame
    caption: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    part: str = ""
    reading: bool = False

    @property
    def columns(self) -> list[tuple[int, Column]]:
        """(head, column) of each column of numbers, from left to right."""
        numbers = zip(*(self.frame[name] for name in ("head", "place", "column")), strict=True)
        known: dict[tuple[int, int], Column] = {
            (head, place): column for head, place, column in numbers
        }
        return [(head, known[head, place]) for head, place in sorted(known)]

    @property
    def under(self) -> dict[int, list[Column]]:
        """Head -> its columns."""
        return {
            head: [column for _, column in of]
            for head, of in groupby(self.columns, key=lambda pair: pair[0])
        }

    @property
    def widest(self) -> int:
        """The most columns under a header."""
        return max(map(len, self.under.values()), default=0)


def lay_out(spec: TableSpec, grid: Grid) -> Table:
    """One table of a report, from the outcome of each of its cells."""
    return _Layout(spec, grid).table()


def lay_out_all(spec: TableSpec, grid: Grid) -> list[Table]:
    """The tables of a report, each in parts whose rows share no column. All but the first leave out
    what was measured in no cell."""
    summaries = [result.summary for result in grid.values() if result.summary is not None]
    first, *others = spec.tables()
    tables = [first]
    for other in others:
        measured = tuple(
            column
            for column in other.values
            if any(summary.value(column.metric.name) is not None for summary in summaries)
        )
        if measured:
            tables.append(other.model_copy(update={"values": measured}))
    return [block for table in tables for block in blocks(lay_out(table, grid))]


def blocks(table: Table) -> list[Table]:
    """The table in parts whose rows share no column; caption and findings are those of the last."""
    parts: list[tuple[set[int], set[int]]] = []  # rows, heads
    of_rows: dict[Any, set[int]] = table.frame.groupby("row")["head"].agg(set).to_dict()
    for row, heads in of_rows.items():
        joined = [part for part in parts if part[1] & heads]
        parts = [part for part in parts if part not in joined]
        rows = {row}.union(*(part[0] for part in joined))
        parts.append((rows, heads.union(*(part[1] for part in joined))))
    parts.sort(key=lambda part: min(part[0]))
    tables = [
        replace(table, frame=table.frame[table.frame["row"].isin(rows)], caption=(), findings=())
        for rows, _ in parts
    ]
    if not tables:
        return [table]
    return [*tables[:-1], replace(tables[-1], caption=table.caption, findings=table.findings)]


def figure_frame(spec: FigureSpec, grid: Grid) -> pd.DataFrame:
    """The lines of a figure: those of `cells_frame`; of traced positions one for each position,
    those outside the range of a view included, with the number of its view as `place`; of texts
    compared by models of meaning one for each comparison."""
    if isinstance(spec.figure, Traced):
        return _positions(spec, grid, spec.figure)
    if isinstance(spec.figure, Own) and spec.figure.meanings:
        comparisons = [
            {
                "report": spec.name,
                **spec.labels(coords),
                "value_name": measure,
                "series": series,
                "value": value,
            }
            for coords, result in grid.items()
            for measure, of_series in result.agreement.items()
            for series, values in of_series.items()
            for value in values
        ]
        return pd.DataFrame(comparisons or {"report": []})
    return cells_frame(spec, dict.fromkeys([*spec.figure.metrics(), *spec.figure.helpers()]), grid)


def cells_frame(spec: ReportSpec, names: Iterable[str], grid: Grid) -> pd.DataFrame:
    """A line for each point and each of these names, metrics or fields of a summary: report, the
    axes, value_name, value, its interval, n and the conditions of the measurement, state, why an
    LLM judge gave none; one for a point that was not measured, with the reason. Numbers are in the
    summary's units."""
    lines: list[Line] = []
    for point in spec.points():
        result = outcome(grid, point.coords)
        fixed = {"report": spec.name, **spec.labels(point.coords)}
        if (summary := result.summary) is None:
            lines.append({**fixed, "state": result.state, "reason": result.reason})
            continue
        around = {"n": summary.n, **columns_of(result.conditions, spec.axes), "state": result.state}
        for name in names:
            is_metric = name in METRICS
            value = summary.value(name) if is_metric else getattr(summary, name)
            low, high = (summary.interval(name) if is_metric else None) or (None, None)
            why = result.unjudged if value is None and name in JUDGED else ""
            lines.append(
                {
                    **fixed,
                    "value_name": name,
                    "value": value,
                    "ci_low": low,
                    "ci_high": high,
                    **around,
                    "unjudged": why,
                }
            )
    return pd.DataFrame(lines)


def _positions(spec: FigureSpec, grid: Grid, traced: Traced) -> pd.DataFrame:
    frames = []
    for point in spec.points():
        result = outcome(grid, point.coords)
        for place, view in enumerate(traced.views):
            if result.trace is not None and result.trace.exists():
                names = (view.x,) if view.y is None else (view.x, view.y)
                frame = quantities(result.trace, names, view.points == "tested")
                frames.append(
                    frame.assign(
                        report=spec.name,
                        view=view.title or view.x,
                        **spec.labels(point.coords),
                        place=place,
                    )
                )
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"report": []})


class _Layout:
    """Builds one table.

    spec        the report.
    grid        coordinates -> outcome.
    published   the paper's numbers; empty without a paper.
    doubts      what is wrong with a number of the paper, by its place.
    notes       footnotes so far.
    annotator   what a reader must know of single numbers.
    """

    def __init__(self, spec: TableSpec, grid: Grid):
        self.spec, self.grid = spec, grid
        self.published = by_place(load_published(spec.published.file)) if spec.published else {}
        self.doubts = by_place(doubts_of(spec.published.file)) if spec.published else {}
        self.notes: list[str] = []
        self.annotator = Annotator(spec, grid)
        self.stub = tuple(axis for axis in spec.rows if len(spec.axes[axis]) > 1) or spec.rows[-1:]

    def table(self) -> Table:
        spec = self.spec
        # labels of a row -> those of a header -> coordinates
        rows: dict[Coords, dict[Coords, Coords]] = {}
        heads: dict[Coords, None] = {}
        for point in spec.points():
            labels = spec.labels(point.coords)
            row = tuple(labels[axis] for axis in spec.rows)
            above = tuple(labels[axis] for axis in spec.columns)
            rows.setdefault(row, {})[above] = point.coords
            heads.setdefault(above, None)
        places = {axis: [entry.label for entry in spec.axes[axis]] for axis in spec.rows}
        in_order = sorted(
            rows,
            key=lambda row: [
                places[axis].index(label) for axis, label in zip(spec.rows, row, strict=True)
            ],
        )
        lines = [
            line for i, row in enumerate(in_order) for line in self._row(i, rows[row], list(heads))
        ]
        _mark_best(lines)
        headers = (*map(self._header, heads), *([spec.mean] if spec.mean else []))
        return Table(
            spec,
            self.stub,
            headers,
            pd.DataFrame(lines),
            caption(spec, self.grid, self.stub, lines),
            tuple(self.notes),
            tuple(self._findings()),
        )

    def _header(self, above: Coords) -> str:
        """The labels of the column axes; a bare number says what it is one of."""
        return " · ".join(
            f"{axis} {label}" if label.replace(".", "", 1).isdigit() else label
            for axis, label in zip(self.spec.columns, above, strict=True)
        )

    def _row(
        self, number: int, cells: Mapping[Coords, Coords], heads: Sequence[Coords]
    ) -> list[Line]:
        entries = self.spec.entries(next(iter(cells.values())))
        about = {
            "row": number,
            "stub": tuple(entries[axis].label for axis in self.stub),
            "baseline": any(entries[axis].baseline for axis in self.spec.rows),
        }
        lines = [
            about | {"head": head} | line
            for head, above in enumerate(heads)
            if above in cells
            for line in self._cell(cells[above])
        ]
        if self.spec.mean:
            means = self._means(self.spec.mean, next(iter(cells.values())), lines)
            lines += [about | {"head": len(heads)} | line for line in means]
        return lines

    def _cell(self, coords: Coords) -> list[Line]:
        """The lines of one cell."""
        result = outcome(self.grid, coords)
        labels, is_altered = self.spec.labels(coords), bool(self.spec.altered(coords))
        lines = [
            self._line(column, coords, labels, result)
            for column in self.spec.values
            if column.allows(labels) and (column.metric.name in OF_ALTERED or not is_altered)
        ]
        if result.summary is None:
            notes: tuple[int, ...] = (self._note(f"{result.state}: {result.reason}"),)
        else:
            for line in lines:
                self._measure(line, coords, result)
            shown = {line["column"].metric.name for line in lines}
            notes = tuple(
                self._note(text)
                for text in (*result.notes, *remarks(result.summary, "speedup" in shown))
            )
        return [self._noted(line, notes) for line in lines]

    def _line(
        self,
        column: Column,
        coords: Coords,
        labels: Mapping[str, str],
        result: Outcome | None,
        header: str = "",
    ) -> Line:
        """A number before it is measured: with that of the paper, where it has one. `header` names
        a column of the paper in place of the cell's own."""
        summary = None if result is None else result.summary
        key = place_in_paper(self.spec, coords, column.published_name or column.metric.name, header)
        return {
            "place": self.spec.values.index(column),
            "column": column,
            "items": (),
            "marks": (),
            "report": self.spec.name,
            **labels,
            "value_name": column.value_name,
            "value": None,
            "ci_low": None,
            "ci_high": None,
            "interval": None,
            "relative_half_width": None,
            "best": False,
            "verdict": "",
            "n": summary and summary.n,
            "failed_prompts": summary and summary.failed,
            **columns_of(result.conditions if result else None, labels),
            "state": result.state if result else "mean",
            "reason": result.reason if result else "",
            "notes": "",
            **self._paper(column, key),
        }

    def _paper(self, column: Column, key: Place) -> Line:
        paper = self.published.get(key)
        if paper is None:
            return {
                "published": None,
                "difference": None,
                "printed": "",
                "published_notes": "",
                "paper_marks": (),
            }
        scale, unit = column.published_scale, column.measure.shown(1.0)
        printed = paper.in_unit(scale * unit)
        ends = [
            self.published.get(key._replace(value_name=f"{key.value_name}_{end}"))
            for end in ("low", "high")
        ]
        if None not in ends:
            printed += (
                f" [{', '.join(end.in_unit(scale * unit) for end in ends if end is not None)}]"
            )
        doubts = self.doubts.get(key, ())
        return {
            "published": paper.value * scale,
            "difference": None,
            "printed": printed,
            "published_notes": "; ".join(doubts),
            "paper_marks": tuple(self._note(Note(text, DOUBTED)) for text in doubts),
        }

    def _measure(self, line: Line, coords: Coords, result: Outcome) -> None:
        """Give a line its value and interval, or say why it has none, with its verdict and what it
        is compared by."""
        column, summary = line["column"], result.summary
        assert summary is not None
        name, notes = column.metric.name, []
        if not column.reference:
            value, interval = summary.value(name), summary.interval(name)
            line["reason"] = result.unjudged if value is None and name in JUDGED else ""
            line["items"] = (summary.by_item(name),)
            if value is None and name in CLOCKED and not summary.timed:
                notes = [UNTIMED]
        else:
            labels = self.spec.labels(coords) | column.reference
            other = outcome(self.grid, tuple(labels[axis] for axis in self.spec.axes)).summary
            relation = "over" if column.over else "minus"
            theirs = {} if other is None else other.by_item(name)
            value, interval = relative(name, relation, summary.by_item(name), theirs)
            if value is None:
                notes = [
                    f"no {relation}: {' / '.join(column.reference.values())} was not measured on "
                    "the same prompts"
                ]
            line["items"] = ({},)  # rows may have different references
        made = column.measure.estimated_by(
            result.conditions is None or result.conditions.proportion
        ).words
        _put(line, value, interval, made)
        line["marks"] = tuple(self._note(text) for text in notes)
        if value is not None:
            line["verdict"] = self.annotator.verdict(column, summary)
            line["marks"] += tuple(
                self._note(text) for text in self.annotator.notes(column, result)
            )

    def _means(self, header: str, coords: Coords, cells: Sequence[Line]) -> list[Line]:
        """The means over the columns of a row, where every column has a value. `coords`: of any
        cell of the row."""
        labels = self.spec.labels(coords) | dict.fromkeys(self.spec.columns, header)
        lines = [self._line(column, coords, labels, None, header) for column in self.spec.values]
        for line in lines:
            parts = [part for part in cells if part["place"] == line["place"]]
            values = [part["value"] for part in parts if part["value"] is not None]
            if len(values) < len(parts):
                if values:
                    line["marks"] = (self._note("no mean: a column has no value"),)
                continue
            mean = sum(values) / len(values)
            ends = [
                None if part["ci_low"] is None else (part["ci_low"], part["ci_high"])
                for part in parts
            ]
            _put(
                line,
                mean,
                mean_interval(mean, ends, line["column"].measure.unit == "×"),
                INTERVAL_OF_MEAN,
            )
            line["items"] = tuple(items for part in parts for items in part["items"])
        return [self._noted(line) for line in lines]

    def _noted(self, line: Line, notes: tuple[int, ...] = ()) -> Line:
        """The line with these notes of its cell, too, and with the texts of all."""
        marks = (*notes, *line["marks"])
        return line | {"marks": marks, "notes": " | ".join(self.notes[mark] for mark in marks)}

    def _note(self, text: str) -> int:
        """The index of a footnote; cells with the same text share one."""
        if text not in self.notes:
            self.notes.append(text)
        return self.notes.index(text)

    def _findings(self) -> list[str]:
        """Sentences on what each rule gains, by groups of rows that share all labels but the last;
        none on baselines and on the rows that others are compared with, and none in a table that
        shows no gain."""
        shown = {column.metric.name for column in self.spec.values}
        if "equal_d_speed" not in shown:
            return []
        row, sentences, choice = self.spec.rows[-1], [], self.spec.choice
        compared = {choice.lossless, choice.lossless_greedy} if choice is not None else set()
        for labels, cells in rivals(self.spec, self.grid).items():
            points = [(self.spec.labels(coords)[row], cell) for coords, cell in cells.items()]
            rules = [(label, cell) for label, cell in points if label not in compared]
            group = f"{', '.join(labels)}: " if labels else ""
            sentences += [group + sentence for sentence in verdict.findings(rules)]
        return sentences


def _put(line: Line, value: float | None, interval: Interval | None, made: str) -> None:
    """Give a line its value and interval, and what follows from them. `made`: how the interval is
    made."""
    line["value"] = value
    line["ci_low"], line["ci_high"] = interval or (None, None)
    line["interval"] = made if interval else None
    line["relative_half_width"] = line["column"].half_width(value, interval)
    if value is not None and line["published"] is not None:
        line["difference"] = value - line["published"]


def _mark_best(lines: Sequence[Line]) -> None:
    """Mark the best numbers of each column within rows that share all labels but the last.
    Baselines neither compete nor win; a mark that most rows would bear says nothing."""
    columns: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        if not line["baseline"]:
            columns.setdefault((line["stub"][:-1], line["head"], line["place"]), []).append(line)
    for column in columns.values():
        metric, values = column[0]["column"].metric, [line["value"] for line in column]
        best = best_of(metric.name, values, [line["items"] for line in column], metric.better)
        if 2 * sum(best) <= sum(value is not None for value in values):
            for line, is_best in zip(column, best, strict=True):
                line["best"] = is_best


def mean_interval(mean: float, intervals: Sequence[Interval | None], log: bool) -> Interval | None:
    """95% interval of a mean over columns. They hold different prompts, so the variances of their
    values add; each standard error is read off its interval, with `log` on the logarithm. None if a
    column has no interval."""
    known = [interval for interval in intervals if interval is not None]
    if len(known) < len(intervals):
        return None
    if log:
        parts = [
            math.sqrt(low * high) * math.log(high / low) / (2 * NORMAL_95) for low, high in known
        ]
        factor = math.exp(
            NORMAL_95 * math.sqrt(sum(part**2 for part in parts)) / (len(parts) * mean)
        )
        return mean / factor, mean * factor
    errors = [(high - low) / (2 * NORMAL_95) for low, high in known]
    half = NORMAL_95 * math.sqrt(sum(error**2 for error in errors)) / len(errors)
    return mean - half, mean + half
