"""From a report's grid to what the figures draw: panels, and values with their intervals in printed units."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import nan
from typing import Any, NamedTuple

from results.metrics.catalog import metric
from results.reports.axes import Entry
from results.reports.grid import Grid, outcome
from results.reports.spec import ReportSpec


class Measured(NamedTuple):
    """A value and the ends of its 95% interval (the value itself where there is none), in the unit of the axis."""

    value: float
    low: float
    high: float

    @property
    def below_above(self) -> tuple[float, float]:
        """Lengths of the error bar, as matplotlib wants them; a value outside its interval has no negative arm."""
        return max(0.0, self.value - self.low), max(0.0, self.high - self.value)


GAP = Measured(nan, nan, nan)
"""Stands for a value that was not measured: a line drawn through it breaks there."""


def panels(spec: ReportSpec, axes: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    """(title, {axis: label}) of each panel; an axis with a single entry is not named in the titles."""
    places = [dict(zip(axes, labels, strict=True)) for labels in product(*(_labels(spec.axes[axis]) for axis in axes))]
    return [(", ".join(at[axis] for axis in axes if len(spec.axes[axis]) > 1), at) for at in places]


def summary(spec: ReportSpec, grid: Grid, at: Mapping[str, str]) -> dict[str, Any] | None:
    """The summary at the given labels, {axis: label} for every axis; None where it was not measured."""
    found = outcome(grid, tuple(at[axis] for axis in spec.axes)).summary
    return None if found is None else dict(found)


def measured(found: dict[str, Any] | None, name: str) -> Measured | None:
    """A metric of a summary; None where the cell or the value is unknown."""
    if found is None or found.get(name) is None:
        return None
    of = metric(name)
    low, high = of.interval(found) or (found[name], found[name])
    return Measured(of.shown(found[name]), of.shown(low), of.shown(high))


def _labels(axis: tuple[Entry, ...]) -> list[str]:
    return [entry.label for entry in axis]
