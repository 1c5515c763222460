"""The form of a table for people: short row names, few notes, and at most seven columns; a paper's
table has all of the paper's, a part for each metric. The full form has everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import pandas as pd

from results.reports.annotations import Note
from results.reports.frame import Table

MOST_COLUMNS = 7
Places = set[tuple[int, int]]
"""(head, place) of columns."""


def for_people(tables: Sequence[Table]) -> list[Table]:
    """The tables as people read them. Left-out columns are named at the end of the first line of a
    caption."""
    return [
        shown
        for whole in wholes(tables)
        for shown in with_few_notes(
            _with_short_names([part for table in whole for part in _narrow(table)])
        )
    ]


def wholes(tables: Sequence[Table]) -> Iterator[list[Table]]:
    """The parts of each table together: its caption is that of the last."""
    parts: list[Table] = []
    for table in tables:
        parts.append(table)
        if table.caption or table is tables[-1]:
            yield parts
            parts = []


def is_narrower(table: Table) -> bool:
    """Whether the short form leaves out columns."""
    return sum(len(_kept(part)) for part in _parts(table)) < len(table.columns)


def _narrow(table: Table) -> list[Table]:
    """The table in parts of few columns; caption and findings are those of the last."""
    parts = [_cut(part, _kept(part)) for part in _parts(table)]
    shown = {column.name for part in parts for _, column in part.columns}
    shown |= {part.headers[head] for part in parts for head in part.under}
    parts = [
        replace(part, reading=True, part=_metric_of(part), caption=(), findings=())
        for part in parts
    ]
    return [*parts[:-1], replace(parts[-1], caption=_told(table, shown), findings=table.findings)]


def _parts(table: Table) -> list[Table]:
    """A part for each metric, under all headers that have it, where the table is too wide and has
    several metrics under several headers; metrics that share no header stand in one part."""
    places: dict[str, Places] = {}  # name of a metric -> where it stands
    for head, column in table.columns:
        places.setdefault(column.value_name, set()).add((head, table.spec.values.index(column)))
    headed = len(table.under) > 1 and all(table.headers[head] for head in table.under)
    if len(table.stub) + len(table.columns) <= MOST_COLUMNS or table.widest < 2 or not headed:
        return [table]
    if not table.spec.published and len(table.stub) + max(map(len, places.values())) > MOST_COLUMNS:
        return [table]
    joined: list[Places] = []
    for at in places.values():
        heads = {head for head, _ in at}
        free = [other for other in joined if heads.isdisjoint(head for head, _ in other)]
        if free:
            free[0].update(at)
        else:
            joined.append(set(at))
    return [_cut(table, at) for at in joined]


def _metric_of(table: Table) -> str:
    """The metrics that all headers have or, where they differ, `Accuracy (%): GSM8K; Judge:
    MT-bench`; empty where the columns say it."""
    if table.widest > 1 or not all(table.headers[head] for head in table.under):
        return ""
    named: dict[str, list[str]] = {}
    for head, column in table.columns:
        named.setdefault(column.header, []).append(table.headers[head])
    if len(named) == 1:
        return next(iter(named))
    return "; ".join(f"{metric}: {', '.join(headers)}" for metric, headers in named.items())


def _cut(table: Table, kept: Places) -> Table:
    """The table with these columns."""
    frame = table.frame
    return replace(
        table, frame=frame[[at in kept for at in zip(frame["head"], frame["place"], strict=True)]]
    )


def _kept(table: Table) -> Places:
    """Which columns are shown: under each header the first so many of those that the report names,
    in its order, or else of all. A paper's table shows all."""
    room = max(1, MOST_COLUMNS - len(table.stub))
    each = (
        len(table.spec.values) if table.spec.published else max(1, room // max(1, len(table.under)))
    )
    kept: Places = set()
    for head, under in table.under.items():
        names = [column.value_name for column in under]
        shown = ([name for name in table.spec.reading if name in names] or names)[:each]
        kept |= {
            (head, table.spec.values.index(column))
            for column in under
            if column.value_name in shown
        }
    heads = list(table.under) if table.spec.published else list(table.under)[:room]
    return {(head, place) for head, place in kept if head in heads}


def _told(table: Table, shown: set[str]) -> tuple[str, ...]:
    """The caption, with what is left out."""
    names = dict.fromkeys(table.headers[head] for head in table.under) | dict.fromkeys(
        column.name for _, column in table.columns
    )
    others = [name for name in names if name and name not in shown]
    if not others or not table.caption:
        return table.caption
    first, *rest = table.caption
    return f"{first} The full table also has {', '.join(others)}.", *rest


def _with_short_names(parts: Sequence[Table]) -> list[Table]:
    """The parts of a table with short names of rows; their labels stand in the caption."""
    *_, last = parts
    short = {
        entry.label: entry.short
        for axis in last.spec.axes.values()
        for entry in axis
        if entry.short
    }
    shown = dict.fromkeys(
        label for part in parts for stub in part.frame["stub"] for label in stub if label in short
    )
    told = (
        [f"Full names: {'; '.join(f'{short[label]} = {label}' for label in shown)}."]
        if shown
        else []
    )
    return [
        replace(part, names=short, caption=(*part.caption, *told) if part is last else ())
        for part in parts
    ]


def with_few_notes(parts: Sequence[Table], marked_all: bool = False) -> list[Table]:
    """The parts of a table with the notes that their cells refer to. Notes of one kind are one;
    what names its rows, and what most cells share, is a line of the caption, the latter unless
    `marked_all`: then a mark stands at each."""
    *_, last = parts
    used = _notes_of_cells(parts)
    numbers = sorted({note for _, notes, _ in used for note in notes})
    kinds: dict[int, Note] = {}
    for number in numbers:
        note = last.notes[number]
        if isinstance(note, Note):
            kinds[number] = note
    times = Counter(note.together for note in kinds.values() if note.together)
    said = {number: str(last.notes[number]) for number in numbers}
    for number, kind in kinds.items():
        if times[kind.together] > 1:
            said[number] = kind.together
    marked, below = [], []
    for text in dict.fromkeys(said.values()):
        alike = {number for number, other in said.items() if other == text}
        short = {number: kinds[number].short for number in alike & kinds.keys()}
        rows = {
            f"{label}: {short[number]}": None
            for label, notes, _ in used
            for number in sorted(notes & alike)
            if len(alike) > 1 and short.get(number)
        }
        shared = sum(bool(notes & alike) for _, notes, _ in used)
        if rows:
            below.append(f"{text}: {'; '.join(rows)}.")
        elif not marked_all and 2 * shared > sum(measured for *_, measured in used) > 1:
            below.append(f"Of most cells: {text}.")
        else:
            marked.append(text)
    place = {number: marked.index(text) for number, text in said.items() if text in marked}
    renumbered = [replace(part, frame=_renumbered(part.frame, place), notes=()) for part in parts]
    last = replace(renumbered[-1], notes=tuple(marked), caption=(*last.caption, *below))
    return [*renumbered[:-1], last]


def _notes_of_cells(parts: Sequence[Table]) -> list[tuple[str, set[int], bool]]:
    """Of each cell the printed label of its row, its notes, and whether it is one of the report's
    and no mean."""
    return [
        (
            part.names.get(label, label),
            set(chain(*lines["marks"], *lines["paper_marks"])),
            state != "mean",
        )
        for part in parts
        for _, lines in part.frame.groupby(["row", "head"])
        for label, state in [(lines["stub"].iloc[0][-1], lines["state"].iloc[0])]
    ]


def _renumbered(frame: pd.DataFrame, place: Mapping[int, int]) -> pd.DataFrame:
    """The frame with the notes that have a place."""

    def moved(marks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({place[mark] for mark in marks if mark in place}))

    return frame.assign(
        marks=frame["marks"].map(moved), paper_marks=frame["paper_marks"].map(moved)
    )
