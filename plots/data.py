"""From a report's grid to what the figures draw: panels, and values with their intervals in printed units."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import nan
from typing import NamedTuple

from results.metrics.catalog import metric
from results.reports.axes import Entry
from results.reports.grid import Grid, outcome
from results.reports.spec import ReportSpec
from results.store.summary import Summary


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


def summary(spec: ReportSpec, grid: Grid, at: Mapping[str, str]) -> Summary | None:
    """The summary at the given labels, {axis: label} for every axis; None where it was not measured."""
    return outcome(grid, tuple(at[axis] for axis in spec.axes)).summary


def measured(found: Summary | None, name: str) -> Measured | None:
    """A metric of a summary; None where the cell or the value is unknown."""
    of = metric(name)
    value = None if found is None else of.value(found)
    if found is None or value is None:
        return None
    low, high = of.interval(found) or (value, value)
    return Measured(of.shown(value), of.shown(low), of.shown(high))


def _labels(axis: tuple[Entry, ...]) -> list[str]:
    return [entry.label for entry in axis]
