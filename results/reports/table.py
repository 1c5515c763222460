"""A table as data: rows of cells, each cell with its numbers as they are printed. The formats differ only in markup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from results.metrics.intervals import Interval
from results.metrics.metric import ByItem
from results.reports.columns import Column
from results.reports.spec import Coords, TableSpec


class Note(str):
    """A footnote; `together`: what several of its kind say in one, empty where each stands for itself; `short`: what it
    says of its row behind that."""

    together: str
    short: str

    def __new__(cls, text: str, together: str = "", short: str = "") -> Note:
        note = super().__new__(cls, text)
        note.together, note.short = together, short
        return note


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a cell, in the summary's unit.

    column        what it measures and how it is printed.
    value         None if it was not measured.
    interval      its 95% interval, if it has one.
    published     the paper's number, if there is one.
    printed       the paper's number as the paper prints it, in the unit of this column.
    best          printed in bold.
    notes         indices into the table's notes.
    paper_notes   indices of the notes on the paper's number.
    items         what rows are compared by: the sums of each prompt, a mapping for each column that a mean is over.
    verdict       in words, whether a score is worse than the baseline's; empty for other metrics.
    reason        why there is no value, printed in its place.
    absent        nothing stands here: the column does not concern this row.
    """

    column: Column
    value: float | None = None
    interval: Interval | None = None
    published: float | None = None
    printed: str = ""
    best: bool = False
    notes: tuple[int, ...] = ()
    paper_notes: tuple[int, ...] = ()
    items: tuple[ByItem, ...] = ()
    verdict: str = ""
    reason: str = ""
    absent: bool = False

    @property
    def text(self) -> str:
        """`2.10`; the reason or a dash if it was not measured."""
        return self.reason or "–" if self.value is None else self._format(self.value)

    @property
    def interval_text(self) -> str:
        """`[2.01, 2.19]`; empty without an interval, and for one of no width: such a value is fixed by definition."""
        if self.interval is None or self.interval[0] == self.interval[1]:
            return ""
        return f"[{', '.join(self._format(end) for end in self.interval)}]"

    @property
    def short_interval_text(self) -> str:
        """`± 0.09` where both arms are printed alike, or are within a tenth of each other; else as `interval_text`."""
        if not self.interval_text or self.interval is None or self.value is None:
            return ""
        value, *ends = (self.column.measure.shown(each) for each in (self.value, *self.interval))
        below, above = sorted(round(abs(value - end), self.column.decimals) for end in ends)
        alike = above - below <= max(0.1 * above, 1.01 * 10.0**-self.column.decimals)
        return f"± {above:.{self.column.decimals}f}" if alike else self.interval_text

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval over the value; None without an interval, at 0, and for a metric that may be
        negative, near whose 0 the ratio says nothing."""
        if self.interval is None or not self.value or self.column.measure.signed:
            return None
        return (self.interval[1] - self.interval[0]) / 2 / abs(self.value)

    @property
    def difference(self) -> float | None:
        """Our value minus the published one."""
        return None if self.value is None or self.published is None else self.value - self.published

    @property
    def published_text(self) -> str:
        """`paper 3.75 (−1.65)`; empty without a published number."""
        if self.published is None:
            return ""
        paper = f"paper {self.printed or replace(self, value=self.published).text}"
        return paper if self.difference is None else f"{paper} ({self._format(self.difference, signed=True)})"

    def _format(self, value: float, signed: bool = False) -> str:
        sign = "+" if signed or self.column.measure.signed else ""
        shown = round(self.column.measure.shown(value), self.column.decimals) + 0.0  # −0.0 + 0.0 is 0.0
        return f"{shown:{sign}.{self.column.decimals}f}".replace("-", "−")


@dataclass(frozen=True, slots=True)
class Cell:
    """All numbers at one place of the table.

    state            "mean" in the computed column, "absent" where the report asks for no cell.
    labels           axis name -> label.
    numbers          one per column under the header.
    n                prompts measured.
    failed_prompts   prompts that failed and are left out.
    reason           why there are no numbers, for a failed or a missing cell.
    notes            indices into the table's notes.
    """

    state: Literal["measured", "failed", "missing", "mean", "absent"]
    labels: Mapping[str, str]
    numbers: tuple[Number, ...]
    n: int | None = None
    failed_prompts: int | None = None
    reason: str = ""
    notes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its labels, one per stub axis; whether it is a reference that is never best; its cells."""

    labels: Coords
    baseline: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is laid out.

    spec       the report it belongs to.
    stub       the axes that label the rows; the label of a row axis with one entry is in the caption instead.
    headers    column headers; labels are joined if several axes lie in the columns.
    columns    the numbers under each header, in the order of the headers.
    rows       from top to bottom.
    caption    three lines: what was measured, on how many prompts; how intervals and marks are made; where and when.
    notes      footnotes of cells.
    findings   sentences on what the relaxed rules gain.
    names      label of a row -> how it is printed, where that is not the label itself.
    part       which of its metrics it holds, of a table in parts; empty for a whole one.
    reading    the form for people: few columns, ± where an interval is symmetric, verdicts in one word.
    """

    spec: TableSpec
    stub: tuple[str, ...]
    headers: tuple[str, ...]
    columns: tuple[tuple[Column, ...], ...]
    rows: tuple[Row, ...]
    caption: tuple[str, ...]
    notes: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    reading: bool = False
    part: str = ""

    @property
    def widest(self) -> int:
        """The most columns under a header."""
        return max(map(len, self.columns))

    @property
    def groups(self) -> list[tuple[Coords, list[Row]]]:
        """Consecutive rows that share all labels but the last."""
        return groups_of(self.rows)


def groups_of(rows: tuple[Row, ...]) -> list[tuple[Coords, list[Row]]]:
    """(shared labels, rows) of consecutive rows that share all labels but the last."""
    return [(labels, list(group)) for labels, group in groupby(rows, key=lambda row: row.labels[:-1])]
