"""What a figure draws: the lines of its frame, by their place and in printed units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isnan, nan
from typing import Any, NamedTuple

import pandas as pd

from results.metrics.catalog import metric
from results.reports.spec import FigureSpec, ReportSpec


class Measured(NamedTuple):
    """A value with its 95% interval, in the unit of the axis; both ends are the value itself if
    there is none."""

    value: float
    low: float
    high: float

    @property
    def below_above(self) -> tuple[float, float]:
        """Lengths of the error bar below and above, never negative, as matplotlib requires."""
        return max(0.0, self.value - self.low), max(0.0, self.high - self.value)


GAP = Measured(nan, nan, nan)
"""A missing value: a line through it is interrupted."""
At = Mapping[str, str]
"""{axis: label} for every axis."""


@dataclass(frozen=True)
class Data:
    """A report and its frame (`results.reports.frame`)."""

    spec: ReportSpec
    frame: pd.DataFrame

    @property
    def figure(self) -> Any:
        """Which part each axis plays."""
        assert isinstance(self.spec, FigureSpec)
        return self.spec.figure

    def value(self, at: At, name: str) -> float | None:
        """A metric in the summary's unit; None where it was not measured."""
        value = self._line(at).get(name, (nan,))[0]
        return None if isnan(value) else value

    def measured(self, at: At, name: str) -> Measured | None:
        """A metric in printed units; None where it was not measured."""
        value, low, high = self._line(at).get(name, GAP)
        if isnan(value):
            return None
        ends = (value, value) if isnan(low) else (low, high)
        return Measured(*map(metric(name).shown, (value, *ends)))

    def is_measured(self, at: At) -> bool:
        return bool(self._line(at))

    def lines(self, at: At, **columns: Any) -> pd.DataFrame:
        """The lines at these labels that have these values."""
        frame = self.frame
        for name, value in (*at.items(), *columns.items()):
            frame = frame[frame[name] == value] if name in frame else frame[:0]
        return frame

    def _line(self, at: At) -> Mapping[str, tuple[float, float, float]]:
        return self._cells.get(tuple(at[axis] for axis in self.spec.axes), {})

    @cached_property
    def _cells(self) -> dict[tuple[str, ...], dict[str, tuple[float, float, float]]]:
        """Coordinates -> name -> value, ends of the interval; NaN for what is not known."""
        cells: dict[tuple[str, ...], dict[str, tuple[float, float, float]]] = {}
        frame = (
            self.frame[self.frame["value_name"].notna()]
            if "value_name" in self.frame
            else self.frame[:0]
        )
        numbers = (
            frame.reindex(columns=["value", "ci_low", "ci_high"]).astype(float).to_numpy().tolist()
        )
        places = zip(*(frame.get(axis, ()) for axis in self.spec.axes), strict=True)
        for at, name, (value, low, high) in zip(
            places, frame.get("value_name", ()), numbers, strict=True
        ):
            cells.setdefault(at, {})[name] = (value, low, high)
        return cells
