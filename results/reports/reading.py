"""The form of a table for people: at most seven columns and short row names. The full form has all of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from results.reports.arrange import stacked
from results.reports.columns import Column
from results.reports.table import Table

MOST_COLUMNS = 7
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def reading(table: Table) -> Table:
    """The table as people read it. Left-out columns are named at the end of the first line of its caption; a row
    with a short name has its label in a footnote."""
    table = _below_each_other(table)
    kept = _kept(table)
    narrow = replace(
        table, reading=True,
        headers=tuple(header for header, under in zip(table.headers, kept, strict=True) if any(under)),
        columns=tuple(tuple(compress(under, keep)) for under, keep in zip(table.columns, kept, strict=True)
                      if any(keep)),
        rows=tuple(replace(row, cells=tuple(
            replace(cell, numbers=tuple(compress(cell.numbers, keep)))
            for cell, keep in zip(row.cells, kept, strict=True) if any(keep))) for row in table.rows))
    narrow = _renumbered(narrow)
    names, notes = short_names(narrow)
    return replace(narrow, names=names, notes=(*narrow.notes, *notes), caption=_told(table, kept))


def is_narrower(table: Table) -> bool:
    """Whether the form for people leaves out columns."""
    return not all(all(keep) for keep in _kept(table))


def _below_each_other(table: Table) -> Table:
    """Headers with several columns each one below the other, where that shows all of them; else the table."""
    spec, under = table.spec, table.columns[0]
    width = len(table.stub) + len(spec.columns) + len(under)
    if (spec.mean or spec.lines or min(len(table.columns), len(under)) < 2 or any(one != under for one in table.columns)
            or width > MOST_COLUMNS or width >= len(table.stub) + len(table.columns) * len(under)
            or len(table.stub) + len(table.columns) * len(under) <= MOST_COLUMNS):
        return table
    cells = [next(cell for row in table.rows if (cell := row.cells[i]).labels) for i in range(len(table.columns))]
    return stacked(table, [tuple(cell.labels[axis] for axis in spec.columns) for cell in cells])


def _kept(table: Table) -> list[list[bool]]:
    """Which columns are shown, for each header. A table in lines shows all: each column holds several metrics."""
    if table.spec.lines:
        return [[True] * len(under) for under in table.columns]
    room = max(1, MOST_COLUMNS - len(table.stub))
    each = max(1, room // len(table.columns))
    kept = [_first(under, table.spec.reading, each) for under in table.columns]
    if len(kept) > room:  # those of a mean stand for the rest
        shown = range(room - 1) if table.spec.mean else range(room)
        last = {len(kept) - 1} if table.spec.mean else set()
        kept = [keep if place in last or place in shown else [False] * len(keep) for place, keep in enumerate(kept)]
    return kept


def _first(under: Sequence[Column], wanted: Sequence[str], count: int) -> list[bool]:
    """The first so many of the columns that a report names, in its order; or else of all."""
    names = [column.value_name for column in under]
    chosen = [name for name in wanted if name in names] or names
    return [name in chosen[:count] for name in names]


def _renumbered(table: Table) -> Table:
    """The table with the footnotes that its cells refer to; a part without footnotes of its own keeps its marks."""
    if not table.notes:
        return table
    cells = [cell for row in table.rows for cell in row.cells]
    used = {note for cell in cells for notes in (cell.notes, *((*number.notes, *number.paper_notes)
                                                               for number in cell.numbers)) for note in notes}
    place = {note: i for i, note in enumerate(sorted(used))}

    def moved(notes: Sequence[int]) -> tuple[int, ...]:
        return tuple(place[note] for note in notes)

    rows = tuple(replace(row, cells=tuple(replace(cell, notes=moved(cell.notes), numbers=tuple(
        replace(number, notes=moved(number.notes), paper_notes=moved(number.paper_notes)) for number in cell.numbers))
        for cell in row.cells)) for row in table.rows)
    return replace(table, rows=rows, notes=tuple(table.notes[note] for note in sorted(used)))


def _told(table: Table, kept: Sequence[Sequence[bool]]) -> tuple[str, ...]:
    """The caption, with what is left out."""
    left_out = dict.fromkeys(column.name for under, keep in zip(table.columns, kept, strict=True)
                             for column, is_kept in zip(under, keep, strict=True) if not is_kept)
    shown = {column.name for under, keep in zip(table.columns, kept, strict=True)
             for column in compress(under, keep)}
    headers = [header for header, keep in zip(table.headers, kept, strict=True) if header and not any(keep)]
    others = [name for name in (*headers, *left_out) if name not in shown]
    if not others or not table.caption:
        return table.caption
    first, *rest = table.caption
    return f"{first} The full table also has {', '.join(others)}.", *rest


def short_names(table: Table) -> tuple[dict[str, str], list[str]]:
    """Label of a row that has a short name -> that name, with the mark of a footnote; the footnotes: the labels."""
    if not table.caption:
        return {}, []  # a part of a table: its footnotes stand under the last one
    shown = dict.fromkeys(label for row in table.rows for label in row.labels)
    short = {entry.label: entry.short for axis in table.spec.axes.values() for entry in axis if entry.short}
    named = [label for label in shown if label in short]
    marks = (str(len(table.notes) + number).translate(SUPERSCRIPTS) for number in range(1, len(named) + 1))
    return {label: f"{short[label]}{mark}" for label, mark in zip(named, marks, strict=True)}, named
