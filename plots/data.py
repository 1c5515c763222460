"""Data for the figures from a report's grid: values with intervals in printed units."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import NamedTuple

from results.metrics.catalog import metric
from results.metrics.summary import Summary
from results.reports.grid import Grid, outcome
from results.reports.spec import ReportSpec


class Measured(NamedTuple):
    """A value with its 95% interval, in the unit of the axis.

    value  the measured value.
    low    lower end of the interval; the value itself if there is no interval.
    high   upper end, likewise.
    """

    value: float
    low: float
    high: float

    @property
    def below_above(self) -> tuple[float, float]:
        """Lengths of the error bar below and above, never negative, as matplotlib requires."""
        return max(0.0, self.value - self.low), max(0.0, self.high - self.value)


GAP = Measured(nan, nan, nan)
"""A missing value: a line through it is interrupted."""


def summary(spec: ReportSpec, grid: Grid, at: Mapping[str, str]) -> Summary | None:
    """The summary at the given labels, {axis: label} for every axis; None if it was not measured."""
    return outcome(grid, tuple(at[axis] for axis in spec.axes)).summary


def measured(cell: Summary | None, name: str) -> Measured | None:
    """A metric of a summary; None if the cell or the value was not measured."""
    column = metric(name)
    value = None if cell is None else cell.value(column.name)
    if cell is None or value is None:
        return None
    low, high = cell.interval(column.name) or (value, value)
    return Measured(column.shown(value), column.shown(low), column.shown(high))
