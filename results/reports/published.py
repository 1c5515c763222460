"""The numbers that papers print: results/published/*.csv with the columns pair, row, column, value_name, value.

`value` keeps the printed digits. A sixth column, `bold`, is there where the paper's text shows what it prints bold."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "published"
COLUMNS = ["pair", "row", "column", "value_name", "value"]


class Key(NamedTuple):
    """The place of a number in a paper's table."""

    pair: str
    row: str
    column: str
    value_name: str


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as a paper prints it: its digits, and whether it is bold."""

    text: str
    bold: bool = False

    @property
    def value(self) -> float:
        return float(self.text)

    @property
    def decimals(self) -> int:
        return len(self.text.partition(".")[2])

    @property
    def step(self) -> float:
        """One unit of the last digit."""
        return 10.0**-self.decimals

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest number that rounds to this one."""
        return self.value - self.step / 2, self.value + self.step / 2

    def differs(self, other: Printed) -> bool:
        """Whether one number cannot be printed in both ways."""
        if self.decimals == other.decimals:
            return self.value != other.value
        return max(self.ends[0], other.ends[0]) > min(self.ends[1], other.ends[1]) + 1e-9

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
        raise ValueError(f"published.file={file}: no such file; there are {', '.join(published_files())}")
    with path.open(encoding="utf-8", newline="") as lines:  # not pandas, whose import a dry run should not wait for
        reader = csv.DictReader(lines)
        rows, names = list(reader), set(reader.fieldnames or ())
    known = set(COLUMNS) <= names <= {*COLUMNS, "bold"}
    places = [tuple(row[name] for name in COLUMNS[:-1]) for row in rows] if known else []
    if not known or not all(row[name] for row in rows for name in COLUMNS) or len(set(places)) < len(rows):
        raise ValueError(f"{path}: needs the columns {','.join(COLUMNS)} and perhaps bold, no gaps and no line twice")
    return {Key(*place): Printed(row["value"], row.get("bold") == "bold")
            for place, row in zip(places, rows, strict=True)}


def published_files() -> list[str]:
    """Names of the files, sorted."""
    return sorted(path.name for path in FOLDER.glob("*.csv"))
