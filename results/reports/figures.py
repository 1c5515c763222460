"""The kinds of figures, which part each axis plays and which metrics are drawn; and planes of rows beside a table."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field

from results.metrics.catalog import metric
from results.metrics.tau_gain import PARTS
from results.metrics.trace_metrics import QUANTITIES
from results.reports.axes import Axes, Frozen, check_labels
from results.reports.columns import Column

MetricName = Annotated[str, BeforeValidator(lambda name: metric(name).name)]


def _quantity(name: str) -> str:
    if name not in QUANTITIES:
        raise ValueError(f"unknown quantity {name!r}; one of: {', '.join(QUANTITIES)}")
    return name


def _as_list(given: Any) -> Any:
    return given if isinstance(given, list | tuple) else [given]


QuantityName = Annotated[str, BeforeValidator(_quantity)]


class _Figure(Frozen):
    """`panels`: axes whose entries get a panel each. `parts`: the fields that name an axis each. `models`: what of
    `similarity` the figure shows, any of which suffices."""

    parts: ClassVar[tuple[str, ...]] = ()
    models: ClassVar[tuple[str, ...]] = ()
    panels: tuple[str, ...] = ()

    @property
    def intervals(self) -> bool:
        """Whether intervals are drawn."""
        return bool(self.metrics())

    def axes(self) -> list[str]:
        """The axes that play a part, each as often as it is used."""
        return [*(axis for part in self.parts if (axis := getattr(self, part))), *self.panels]

    def metrics(self) -> list[str]:
        """Names of the metrics that are drawn."""
        return []

    def check(self, axes: Axes) -> None:
        """Raise ValueError, one line, for axes that cannot play their part."""

    def edition(self, axes: Axes) -> Self:
        """The figure where the axes have lost entries."""
        return self


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

    def check(self, axes: Axes) -> None:
        if any(entry.value is None for entry in axes.get(self.x, ())):
            raise ValueError(f"axis {self.x!r} is the x of a sweep: give each of its entries a number as 'value'")


class Pareto(_Figure):
    """One metric against another, with error bars.

    x, y         the metrics.
    series       the axis whose entries get a marker each.
    connect      entries of `series` that a line joins, in this order.
    lines        an axis whose entries get a marker each in place of those of `series`; a line joins the points of each
                 in the order of `series`.
    allocation   two entries with markers, the draft alone and the target alone: a dotted line shows the result of
                 answering each prompt by one of them, chosen at random.
    groups       {title: entries with markers}: each panel is drawn once for each group, so that its lines stay apart;
                 entries of no group stand in all.
    log          whether x is logarithmic.
    """

    parts: ClassVar[tuple[str, ...]] = ("series", "lines")
    kind: Literal["pareto"]
    x: MetricName
    y: MetricName
    series: str
    connect: tuple[str, ...] = ()
    lines: str | None = None
    allocation: tuple[str, str] | None = None
    groups: dict[str, tuple[str, ...]] = Field({})
    log: bool = False

    def metrics(self) -> list[str]:
        return [self.x, self.y]

    def check(self, axes: Axes) -> None:
        if self.connect and self.lines:
            raise ValueError("'lines' already joins points: leave out 'connect'")
        marked = self.lines or self.series
        grouped = (label for labels in self.groups.values() for label in labels)
        check_labels(axes, {marked: (*self.connect, *(self.allocation or ()), *grouped)}, "figure: an option")

    def left_out(self) -> dict[str, set[str]]:
        """Title of a group -> the entries that it leaves out; one group without a title if there are none."""
        grouped = {label for labels in self.groups.values() for label in labels}
        return {title: grouped - set(labels) for title, labels in self.groups.items()} or {"": set()}


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
                raise ValueError("figure.y: bars show no relative numbers: leave out 'over' and 'minus'")

    def edition(self, axes: Axes) -> Self:
        columns = [column.edition(axes) for column in self.y]
        return self.model_copy(update={"y": tuple(column for column in columns if column is not None)})


class Gains(_Figure):
    """Δτ of each rule over the lossless rule, as a bar stacked of its parts; the longest gain first.

    series     the axis of the rules, a bar each.
    beside     metrics written beside each bar.
    """

    parts: ClassVar[tuple[str, ...]] = ("series",)
    kind: Literal["gains"]
    series: str
    beside: tuple[MetricName, ...] = ()

    def metrics(self) -> list[str]:
        return ["tau", "tau_gain", *PARTS, "tau_gain_temperature", *self.beside]

    @property
    def intervals(self) -> bool:
        """Its legend names them."""
        return False


class View(Frozen):
    """One panel of traced positions.

    x, y               the quantity whose distribution is drawn; with `y`, the plane of both.
    title              heading of the panel.
    mark               a threshold on x, drawn as a line.
    x_range, y_range   positions outside these ranges are left out.
    points             "by_threshold": over the plane, the draft tokens kept only because of the rule's threshold;
                       "tested": in place of the plane, all tested draft tokens as points, accepted and rejected.
    log                a distribution's shares on a logarithmic scale, where one bin holds nearly all.
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
    """Panels of traced positions: all `views` for each entry of `panels`. The report needs `trace: true`."""

    kind: Literal["traced"]
    views: tuple[View, ...] = Field(min_length=1)


class Matrices(_Figure):
    """How alike the cells of an axis answer: a matrix for each measure and entry of `panels`, the mean over prompts.

    paths      the axis whose entries are compared with each other.
    """

    parts: ClassVar[tuple[str, ...]] = ("paths",)
    kind: Literal["matrices"]
    paths: str
    models: ClassVar[tuple[str, ...]] = ("sentence", "entailment")


class Agreement(_Figure):
    """How alike an answer goes on after a rejected token: a distribution for each measure and entry of `panels`. The
    report needs `trace: true`."""

    kind: Literal["agreement"]
    models: ClassVar[tuple[str, ...]] = ("bertscore", "sentence", "entailment")


class Machine(Frozen):
    """A machine in the plane of `When`: what drafting and verifying cost on it, as `results.metrics.cost.ratios`."""

    title: str
    draft: float
    verify: float


class When(_Figure):
    """Where each rule gains over the best lossless setting, over what drafting and verifying cost.

    series     the axis of the rules and of the lossless settings.
    lossless   the entries among which the best is taken.
    machines   marked; filled with the shipped profiles that price `drafter`.
    drafter    whose forwards the horizontal axis counts.
    """

    parts: ClassVar[tuple[str, ...]] = ("series",)
    kind: Literal["when"]
    series: str
    lossless: tuple[str, ...] = Field(min_length=1)
    drafter: str
    machines: tuple[Machine, ...] = ()

    def metrics(self) -> list[str]:
        return ["pass_ratio", "length_ratio", "nodes_per_cycle", "forwards_per_cycle"]

    @property
    def intervals(self) -> bool:
        return False

    def check(self, axes: Axes) -> None:
        check_labels(axes, {self.series: self.lossless}, "figure.lossless")


class Limit(_Figure):
    """τ of each rule against its distortion, with two curves: lossless decoding over temperatures, and the limit.

    series     the axis of the rules.
    lossless   its entries that are the lossless curve; the first is that at the temperature asked for.
    limit      its entries that are the limit's curve.
    y          the metric of the vertical axis.
    """

    parts: ClassVar[tuple[str, ...]] = ("series",)
    kind: Literal["limit"]
    series: str
    lossless: tuple[str, ...] = Field(min_length=1)
    limit: tuple[str, ...] = Field(min_length=1)
    y: MetricName = "tau"

    def metrics(self) -> list[str]:
        return ["distortion", self.y, "distortion_least", "distortion_temperature", "distortion_tv", "distortion_js",
                "distortion_outside"]

    def check(self, axes: Axes) -> None:
        check_labels(axes, {self.series: (*self.lossless, *self.limit)}, "figure.lossless or figure.limit")


Figure = Annotated[Sweep | Pareto | Bars | Gains | Traced | Matrices | Agreement | When | Limit,
                   Field(discriminator="kind")]


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
