"""A report as data: which cells it needs and how they are laid out. It knows no paper; conf/report/*.yaml say all.

A report spans named `axes`; every entry of an axis adds overrides to the experiment point. The points are the product
of the axes. A table puts some axes in its rows and the others in its columns; a figure gives each axis a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from results.metrics.catalog import Metric, metric
from results.reports.axes import Axis, Entry, Frozen
from results.reports.figures import Figure

Coords = tuple[str, ...]
"""The labels of a point, one an axis, in the order of the report's axes."""


class Value(Frozen):
    """One number of a table's cell; in a report also written as the metric's bare name.

    `published_name` is its name in the published file, `published_scale` brings that number to the summary's unit."""

    metric: str
    label: str = ""
    digits: int | None = Field(default=None, ge=0)
    published_name: str = ""
    published_scale: float = 1.0

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, given: Any) -> Any:
        return {"metric": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _known(self) -> Self:
        metric(self.metric)
        return self

    @property
    def of(self) -> Metric:
        return metric(self.metric)

    @property
    def name(self) -> str:
        return self.label or self.of.label

    @property
    def decimals(self) -> int:
        return self.of.digits if self.digits is None else self.digits


class Published(Frozen):
    """Numbers of a paper: a file in results/published, and the axis whose entries are the paper's model pairs."""

    file: str
    pair: str


@dataclass(frozen=True, slots=True)
class Point:
    """One cell that the report needs: where it stands, and the overrides that compose it."""

    coords: Coords
    overrides: tuple[str, ...]


class ReportSpec(Frozen):
    """A named table or figure. `base` overrides hold for all points; `mean` names a computed last column; a report
    `on_request` is no part of report=all. `trace`: each point is traced; `audit`: and ARC-Decode's bounds are checked
    on the trace. `repeats`: how often each point is measured, with other random streams; the first is shown, with what
    the others say of it."""

    name: str
    title: str
    kind: Literal["table", "figure"]
    about: str = ""
    base: tuple[str, ...] = ()
    axes: dict[str, Axis] = Field(min_length=1)
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    mean: str | None = None
    values: tuple[Value, ...] = ()
    published: Published | None = None
    figure: Figure | None = None
    on_request: bool = False
    trace: bool = False
    audit: bool = False
    repeats: int = Field(default=1, ge=1)

    @field_validator("axes")
    @classmethod
    def _distinct_labels(cls, axes: dict[str, Axis]) -> dict[str, Axis]:
        for name, entries in axes.items():
            if any(one.label == other.label and not one.apart_from(other) for one, other in combinations(entries, 2)):
                raise ValueError(f"axis {name!r} has entries of one label: give each its own")
            for axis, wanted in ((axis, wanted) for entry in entries for axis, wanted in entry.only.items()):
                known = {entry.label for entry in axes.get(axis, ())}
                if not set(wanted) <= known:
                    there = sorted(known) or "no such axis"
                    raise ValueError(f"axis {name!r}: 'only' names {axis} {wanted}, but there is {there}")
        return axes

    @model_validator(mode="after")
    def _laid_out(self) -> Self:
        used = self._table_axes() if self.kind == "table" else self._figure_axes()
        if sorted(used) != sorted(self.axes):
            has = sorted(self.axes)
            raise ValueError(f"the layout uses the axes {sorted(used)}, the report has {has}: use each once")
        if self.published and self.published.pair not in self.rows:
            raise ValueError(f"published.pair={self.published.pair!r} must be one of the rows' axes {self.rows}")
        return self

    def _table_axes(self) -> list[str]:
        if not (self.rows and self.columns and self.values):
            raise ValueError("a table needs 'rows', 'columns' and 'values'")
        return [*self.rows, *self.columns]

    def _figure_axes(self) -> list[str]:
        if self.figure is None:
            raise ValueError("a figure needs 'figure: {kind: sweep | pareto | bars | histogram, ...}'")
        self.figure.check(self.axes)
        return self.figure.used()

    def edition(self, pair: str | None) -> ReportSpec:
        """The report on one pair: the embedded edition, or where an entry of scale "paper" chooses this pair (with the
        override pair=NAME), that entry's, under a name of its own."""
        choice = f"pair={pair}"
        on_paper = any(entry.scale == "paper" and choice in entry.overrides
                       for axis in self.axes.values() for entry in axis)
        axes = {}
        for name, axis in self.axes.items():
            kept = tuple(e for e in axis if e.scale in (None, "paper" if on_paper else "embedded"))
            if on_paper and any(choice in entry.overrides for entry in kept):
                kept = tuple(entry for entry in kept if choice in entry.overrides)
            axes[name] = kept or axis
        labels = {name: {entry.label for entry in axis} for name, axis in axes.items()}
        axes = {name: tuple(entry for entry in axis if all(labels[other] & set(wanted)
                                                           for other, wanted in entry.only.items()))
                for name, axis in axes.items()}
        axes = {name: tuple(entry.model_copy(update={"only": {other: tuple(x for x in wanted if x in labels[other])
                                                              for other, wanted in entry.only.items()}})
                            for entry in axis) for name, axis in axes.items()}
        return self.model_copy(update={"axes": axes, "name": f"{self.name}_{pair}" if on_paper else self.name})

    def points(self) -> list[Point]:
        """Every cell of the report, the last axis varying fastest."""
        return [
            Point(tuple(entry.label for entry in entries), self.base + sum((entry.overrides for entry in entries), ()))
            for entries in product(*self.axes.values())
            if self._exists(entries)
        ]

    def _exists(self, entries: tuple[Entry, ...]) -> bool:
        at = dict(zip(self.axes, (entry.label for entry in entries), strict=True))
        return all(self._allows(entry, at) for entry in entries)

    def entries(self, coords: Coords) -> dict[str, Entry]:
        """The entry on each axis at these coordinates."""
        at = dict(zip(self.axes, coords, strict=True))
        return {
            name: next(entry for entry in axis if entry.label == label and self._allows(entry, at))
            for (name, axis), label in zip(self.axes.items(), coords, strict=True)
        }

    @staticmethod
    def _allows(entry: Entry, at: Mapping[str, str]) -> bool:
        return all(at[axis] in wanted for axis, wanted in entry.only.items())
