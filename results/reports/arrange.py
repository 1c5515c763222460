"""Rearrange a table that is laid out: rows as several lines, headers one below the other, parts of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from results.reports.spec import Coords
from results.reports.table import Row, Table


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
