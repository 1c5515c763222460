"""Cells whose gain in τ is told apart, as a page opens with them: side by side where they answer the same prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from results.metrics.catalog import metric
from results.metrics.summary import Summary
from results.metrics.tau_gain import MATCHED, PARTS
from results.reports.axes import AS_GIVEN
from results.reports.columns import Column
from results.reports.further import first_table
from results.reports.grid import Grid, labels_of, outcome, panels
from results.reports.spec import Coords, ReportSpec, TableSpec
from results.reports.table import Number
from results.reports.viewer.groups import Group

COLUMNS = tuple(Column(metric=metric(name)) for name in (
    "tau_gain", "tau_gain_relaxed", "tau_gain_greedier", "accuracy"))
BESIDE = ("accuracy", "nll")
"""The measures of quality that stand beside the bars."""
OF_METHOD = {"method", "rule", "drafter", "draft", "pruning"}
"""What tells the rows of a split apart; cells that differ in anything else stand in another one."""


@dataclass(frozen=True, slots=True)
class Split:
    """Cells that answer the same prompts.

    title   what they have in common.
    cells   name -> metrics; those that gain most come first, and the lossless cell that they are compared with has no
            Δτ.
    """

    title: str
    cells: Mapping[str, Summary]

    @classmethod
    def of(cls, title: str, cells: Mapping[str, Summary]) -> Split | None:
        """The cells whose Δτ was to be told apart, those at temperature 0 thus left out, and the one that they are
        compared with; None where no Δτ is told apart."""
        gained = {name: cell for name, cell in cells.items()
                  if cell.tau_gain is not None and cell.tau_gain_match is not None}
        if not any(getattr(cell, part) is not None for cell in gained.values() for part in PARTS):
            return None
        lossless = {round((cell.tau or 0) - (cell.tau_gain or 0), 9) for cell in gained.values()}
        reference = [name for name, cell in cells.items()
                     if cell.tau_gain is None and cell.tau is not None and round(cell.tau, 9) in lossless]
        kept = gained | {name: cells[name] for name in reference[:1]}
        return cls(title, dict(sorted(kept.items(), key=lambda item: -(item[1].tau_gain or 0.0))))

    @property
    def beside(self) -> list[str]:
        """The measures of quality that any of the cells has."""
        return [name for name in BESIDE if any(cell.value(name) is not None for cell in self.cells.values())]

    def rows(self) -> Iterator[tuple[str, list[Number]]]:
        """The table for people: (name, a number for each of `COLUMNS`), 0 for what the others are compared with."""
        for name, cell in self.cells.items():
            compared = cell if cell.tau_gain is not None else cell.with_values(
                tau_gain=0.0, tau_gain_relaxed=0.0, tau_gain_greedier=0.0, tau_gain_match=MATCHED)
            yield name, [Number(column, compared.value(column.metric.name), compared.interval(column.metric.name))
                         for column in COLUMNS]


def splits_of_report(spec: ReportSpec, grid: Grid) -> list[Split]:
    """A split for each place of the axes that have no part in the method."""
    shown = first_table(spec) if isinstance(spec, TableSpec) else spec
    rows, named = _axes_of_method(shown)
    others = tuple(axis for axis in shown.axes if axis not in rows)
    found = []
    for title, at in panels(shown, others):
        cells = {}
        for labels in product(*(labels_of(shown.axes[axis]) for axis in rows)):
            place = at | dict(zip(rows, labels, strict=True))
            cell = outcome(grid, tuple(place[axis] for axis in shown.axes)).summary
            if cell is not None:
                cells[", ".join(place[axis] for axis in named)] = cell
        found.append(Split.of(title or shown.title, cells))
    return [split for split in found if split is not None]


def method_names(spec: ReportSpec) -> dict[Coords, str]:
    """Coordinates of each point -> what the report calls its method."""
    _, named = _axes_of_method(spec)
    return {point.coords: ", ".join(label for axis, label in spec.labels(point.coords).items()
                                    if axis in named and label != AS_GIVEN) for point in spec.points()}


def _axes_of_method(spec: ReportSpec) -> tuple[list[str], list[str]]:
    """The axes whose entries differ in the method; and of these the ones that name it."""
    rows = [axis for axis in spec.axes if _is_of_method(spec, axis)]
    return rows, [axis for axis in rows if len(rows) == 1 or len(labels_of(spec.axes[axis])) > 1]


def _is_of_method(spec: ReportSpec, axis: str) -> bool:
    """Whether the entries of an axis differ in the method."""
    return any(line.partition("=")[0].partition(".")[0] in OF_METHOD
               for entry in spec.axes[axis] for line in entry.overrides)


def splits_of_groups(groups: Sequence[Group]) -> list[Split]:
    """A split for each group of cells that has one."""
    found = [Split.of(f"{group.task}: {group.about}", {
        cell.method: cell.summary for cell in group.cells if cell.summary is not None and not cell.baseline})
        for group in groups]
    return [split for split in found if split is not None]
