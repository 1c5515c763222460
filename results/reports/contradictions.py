"""What the papers' numbers and texts say against each other, in words (`report=contradictions`)."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from results.reports.published import COLUMNS, DOUBTS, FOLDER, Key, load_published, notes

PAPERS = {"mars": "MARS", "fsd": "FSD", "dropmatch": "DropMatch", "arc": "ARC-Decode"}
"""What a table's name begins with -> the paper."""
MOST_PLACES = 4
"""Printed numbers that are named of one kind."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Where a paper says it, what it prints, the arithmetic, and what follows."""

    paper: str
    where: str
    printed: str
    computed: str
    follows: str

    def text(self, number: int) -> str:
        """For people, one line for each part."""
        parts = ("printed", "computed", "follows")
        lines = [f"{number}. {self.paper}, {self.where}"]
        return "\n".join([*lines, *(f"   {part}: {getattr(self, part)}" for part in parts)])


def contradictions() -> list[Contradiction]:
    """All that are known: the numbers of doubts.csv, those of a table and kind together, then the
    claims of notes.yaml; by paper."""
    order = list(PAPERS.values())
    known = [*_of_numbers(), *_of_texts()]
    return sorted(known, key=lambda each: order.index(each.paper))


def _of_texts() -> Iterator[Contradiction]:
    for note in notes().values():
        yield Contradiction(
            *(note[part] for part in ("paper", "where", "printed", "computed", "follows"))
        )


def _of_numbers() -> Iterator[Contradiction]:
    kinds = yaml.safe_load((FOLDER / "kinds.yaml").read_text(encoding="utf-8"))
    groups: dict[tuple[str, str], dict[str, list[Key]]] = {}
    with (FOLDER / DOUBTS).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            key = Key(*(row[name] for name in COLUMNS[:-1]))
            of_note = groups.setdefault((row["table"], kind_of(row["note"], kinds)), {})
            of_note.setdefault(row["note"], []).append(key)
    for (table, kind), of_note in groups.items():
        paper, _, name = table.partition("_")
        places = [key for keys in of_note.values() for key in keys]
        values = load_published(f"{table}.csv")
        named = "; ".join(f"{place(key)} {values[key].text}" for key in places[:MOST_PLACES])
        more = f"; and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        computed = "; ".join(list(of_note)[:MOST_PLACES])
        yield Contradiction(
            PAPERS[paper], name.replace("table", "Table "), named + more, computed, kinds[kind]
        )


def kind_of(note: str, kinds: dict[str, str]) -> str:
    """The one kind of a line of doubts.csv. Raises ValueError where none or several fit."""
    fitting = [kind for kind in kinds if re.search(kind, note)]
    if len(fitting) != 1:
        raise ValueError(f"{note}: fits {len(fitting)} kinds of results/published/kinds.yaml")
    return fitting[0]


def place(key: Key) -> str:
    """The place of a number in its table, in words."""
    return ", ".join(filter(None, (key.pair, key.row, key.column, key.value_name)))


def summary(known: list[Contradiction]) -> str:
    """How many there are of each paper."""
    counts = Counter(each.paper for each in known)
    parts = ", ".join(f"{paper} {number}" for paper, number in counts.items())
    return (
        f"{len(known)} contradictions: {parts}; footnotes of the papers' tables mark their numbers"
    )
