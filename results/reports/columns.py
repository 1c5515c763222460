"""The columns of a table: a metric, or a metric relative to another cell of the table, and how its
numbers are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from results.metrics.catalog import METRICS, metric
from results.metrics.intervals import Interval
from results.metrics.metric import BOOTSTRAP, Metric
from results.reports.axes import Axes, Frozen, check_labels

MetricByName = Annotated[
    InstanceOf[Metric],
    BeforeValidator(lambda name: metric(name) if isinstance(name, str) else name),
    PlainSerializer(lambda each: each.name),
    WithJsonSchema({"enum": list(METRICS)}),
]


class Column(Frozen):
    """A metric as a table shows it; in YAML also written as the metric's bare name.

    metric            the metric, given by name.
    label             its header; the metric's own label if empty.
    digits            decimals; the metric's own if None.
    published_name    its name in the published file; the metric's name if empty.
    published_scale   factor that brings the published number to the summary's unit.
    only              limits the column to some entries of axes: {axis: labels}. Elsewhere nothing
                      stands.
    over              the number is a ratio to that of the cell with these labels, {axis: label};
                      other axes as they are.
    minus             the number is a difference from that of the cell with these labels.
    """

    metric: MetricByName
    label: str = ""
    digits: int | None = Field(default=None, ge=0)
    published_name: str = ""
    published_scale: float = 1.0
    only: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    over: dict[str, str] = Field(default_factory=dict)
    minus: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, column: Any) -> Any:
        return {"metric": column} if isinstance(column, str) else column

    @model_validator(mode="after")
    def _is_relative_to_one(self) -> Self:
        if self.over and self.minus:
            raise ValueError("give 'over' or 'minus', not both")
        if self.reference and not self.metric.compared:
            known = ", ".join(name for name, each in METRICS.items() if each.compared)
            raise ValueError(
                f"{self.metric.name}: cannot be compared prompt by prompt; one of {known}"
            )
        return self

    @property
    def reference(self) -> dict[str, str]:
        """Labels of the cell that the number is relative to; empty for a number by itself."""
        return self.over or self.minus

    @cached_property
    def measure(self) -> Metric:
        """The metric that is printed: of a relative number, one with its own unit and name."""
        if not self.reference:
            return self.metric
        per_prompt = replace(self.metric, name=self.value_name, estimator=BOOTSTRAP, is_score=False)
        return (
            replace(per_prompt, unit="×", digits=2, signed=False)
            if self.over
            else replace(per_prompt, signed=True)
        )

    @property
    def value_name(self) -> str:
        """Its name in a CSV file."""
        if not self.reference:
            return self.metric.name
        return self.published_name or f"{self.metric.name}_{'over' if self.over else 'minus'}"

    @property
    def name(self) -> str:
        return self.label or self.metric.label

    @property
    def header(self) -> str:
        """Its name and unit; numbers stand without."""
        return f"{self.name} ({self.measure.unit})" if self.measure.unit else self.name

    @property
    def decimals(self) -> int:
        return self.measure.digits if self.digits is None else self.digits

    def text(self, value: float, signed: bool = False) -> str:
        """`2.10`, with a sign where the metric may be negative or `signed`."""
        sign = "+" if signed or self.measure.signed else ""
        shown = round(self.measure.shown(value), self.decimals) + 0.0  # −0.0 + 0.0 is 0.0
        return f"{shown:{sign}.{self.decimals}f}".replace("-", "−")

    def interval_text(self, interval: Interval | None) -> str:
        """`[2.01, 2.19]`; empty without an interval, and for one of no width: such a value is fixed
        by definition."""
        if interval is None or interval[0] == interval[1]:
            return ""
        return f"[{', '.join(map(self.text, interval))}]"

    def short_interval_text(self, value: float, interval: Interval | None) -> str:
        """`± 0.09` where both arms are printed alike, or are within a tenth of each other; else as
        `interval_text`."""
        if interval is None or not (text := self.interval_text(interval)):
            return ""
        middle, *ends = (self.measure.shown(each) for each in (value, *interval))
        below, above = sorted(round(abs(middle - end), self.decimals) for end in ends)
        alike = above - below <= max(0.1 * above, 1.01 * 10.0**-self.decimals)
        return f"± {above:.{self.decimals}f}" if alike else text

    def half_width(self, value: float | None, interval: Interval | None) -> float | None:
        """Half the width of the interval over the value; None without an interval, at 0, and for a
        metric that may be negative, near whose 0 the ratio says nothing."""
        if interval is None or not value or self.measure.signed:
            return None
        return (interval[1] - interval[0]) / 2 / abs(value)

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Whether the column has a number at these labels; an axis that is not given does not
        matter."""
        return all(labels[axis] in allowed for axis, allowed in self.only.items() if axis in labels)

    def check(self, axes: Axes) -> None:
        """Raises ValueError for an axis or a label that the report does not have."""
        named = {**self.only, **{axis: (label,) for axis, label in self.reference.items()}}
        check_labels(axes, named, f"values: {self.header}")

    def edition(self, axes: Axes) -> Column | None:
        """The column where the axes have lost entries; None where nothing of it is left."""
        labels = {axis: {entry.label for entry in entries} for axis, entries in axes.items()}
        only = {
            axis: tuple(label for label in allowed if label in labels[axis])
            for axis, allowed in self.only.items()
        }
        if not all(only.values()) or any(
            label not in labels[axis] for axis, label in self.reference.items()
        ):
            return None
        return self.model_copy(update={"only": only})
