"""Rearrange a table that is laid out: rows as several lines, headers one below the other, parts of their own; mark its
best numbers, only where a paired comparison with the others supports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from results.metrics.paired import best_of
from results.reports.spec import Coords
from results.reports.table import Number, Row, Table, groups_of


def in_lines(table: Table) -> Table:
    """The table with each row as the lines of its report."""
    lines = {label: set(names) for label, names in table.spec.lines.items()}
    first = next(iter(lines.values()))
    rows = [Row((*row.labels, label), row.baseline, tuple(
                replace(cell, numbers=tuple(number for number in cell.numbers if number.column.metric.name in names))
                for cell in row.cells))
            for row in table.rows for label, names in lines.items()]
    columns = tuple(tuple(one for one in under if one.metric.name in first) for under in table.columns)
    return replace(table, stub=(*table.stub, ""), columns=columns, rows=tuple(rows))


def stacked(table: Table, columns: Sequence[Coords]) -> Table:
    """The table with all of its rows under each header, header by header; `columns`: the labels of each header."""
    rows = tuple(replace(row, labels=(*labels, *row.labels), cells=(row.cells[i],))
                 for i, labels in enumerate(columns) for row in table.rows if row.cells[i].state != "absent")
    return replace(table, stub=(*table.spec.columns, *table.stub), headers=("",), columns=table.columns[:1], rows=rows)


def blocks(table: Table) -> list[Table]:
    """The table in parts whose rows share no column, if there are several, each without the metrics that none of its
    rows shows; caption and footnotes are those of the last."""
    parts: list[tuple[set[int], set[int]]] = []  # rows, columns
    for number, row in enumerate(table.rows):
        taken = {place for place, cell in enumerate(row.cells) if cell.state != "absent"}
        joined = [part for part in parts if part[1] & taken]
        parts = [part for part in parts if part not in joined]
        parts.append(({number}.union(*(rows for rows, _ in joined)), taken.union(*(places for _, places in joined))))
    if len(parts) < 2:
        return [table]
    tables = [replace(
        table, caption=(), notes=(), findings=(),
        headers=tuple(table.headers[place] for place in sorted(places)),
        columns=tuple(table.columns[place] for place in sorted(places)),
        rows=tuple(replace(table.rows[number], cells=tuple(table.rows[number].cells[place] for place in sorted(places)))
                   for number in sorted(rows))) for rows, places in sorted(parts, key=lambda part: min(part[0]))]
    tables = [without_empty(part) for part in tables]
    tables[-1] = replace(tables[-1], caption=table.caption, notes=table.notes, findings=table.findings)
    return tables


def without_empty(table: Table) -> Table:
    """The table without the metrics that stand in no row."""
    shown = [[any(row.cells[i].state != "absent" and not row.cells[i].numbers[j].absent for row in table.rows)
              for j in range(len(under))] for i, under in enumerate(table.columns)]
    columns = tuple(tuple(compress(under, kept)) for under, kept in zip(table.columns, shown, strict=True))
    rows = tuple(replace(row, cells=tuple(replace(cell, numbers=tuple(compress(cell.numbers, kept)))
                                          for cell, kept in zip(row.cells, shown, strict=True))) for row in table.rows)
    return replace(table, columns=columns, rows=rows)


def mark_best(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Mark the best numbers of each column within a group of rows. Baselines neither compete nor win."""
    marked: list[Row] = []
    for _, group in groups_of(rows):
        rivals = [row for row in group if not row.baseline]
        best = iter(_with_best(rivals))
        marked += [row if row.baseline else next(best) for row in group]
    return tuple(marked)


def _with_best(rivals: Sequence[Row]) -> list[Row]:
    if not rivals:
        return []
    columns = [[_marked([row.cells[c].numbers[i] for row in rivals]) for i in range(len(cell.numbers))]
               for c, cell in enumerate(rivals[0].cells)]
    return [replace(row, cells=tuple(replace(cell, numbers=tuple(column[r] for column in columns[c]))
                                     for c, cell in enumerate(row.cells)))
            for r, row in enumerate(rivals)]


def _marked(column: Sequence[Number]) -> list[Number]:
    metric = column[0].column.metric
    best = best_of(metric.name, [number.value for number in column], [number.items for number in column], metric.better)
    if 2 * sum(best) > sum(number.value is not None for number in column) > 1:
        best = [False] * len(column)  # a mark that most rows bear says nothing
    return [replace(number, best=is_best) for number, is_best in zip(column, best, strict=True)]
