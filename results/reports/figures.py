"""The kinds of figures a report can ask for: which axis plays which part, which metrics are drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from results.metrics.catalog import metric
from results.metrics.trace_metrics import QUANTITIES
from results.reports.axes import Axis, Frozen

MetricName = Annotated[str, BeforeValidator(lambda name: metric(name).name)]



def _quantity(name: str) -> str:
    if name not in QUANTITIES:
        raise ValueError(f"unknown quantity {name!r}; one of: {', '.join(QUANTITIES)}")
    return name


QuantityName = Annotated[str, BeforeValidator(_quantity)]


class _Figure(Frozen, ABC):
    panels: tuple[str, ...] = ()
    """Axes whose entries get a panel each."""

    @abstractmethod
    def used(self) -> list[str]:
        """The axes that play a part, each as often as it is used."""

    def check(self, axes: Mapping[str, Axis]) -> None:
        """Raise ValueError, one line, for axes that cannot play their part."""


class Sweep(_Figure):
    """Metrics against a numeric axis with interval bands: `left` and, on a second scale, `right`; a line for each entry
    of `lines`."""

    kind: Literal["sweep"]
    x: str
    x_label: str = ""
    left: MetricName
    right: MetricName | None = None
    lines: str | None = None

    def used(self) -> list[str]:
        return [self.x, *self.panels, *([self.lines] if self.lines else [])]

    def check(self, axes: Mapping[str, Axis]) -> None:
        if any(entry.value is None for entry in axes.get(self.x, ())):
            raise ValueError(f"axis {self.x!r} is the x of a sweep: give each of its entries a number as 'value'")


class Pareto(_Figure):
    """One metric against another with error bars; `series` tells points apart, those of `connect` are joined in order.

    With `lines`, the entries of that axis tell points apart, and each joins its own in the order of `series`.
    `allocation` names two of those told apart, the draft alone and the target alone: a line shows what answering each
    prompt by one of them at random would give."""

    kind: Literal["pareto"]
    x: MetricName
    y: MetricName
    series: str
    connect: tuple[str, ...] = ()
    lines: str | None = None
    allocation: tuple[str, str] | None = None

    def used(self) -> list[str]:
        return [self.series, *self.panels, *([self.lines] if self.lines else [])]

    def check(self, axes: Mapping[str, Axis]) -> None:
        if self.connect and self.lines:
            raise ValueError("'lines' already joins points: leave out 'connect'")
        told_apart = self.lines or self.series
        known = {entry.label for entry in axes.get(told_apart, ())}
        if unknown := sorted({*self.connect, *(self.allocation or ())} - known):
            raise ValueError(f"'connect' and 'allocation' name {unknown}, but {told_apart!r} has {sorted(known)}")


class Bars(_Figure):
    """A metric as bars with intervals: a cluster for each entry of `clusters`, a bar for each entry of `series`."""

    kind: Literal["bars"]
    y: MetricName
    clusters: str
    series: str

    def used(self) -> list[str]:
        return [self.clusters, self.series, *self.panels]


class Histogram(_Figure):
    """The distribution of accepted lengths over cycles, a line of steps for each entry of `series`."""

    kind: Literal["histogram"]
    series: str

    def used(self) -> list[str]:
        return [self.series, *self.panels]


class View(Frozen):
    """One panel of traced positions: the distribution of `x`, or `x` against `y`. `mark` is a threshold on x.
    `points`: over the plane, the draft tokens kept only because of the rule's threshold; or all emitted tokens as
    points, coloured by what kept them. Positions outside a range are left out."""

    x: QuantityName
    y: QuantityName | None = None
    title: str = ""
    mark: float | None = None
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    points: Literal["by_threshold", "kept"] | None = None


class Traced(_Figure):
    """Panels of traced positions, all `views` for each entry of `panels`; the report's points are traced."""

    kind: Literal["traced"]
    views: tuple[View, ...] = Field(min_length=1)

    def used(self) -> list[str]:
        return list(self.panels)


Figure = Annotated[Sweep | Pareto | Bars | Histogram | Traced, Field(discriminator="kind")]
