"""Planes that a table's rows are drawn in, beside the table."""

from __future__ import annotations

from pydantic import Field

from results.reports.axes import Axes, Frozen
from results.reports.figures import MetricName


class Planes(Frozen):
    """One panel for each pair of metrics; rows that one dial makes are joined.

    x, y      the metrics.
    lines     {title: labels of rows}, joined in this order.
    """

    x: tuple[MetricName, ...] = Field(min_length=1)
    y: tuple[MetricName, ...] = Field(min_length=1)
    lines: dict[str, tuple[str, ...]] = Field(min_length=1)

    def check(self, axes: Axes, rows: tuple[str, ...]) -> None:
        """Raises ValueError for a row that the table does not have."""
        known = {entry.label for axis in rows for entry in axes[axis]}
        named = {label for labels in self.lines.values() for label in labels}
        if unknown := sorted(named - known):
            raise ValueError(f"planes: no row is labelled {', '.join(unknown)}")

    def metrics(self) -> list[str]:
        return [*self.x, *self.y]
