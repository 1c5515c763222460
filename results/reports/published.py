"""The numbers that papers print, and what is wrong with them: the files of results/published.

One CSV file per table has the columns pair, row, column, value_name, value; `value` keeps the
printed digits. A sixth column, `bold`, is there where the paper's text shows what it prints bold.
doubts.csv has a line for each number that contradicts another printed one, kinds.yaml what follows
from each kind of these lines, notes.yaml the claims of the text that the numbers contradict. All
were checked against the papers' text; a test holds their digest."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import yaml

if TYPE_CHECKING:
    from results.reports.spec import Coords, FigureSpec, TableSpec

FOLDER = Path(__file__).parents[1] / "published"
COLUMNS = ["pair", "row", "column", "value_name", "value"]
DOUBTS = "doubts.csv"
Content = TypeVar("Content")


class Key(NamedTuple):
    """The place of a number in a paper's table."""

    pair: str
    row: str
    column: str
    value_name: str


class Place(NamedTuple):
    """The same, whichever of the labels head rows and whichever columns."""

    pair: str
    labels: frozenset[str]
    value_name: str


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as a paper prints it."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)

    @property
    def decimals(self) -> int:
        return len(self.text.partition(".")[2])

    def in_unit(self, factor: float) -> str:
        """The number times a power of ten, all digits kept: 0.934 in per cent is 93.4."""
        decimals = self.decimals - round(math.log10(factor))
        return f"{self.value * factor:.{max(decimals, 0)}f}"


Numbers = dict[Key, Printed]


@cache
def load_published(file: str) -> Numbers:
    """All numbers of one file by their place. Raises ValueError for a missing or malformed file."""
    path = FOLDER / file
    if not path.exists():
        raise ValueError(
            f"published.file={file}: no such file; there are {', '.join(published_files())}"
        )
    # not pandas, whose import a dry run should not wait for
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        rows, names = list(reader), set(reader.fieldnames or ())
    known = set(COLUMNS) <= names <= {*COLUMNS, "bold"}
    places = [tuple(row[name] for name in COLUMNS[:-1]) for row in rows] if known else []
    if (
        not known
        or not all(row[name] for row in rows for name in COLUMNS)
        or len(set(places)) < len(rows)
    ):
        raise ValueError(
            f"{path}: needs the columns {','.join(COLUMNS)} and perhaps bold, no gaps and no "
            "line twice"
        )
    return {Key(*place): Printed(row["value"]) for place, row in zip(places, rows, strict=True)}


def published_files() -> list[str]:
    """Names of the files with the numbers of a table, sorted."""
    return sorted(path.name for path in FOLDER.glob("*.csv") if path.name != DOUBTS)


@cache
def doubts_of(file: str) -> dict[Key, list[str]]:
    """Place -> what is wrong with the number there, in sentences, for one file: first doubts.csv,
    then notes.yaml."""
    table, notes_of = file.removesuffix(".csv"), defaultdict[Key, list[str]](list)
    with (FOLDER / DOUBTS).open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["table"] == table:
                notes_of[Key(*(row[name] for name in COLUMNS[:-1]))].append(row["note"])
    for note in notes().values():
        for key in load_published(file) if note.get("table") == table else ():
            if any(place.items() <= key._asdict().items() for place in note["at"]):
                notes_of[key].append(note_text(note))
    return dict(notes_of)


def by_place(by_key: Mapping[Key, Content]) -> dict[Place, Content]:
    """What is known of the numbers of a paper, by their places."""
    places = {}
    for key, content in by_key.items():
        labels = frozenset(f"{key.row} / {key.column}".split(" / ")) - {""}
        places[Place(key.pair, labels, key.value_name)] = content
    return places


def place_in_paper(spec: TableSpec, coords: Coords, value_name: str, header: str = "") -> Place:
    """The place of a number in the paper's table. `header` names a column of the paper in place of
    the cell's own."""
    names = {axis: entry.published_label for axis, entry in spec.entries(coords).items()}
    pair = spec.published.pair if spec.published else ""
    labels = [
        names[axis] for axis in (*spec.rows, *(() if header else spec.columns)) if axis != pair
    ]
    return Place(
        names.get(pair, ""),
        frozenset(" / ".join([*labels, header]).split(" / ")) - {""},
        value_name,
    )


def published_value(spec: TableSpec | FigureSpec, coords: Coords, value_name: str) -> float | None:
    """A number of the paper at this cell, as it is printed; None where the paper has none."""
    if spec.kind != "table" or spec.published is None:
        return None
    printed = by_place(load_published(spec.published.file)).get(
        place_in_paper(spec, coords, value_name)
    )
    return None if printed is None else printed.value


@cache
def notes() -> dict[str, dict[str, Any]]:
    """results/published/notes.yaml, which says what each key holds: name -> note."""
    text = (FOLDER / "notes.yaml").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return loaded


def note_text(note: Mapping[str, Any]) -> str:
    """The note as a footnote."""
    return "{paper}, {where}: “{printed}” {follows} ({computed}; read on {read})".format(**note)
