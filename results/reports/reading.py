"""The form of a table for people: short row names, few notes, and at most seven columns; a paper's table has all of the
paper's, a part for each metric. The full form has everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress

from results.reports.columns import Column
from results.reports.table import Cell, Note, Row, Table

MOST_COLUMNS = 7


def for_people(tables: Sequence[Table]) -> list[Table]:
    """The tables as people read them. Left-out columns are named at the end of the first line of a caption."""
    return [shown for whole in wholes(tables)
            for shown in with_few_notes(_with_short_names([part for table in whole for part in _narrow(table)]))]


def wholes(tables: Sequence[Table]) -> Iterator[list[Table]]:
    """The parts of each table together: its caption and notes are those of the last."""
    parts: list[Table] = []
    for table in tables:
        parts.append(table)
        if table.caption or table is tables[-1]:
            yield parts
            parts = []


def is_narrower(table: Table) -> bool:
    """Whether the form for people leaves out columns."""
    return not all(all(keep) for part in _parts(table) for keep in _kept(part))


def _narrow(table: Table) -> list[Table]:
    """The table in parts of few columns; caption and notes are those of the last."""
    parts = [_cut(part, _kept(part)) for part in _parts(table)]
    *others, last = (replace(part, reading=True, part=part.part or _metric_of(part)) for part in parts)
    caption = _told(table, [column.name for part in parts for under in part.columns for column in under],
                    {header for part in parts for header in part.headers})
    return [*(replace(part, caption=(), notes=(), findings=()) for part in others), replace(last, caption=caption)]


def _parts(table: Table) -> list[Table]:
    """A part for each metric, under all headers that have it, where the table is too wide and has several metrics under
    a header; metrics that share no header stand in one part."""
    width = len(table.stub) + sum(map(len, table.columns))
    if width <= MOST_COLUMNS or table.widest < 2 or table.spec.lines or not all(table.headers):
        return [table]
    places: dict[str, dict[int, int]] = {}  # name of a metric -> header -> place below it
    for i, under in enumerate(table.columns):
        for j, column in enumerate(under):
            places.setdefault(column.value_name, {})[i] = j
    if not table.spec.published and len(table.stub) + max(map(len, places.values())) > MOST_COLUMNS:
        return [table]
    joined: list[dict[int, int]] = []
    for at in places.values():
        free = next((other for other in joined if not other.keys() & at.keys()), None)
        joined.append(at) if free is None else free.update(at)
    return [_cut(table, [[at.get(i) == j for j in range(len(under))] for i, under in enumerate(table.columns)])
            for at in joined]


def _metric_of(table: Table) -> str:
    """The metrics that all headers have or, where they differ, `Accuracy (%): GSM8K; Judge: MT-bench`; empty where the
    columns say it."""
    if table.widest > 1 or not all(table.headers):
        return ""
    named: dict[str, list[str]] = {}
    for header, (column,) in zip(table.headers, table.columns, strict=True):
        named.setdefault(column.header, []).append(header)
    return next(iter(named)) if len(named) == 1 else "; ".join(f"{one}: {', '.join(of)}" for one, of in named.items())


def _cut(table: Table, kept: Sequence[Sequence[bool]]) -> Table:
    """The table with some of its columns, without rows that say nothing there."""
    rows = [replace(row, cells=tuple(replace(cell, numbers=tuple(compress(cell.numbers, keep)))
                                     for cell, keep in zip(row.cells, kept, strict=True) if any(keep)))
            for row in table.rows]
    return replace(
        table, headers=tuple(header for header, keep in zip(table.headers, kept, strict=True) if any(keep)),
        columns=tuple(tuple(compress(under, keep)) for under, keep in zip(table.columns, kept, strict=True)
                      if any(keep)),
        rows=tuple(row for row in rows if any(cell.state != "absent" and not number.absent
                                              for cell in row.cells for number in cell.numbers)))


def _kept(table: Table) -> list[list[bool]]:
    """Which columns are shown, for each header. A paper's table shows all, as does one in lines, each of whose columns
    holds several metrics."""
    if table.spec.lines or table.spec.published:
        return [[True] * len(under) for under in table.columns]
    room = max(1, MOST_COLUMNS - len(table.stub))
    each = max(1, room // len(table.columns))
    kept = [_first(under, table.spec.reading, each) for under in table.columns]
    return [keep if place < room else [False] * len(keep) for place, keep in enumerate(kept)]


def _first(under: Sequence[Column], wanted: Sequence[str], count: int) -> list[bool]:
    """The first so many of the columns that a report names, in its order; or else of all."""
    names = [column.value_name for column in under]
    chosen = [name for name in wanted if name in names] or names
    return [name in chosen[:count] for name in names]


def _told(table: Table, shown: Sequence[str], headers: set[str]) -> tuple[str, ...]:
    """The caption, with what is left out."""
    names = dict.fromkeys(column.name for under in table.columns for column in under)
    others = [name for name in (*table.headers, *names) if name and name not in headers and name not in shown]
    if not others or not table.caption:
        return table.caption
    first, *rest = table.caption
    return f"{first} The full table also has {', '.join(others)}.", *rest


def _with_short_names(parts: Sequence[Table]) -> list[Table]:
    """The parts of a table with short names of rows; their labels stand in the caption."""
    *_, last = parts
    short = {entry.label: entry.short for axis in last.spec.axes.values() for entry in axis if entry.short}
    shown = dict.fromkeys(label for part in parts for row in part.rows for label in row.labels if label in short)
    told = [f"Full names: {'; '.join(f'{short[label]} = {label}' for label in shown)}."] if shown else []
    return [replace(part, names=short, caption=(*part.caption, *told) if part is last else ()) for part in parts]


def with_few_notes(parts: Sequence[Table]) -> list[Table]:
    """The parts of a table with the notes that their cells refer to. Notes of one kind are one; what most cells share,
    and what names its rows, is a line of the caption."""
    *_, last = parts
    cells = [(row, cell) for part in parts for row in part.rows for cell in row.cells]
    used = [(row, _notes_of(cell)) for row, cell in cells]
    numbers = sorted({note for _, notes in used for note in notes})
    kinds = [note.together for number in numbers if isinstance(note := last.notes[number], Note)]
    said = {number: note.together if isinstance(note, Note) and note.together and kinds.count(note.together) > 1
            else str(note) for number in numbers for note in [last.notes[number]]}
    marked, below = [], []
    for text in dict.fromkeys(said.values()):
        own = {number for number, other in said.items() if other == text}
        short = {number: note.short for number in own if isinstance(note := last.notes[number], Note)}
        rows = {f"{last.names.get(row.labels[-1], row.labels[-1])}: {short[number]}": None for row, notes in used
                for number in sorted(notes & own) if len(own) > 1 and short.get(number)}
        shared = sum(bool(notes & own) for _, notes in used)
        if rows:
            below.append(f"{text}: {'; '.join(rows)}.")
        elif 2 * shared > sum(cell.state not in ("absent", "mean") for _, cell in cells) > 1:
            below.append(f"Of most cells: {text}.")
        else:
            marked.append(text)
    place = {number: marked.index(text) for number, text in said.items() if text in marked}
    held = [replace(part, rows=tuple(_renumbered(row, place) for row in part.rows)) for part in parts]
    return [*held[:-1], replace(held[-1], notes=tuple(marked), caption=(*last.caption, *below))]


def _notes_of(cell: Cell) -> set[int]:
    return {*cell.notes, *(note for number in cell.numbers for note in (*number.notes, *number.paper_notes))}


def _renumbered(row: Row, place: Mapping[int, int]) -> Row:
    """The row with the notes that have a place."""
    def moved(notes: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({place[note] for note in notes if note in place}))

    return replace(row, cells=tuple(replace(cell, notes=moved(cell.notes), numbers=tuple(
        replace(number, notes=moved(number.notes), paper_notes=moved(number.paper_notes)) for number in cell.numbers))
        for cell in row.cells))
