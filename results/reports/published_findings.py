"""What is wrong with the numbers that papers print: findings of the checks, and notes of what only a reader sees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import date
from functools import cache

import yaml
from pydantic import Field, TypeAdapter

from results.reports.axes import Frozen
from results.reports.published import FOLDER, Key, load_published, published_files
from results.reports.published_across import lengths_and_speeds
from results.reports.published_checks import PaperTable, check, differences
from results.reports.published_patterns import patterns

Findings = dict[Key, list[str]]


class Place(Frozen):
    """Numbers of a file; a name that is left out stands for all."""

    pair: str | None = None
    row: str | None = None
    column: str | None = None
    value_name: str | None = None

    def holds(self, key: Key) -> bool:
        wanted = (self.pair, self.row, self.column, self.value_name)
        return all(want in (None, name) for want, name in zip(wanted, key, strict=True))


class Note(Frozen):
    """A claim that the paper's own numbers contradict.

    paper     the paper.
    where     section or page of the claim.
    printed   the claim, in the paper's words.
    follows   what the numbers say.
    computed  how that was computed.
    read      when the paper was read, YYYY-MM-DD.
    table     the file of the numbers; empty for a note that concerns no table.
    at        the numbers of it that the note marks.
    """

    paper: str
    where: str
    printed: str
    follows: str
    computed: str
    read: date
    table: str = ""
    at: tuple[Place, ...] = Field(default=())

    @property
    def text(self) -> str:
        return f"{self.paper}, {self.where}: “{self.printed}” {self.follows} ({self.computed}; read on {self.read})"


@cache
def paper_tables() -> dict[str, PaperTable]:
    """File name without its ending -> what it holds. Raises ValueError if results/published/tables.yaml does not name
    each file once."""
    raw = yaml.safe_load((FOLDER / "tables.yaml").read_text(encoding="utf-8"))
    tables = TypeAdapter(dict[str, PaperTable]).validate_python(raw)
    files = {file.removesuffix(".csv") for file in published_files()}
    if files != tables.keys():
        raise ValueError(f"{FOLDER / 'tables.yaml'}: must name each CSV file, and does not for "
                         f"{sorted(files ^ tables.keys())}")
    return tables


@cache
def notes() -> dict[str, Note]:
    """results/published/notes.yaml: name -> note."""
    raw = yaml.safe_load((FOLDER / "notes.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, Note]).validate_python(raw)


def findings_of(file: str) -> Findings:
    """Place -> what is wrong with the number there, for one file of results/published."""
    return all_findings()[file.removesuffix(".csv")]


@cache
def all_findings() -> Mapping[str, Findings]:
    """File name without its ending -> findings of the checks and notes, by place."""
    found: dict[str, Findings] = {name: defaultdict(list) for name in paper_tables()}
    for name, table in paper_tables().items():
        numbers = load_published(f"{name}.csv")
        for key, text in (*check(table, numbers), *patterns(table, numbers)):
            found[name][key].append(text)
    for name, key, text in lengths_and_speeds(paper_tables()):
        found[name][key].append(text)
    by_paper: dict[str, list[str]] = defaultdict(list)
    for name in paper_tables():
        by_paper[name.partition("_")[0]].append(name)
    names = {table.source: name for name, table in paper_tables().items()}
    for files in by_paper.values():
        for source, key, text in differences([(paper_tables()[name], load_published(f"{name}.csv")) for name in files]):
            found[names[source]][key].append(text)
    for note in notes().values():
        for key in load_published(f"{note.table}.csv") if note.table else ():
            if any(place.holds(key) for place in note.at):
                found[note.table][key].append(note.text)
    return found
