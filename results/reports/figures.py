"""The kinds of figures, which part each axis plays and which metrics are drawn.

A figure that one report has is of the kind `own`: a Python file in plots/ draws it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field

from results.metrics.catalog import metric
from results.metrics.trace_metrics import QUANTITIES
from results.reports.axes import Axes, Frozen, check_labels
from results.reports.columns import Column

PLOTS = Path(__file__).parents[2] / "plots"
MetricName = Annotated[str, BeforeValidator(lambda name: metric(name).name)]


def _quantity(name: str) -> str:
    if name not in QUANTITIES:
        raise ValueError(f"unknown quantity {name!r}; one of: {', '.join(QUANTITIES)}")
    return name


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


QuantityName = Annotated[str, BeforeValidator(_quantity)]


class _Figure(Frozen):
    """`panels`: axes whose entries get a panel each. `parts`: the fields that name an axis each."""

    parts: ClassVar[tuple[str, ...]] = ()
    panels: tuple[str, ...] = ()

    def axes(self) -> list[str]:
        """The axes that play a part, each as often as it is used."""
        axes = (getattr(self, part) for part in self.parts)
        return [*filter(None, axes), *self.panels]

    def metrics(self) -> list[str]:
        """Names of the metrics that are drawn, those of the CSV file."""
        return []

    def helpers(self) -> list[str]:
        """What else the drawing needs of each cell: metrics, and fields of a summary."""
        return []

    def check(self, axes: Axes) -> None:
        """Raise ValueError, one line, for axes that cannot play their part."""

    def edition(self, axes: Axes) -> Self:
        """The figure where the axes have lost entries."""
        return self


BASELINE_OF = {"accuracy": "baseline_accuracy", "tokens_per_s": "baseline_tokens_per_s"}
"""Metric of a sweep -> what autoregressive decoding has of it, a dotted line."""


class Sweep(_Figure):
    """Metrics against a numeric axis, with interval bands.

    x         the numeric axis.
    x_label   its label; the axis' name if empty.
    log       whether x is logarithmic.
    left      the metric on the left scale.
    right     the metric on the right scale, if any.
    lines     the axis whose entries get a line each, if any.
    """

    parts: ClassVar[tuple[str, ...]] = ("x", "lines")
    kind: Literal["sweep"]
    x: str
    x_label: str = ""
    log: bool = False
    left: MetricName
    right: MetricName | None = None
    lines: str | None = None

    def metrics(self) -> list[str]:
        return [self.left, *([self.right] if self.right else [])]

    def helpers(self) -> list[str]:
        return [BASELINE_OF[name] for name in self.metrics() if name in BASELINE_OF]

    def check(self, axes: Axes) -> None:
        if any(entry.value is None for entry in axes.get(self.x, ())):
            raise ValueError(
                f"axis {self.x!r} is the x of a sweep: give each of its entries a number as 'value'"
            )


class Pareto(_Figure):
    """One metric against another, with error bars.

    x, y         the metrics.
    series       the axis whose entries get a marker each.
    connect      entries of `series` that a line joins, in this order.
    lines        an axis whose entries get a marker each in place of those of `series`; a line joins
                 the points of each in the order of `series`.
    allocation   two entries with markers, the draft alone and the target alone: a dotted line shows
                 the result of answering each prompt by one of them, chosen at random.
    log          whether x is logarithmic.
    apart        what the labels of some `lines` end with, which get panels of their own.
    """

    parts: ClassVar[tuple[str, ...]] = ("series", "lines")
    kind: Literal["pareto"]
    x: MetricName
    y: MetricName
    series: str
    connect: tuple[str, ...] = ()
    lines: str | None = None
    allocation: tuple[str, str] | None = None
    log: bool = False
    apart: str = ""

    def metrics(self) -> list[str]:
        return [self.x, self.y]

    def helpers(self) -> list[str]:
        return ["accuracy", "tokens_per_s", "tokens", "n"] if self.allocation else []

    def check(self, axes: Axes) -> None:
        if self.connect and self.lines:
            raise ValueError("'lines' already joins points: leave out 'connect'")
        check_labels(
            axes,
            {self.lines or self.series: (*self.connect, *(self.allocation or ()))},
            "figure: an option",
        )


class Bars(_Figure):
    """Metrics as bars with intervals.

    y          the metric, or several with a panel each; as the values of a table.
    clusters   the axis whose entries get a cluster of bars each.
    series     the axis whose entries get a bar each in every cluster.
    mean       an axis over whose entries each bar is the mean, if any.
    """

    parts: ClassVar[tuple[str, ...]] = ("clusters", "series", "mean")
    kind: Literal["bars"]
    y: Annotated[tuple[Column, ...], BeforeValidator(_as_list), Field(min_length=1)]
    clusters: str
    series: str
    mean: str | None = None

    def metrics(self) -> list[str]:
        return [column.metric.name for column in self.y]

    def check(self, axes: Axes) -> None:
        for column in self.y:
            column.check(axes)
            if column.reference:
                raise ValueError(
                    "figure.y: bars show no relative numbers: leave out 'over' and 'minus'"
                )

    def edition(self, axes: Axes) -> Self:
        columns = [column.edition(axes) for column in self.y]
        return self.model_copy(
            update={"y": tuple(column for column in columns if column is not None)}
        )


class View(Frozen):
    """One panel of traced positions.

    x, y               the quantity whose distribution is drawn; with `y`, the plane of both.
    title              heading of the panel.
    mark               a threshold on x, drawn as a line.
    x_range, y_range   positions outside these ranges are left out.
    points             "by_threshold": over the plane, the draft tokens kept only because of the
                       rule's threshold; "tested": in place of the plane, all tested draft tokens as
                       points, accepted and rejected.
    log                a distribution's shares on a logarithmic scale, where one bin holds nearly
                       all.
    """

    x: QuantityName
    y: QuantityName | None = None
    title: str = ""
    mark: float | None = None
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    points: Literal["by_threshold", "tested"] | None = None
    log: bool = False


class Traced(_Figure):
    """Panels of traced positions: all `views` for each entry of `panels`. The report needs `trace:
    true`."""

    kind: Literal["traced"]
    views: tuple[View, ...] = Field(min_length=1)


class Own(_Figure):
    """A figure that one report has, drawn by a Python file of plots/ (docs/reports.md).

    file       its name, `limit` for plots/limit.py.
    series     the axis that the file draws from within a panel, if any.
    values     the metrics that it draws, those of the CSV file.
    meanings   the measures by which it compares texts, `similarity.NAME`, any of which suffices: of
               the answers of the entries of `series` with each other; without it of how answers go
               on after a rejected token, which needs `trace: true`.
    """

    parts: ClassVar[tuple[str, ...]] = ("series",)
    kind: Literal["own"]
    file: Annotated[str, Field(pattern=r"^[a-z]\w*$")]
    series: str | None = None
    values: tuple[MetricName, ...] = ()
    meanings: tuple[Literal["sentence", "entailment", "bertscore"], ...] = ()

    def metrics(self) -> list[str]:
        return list(self.values)

    def check(self, axes: Axes) -> None:
        if not (PLOTS / f"{self.file}.py").is_file():
            raise ValueError(f"figure.file={self.file}: no file plots/{self.file}.py")


Figure = Annotated[Sweep | Pareto | Bars | Traced | Own, Field(discriminator="kind")]
