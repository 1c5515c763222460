"""A report as data: which cells it needs and how they are laid out. conf/report/*.yaml hold the
reports themselves.

A report spans named `axes`; each entry of an axis adds overrides to the experiment point. The
points are the product of the axes. A table puts some axes in its rows and the others in its
columns; a figure gives each axis a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from results.reports.axes import (
    AS_GIVEN,
    SETTING,
    Axes,
    Entry,
    Frozen,
    at_scale,
    check_axes,
    drop_impossible,
    of_pairs,
    pairs_of,
    replaced,
    spell_variants,
    without_altered,
    without_axes,
    without_frontier,
)
from results.reports.choice import Choice, Sweep, with_frontier
from results.reports.columns import Column
from results.reports.figures import Figure, MetricName
from results.reports.further import ANSWER_COSTS, SETTINGS, TITLES, TRACED_COSTS, VERDICT
from results.reports.scales import SCALES, Scale, at_all_scales
from results.store.sample import Opponent

OWN_MODELS = "local"
"""The pair of a user's own models, which any report takes in place of the embedded pair."""
Coords = tuple[str, ...]
"""The labels of a point, one per axis, in the order of the report's axes."""


class Published(Frozen):
    """Numbers of a paper: a file in results/published, the axis whose entries are the paper's model
    pairs, and on what machine the paper measured them (that of its `settings_of`)."""

    file: str
    pair: str
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """One cell that a report needs: its coordinates, the overrides that compose it, and those of
    them that only its place in the report decides."""

    coords: Coords
    overrides: tuple[str, ...]
    fixed: tuple[str, ...]


class ReportSpec(Frozen):
    """What tables and figures have in common.

    name         the report's name, that of its files.
    title        its heading.
    about        a paragraph under the heading.
    not_printed  what the paper leaves out and what is taken here, on its pairs.
    base         overrides that all points share, but for those that an entry replaces (`replaced`).
    base_at      scale -> overrides of its own, in place of those of `base` with the same keys.
    settings_of  whose pairs, tasks, numbers of prompts and answer lengths conf/scale gives: those
                 of a paper, or own; empty: the report gives its own.
    axes         axis name -> entries.
    on_request   left out of report=all.
    trace        every point is traced.
    against      what answers are compared with for a win rate, where the command gives no
                 `judge.against`.
    repeats      how often each point is measured, each time with other random streams. The first
                 run is shown, with the diversity over all of them.
    sessions     measuring sessions of the timed prompts, where the command names no number.
    """

    name: str
    title: str
    about: str = ""
    not_printed: str = ""
    base: tuple[str, ...] = ()
    base_at: dict[Scale, tuple[str, ...]] = Field(default_factory=dict)
    settings_of: str = ""
    axes: Annotated[
        Axes, Field(min_length=1), AfterValidator(spell_variants), AfterValidator(check_axes)
    ]
    on_request: bool = False
    trace: bool = False
    against: Opponent = "reference"
    repeats: int = Field(default=1, ge=1)
    sessions: int = Field(default=1, ge=1)

    def edition(self, pairs: Sequence[str] = (), scale: Scale = "embedded") -> Self:
        """The report on these pairs, all of one scale: the edition whose entries choose them
        (override `pair=NAME`). Without pairs, the edition of `scale` on all of its pairs. Every
        edition but the embedded one has a name of its own. Raises ValueError for a pair without an
        edition; `local` stands for models of the user's own, in place of the embedded pair. A
        report that chooses no pair takes any."""
        by_scale = pairs_of(self.axes)
        if not any(by_scale.values()) and (pairs or scale != "embedded"):
            return self
        if pairs:
            scale = self._scale_of(pairs, by_scale)
        elif scale != "embedded" and not by_scale[scale]:
            raise ValueError(
                f"report={self.name}: does not have scale={scale}; `report=list` shows the "
                "scales of each"
            )
        axes = {name: at_scale(axis, scale) for name, axis in self.axes.items()}
        of_edition = self._own(scale)
        if scale == "embedded":
            return self.model_copy(update={"axes": drop_impossible(axes), **of_edition})
        if pairs:
            axes = {name: of_pairs(axis, pairs) for name, axis in axes.items()}
        name = "_".join([self.name, *(pairs or [scale])])
        about = self.about
        if scale == "paper" and self.not_printed:
            about += f" Not printed in the paper: {self.not_printed}"
        return self.model_copy(
            update={"axes": drop_impossible(axes), "name": name, "about": about, **of_edition}
        )

    def _own(self, scale: Scale) -> dict[str, Any]:
        """What the edition of this scale has of its own, beside its axes."""
        return {"base": replaced(self.base, self.base_at.get(scale, ()))}

    def _scale_of(self, pairs: Sequence[str], known: Mapping[Scale, Sequence[str]]) -> Scale:
        """The scale that has all of these pairs. Raises ValueError."""
        if tuple(pairs) == (OWN_MODELS,):
            return "embedded"
        scales = [scale for scale in SCALES if set(pairs) <= set(known[scale])]
        if not scales:
            every = list(dict.fromkeys(name for names in known.values() for name in names))
            other = [pair for pair in pairs if pair not in every]
            fault = (
                f"does not have pair={other[0]}"
                if other
                else f"pairs=[{','.join(pairs)}] are of two scales"
            )
            raise ValueError(
                f"report={self.name}: {fault}; it has {', '.join(every)}, and pair={OWN_MODELS} "
                "for models of your own"
            )
        return scales[0]

    def has_edition(self, pairs: Sequence[str], scale: Scale) -> bool:
        try:
            self.edition(pairs, scale)
        except ValueError:
            return False
        return True

    def points(self) -> list[Point]:
        """Every cell of the report, the last axis varying fastest."""
        points = []
        for entries in product(*self.axes.values()):
            coords = tuple(entry.label for entry in entries)
            labels = self.labels(coords)
            if all(entry.allows(labels) for entry in entries):
                base = replaced(self.base, [line for entry in entries for line in entry.settings])
                fixed = tuple(line for entry in entries for line in entry.overrides)
                points.append(Point(coords, replaced(base, fixed), fixed))
        return points

    def labels(self, coords: Coords) -> dict[str, str]:
        """Axis name -> label at these coordinates."""
        return dict(zip(self.axes, coords, strict=True))

    def entries(self, coords: Coords) -> dict[str, Entry]:
        """Axis name -> entry at these coordinates."""
        labels = self.labels(coords)
        return {
            name: next(
                entry for entry in axis if entry.label == labels[name] and entry.allows(labels)
            )
            for name, axis in self.axes.items()
        }

    def row_name(self, coords: Coords) -> str:
        """What the rows of a table call the point; empty in a figure."""
        columns, labels = getattr(self, "columns", self.axes), self.labels(coords)
        rows = {axis: labels[axis] for axis in self.axes if axis not in columns}
        shown = [axis for axis in rows if len({entry.label for entry in self.axes[axis]}) > 1]
        return ", ".join(rows[axis] for axis in shown if rows[axis] != AS_GIVEN)

    def is_frontier(self, coords: Coords) -> bool:
        """Whether the row is one that others are only compared with."""
        return any(entry.frontier for entry in self.entries(coords).values())

    def altered(self, coords: Coords) -> str:
        """How the target is altered whose D the row shows; empty for a row that is decoded."""
        return next(filter(None, (entry.altered for entry in self.entries(coords).values())), "")

    def judged_at(self, coords: Coords) -> float | None:
        """The temperature that the row is judged at in place of its own."""
        temperatures = (entry.judged_at for entry in self.entries(coords).values())
        return next((each for each in temperatures if each is not None), None)

    def _check_layout(self, used: list[str]) -> None:
        """Raises ValueError unless the layout uses each axis once."""
        if sorted(used) != sorted(self.axes):
            raise ValueError(
                f"the layout uses the axes {sorted(used)}, the report has {sorted(self.axes)}: "
                "use each once"
            )


class TableSpec(ReportSpec):
    """A table.

    rows        axes whose entries label the rows.
    columns     axes whose entries head the columns; without any, the metrics do.
    mean        header of a computed last column; none if None.
    values      the metrics shown under each header.
    reading     those of them that the short form shows, the most important first; empty: the first
                that fit.
    published   numbers of the paper, printed under ours.
    choice      axes that each row chooses from, in neither rows nor columns, and the row it is
                compared with.
    sweep       rows whose rule the command line names.
    further     name -> metrics of a table that follows, in place of what an answer costs.
    """

    kind: Literal["table"]
    rows: tuple[str, ...] = Field(min_length=1)
    columns: tuple[str, ...] = ()
    mean: str | None = None
    values: tuple[Column, ...] = Field(min_length=1)
    reading: tuple[str, ...] = ()
    published: Published | None = None
    choice: Choice | None = None
    sweep: Sweep | None = None
    further: dict[str, tuple[MetricName, ...]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _has_frontier(cls, report: Any) -> Any:
        axes = report.get("axes") if isinstance(report, dict) else None
        if not isinstance(axes, Mapping):
            return report
        return report | {"axes": with_frontier(axes, report.get("choice"), report.get("base", ()))}

    @model_validator(mode="after")
    def _is_laid_out(self) -> Self:
        self._check_layout([*self.rows, *self.columns, *(self.choice.axes if self.choice else ())])
        if self.choice:
            labels = {entry.label for axis in self.rows for entry in self.axes[axis]}
            named = {self.choice.lossless, self.choice.lossless_greedy or self.choice.lossless}
            unknown = named - labels
            if unknown:
                raise ValueError(f"choice: no row is labelled {', '.join(sorted(unknown))}")
        for column in self.values:
            column.check(self.axes)
        if unknown := set(self.reading) - {column.value_name for column in self.values}:
            raise ValueError(f"reading: {', '.join(sorted(unknown))}: none of the values")
        if self.mean and any(column.only or column.reference for column in self.values):
            raise ValueError("mean: needs columns without 'only', 'over' and 'minus'")
        if self.published and self.published.pair not in self.rows:
            raise ValueError(
                f"published.pair={self.published.pair!r} must be one of the rows' axes {self.rows}"
            )
        return self

    def edition(self, pairs: Sequence[str] = (), scale: Scale = "embedded") -> Self:
        """As of any report; a column whose entries or whose reference the edition lacks is left
        out."""
        table = super().edition(pairs, scale)
        columns = [column.edition(table.axes) for column in self.values]
        return table.model_copy(
            update={"values": tuple(column for column in columns if column is not None)}
        )

    def metrics(self) -> list[str]:
        """Names of the metrics that the report shows, its second table included."""
        return [column.metric.name for table in self.tables() for column in table.values]

    def tables(self) -> list[TableSpec]:
        """This table and those that follow it: what an answer costs, under one that shows accuracy;
        where rows choose, also the rows beside the best lossless one and beside the frontier, and
        every setting."""
        first = self._first()
        shown = {column.metric.name for column in self.values}
        further: Mapping[str, Sequence[str]] = self.further
        if "accuracy" in shown and not further:
            further = {"answers": (*ANSWER_COSTS, *(TRACED_COSTS if self.trace else ()))}
        tables = [first]
        for name, metrics in further.items():
            others = [metric for metric in metrics if metric not in shown]
            tables.append(first._listed(name, TITLES.get(name, name), others))
        if self.choice is None:
            return tables
        chosen = self.chosen()
        rows = chosen.model_copy(update={"axes": without_altered(chosen.axes)})
        tables.append(rows._listed("verdict", "beside lossless decoding", VERDICT))
        settings = self._every_setting(self.choice)
        return [*tables, settings] if settings.points() else tables

    def _first(self) -> TableSpec:
        """The report's own table: without the axes that its rows choose from, and without the rows
        of the frontier."""
        table = self if self.choice is None else self.chosen()
        return table.model_copy(update={"axes": without_frontier(table.axes)})

    def _every_setting(self, choice: Choice) -> TableSpec:
        """A row for each setting of the rows that have several."""
        axes = drop_impossible(without_frontier(without_altered(self.axes)))
        if choice.axes == (SETTING,):
            axes[SETTING] = tuple(entry for entry in axes[SETTING] if entry.label != AS_GIVEN)
        full = self.model_copy(
            update={"axes": axes, "choice": None, "rows": (*self.rows, *choice.axes)}
        )
        return full._listed("settings", "every setting, on all prompts", SETTINGS)

    def _listed(self, name: str, title: str, metrics: Sequence[str]) -> TableSpec:
        """A further table of the report, with a row for each cell."""
        return self.model_copy(
            update={
                "name": f"{self.name}_{name}",
                "title": f"{self.title}: {title}",
                "values": tuple(Column.model_validate(metric) for metric in metrics),
                "rows": (*self.columns, *self.rows),
                "columns": (),
                "mean": None,
                "published": None,
                "reading": (),
            }
        )

    def chosen(self) -> TableSpec:
        """The table with the axes that rows choose from left out."""
        axes = without_axes(self.axes, self.choice.axes if self.choice else ())
        return self.model_copy(update={"axes": axes})


class FigureSpec(ReportSpec):
    """A figure; `figure` says of which kind, and which part each axis plays in it.

    figure_at    scale -> options of its own, in place of those of `figure`.
    """

    kind: Literal["figure"]
    figure: Figure
    figure_at: dict[Scale, dict[str, Any]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_laid_out(self) -> Self:
        for figure in (self.figure, *map(self._figure_of, self.figure_at)):
            figure.check(self.axes)
            self._check_layout(figure.axes())
        return self

    def _figure_of(self, scale: Scale) -> Figure:
        if scale not in self.figure_at:
            return self.figure
        options = self.figure.model_dump(exclude_unset=True) | self.figure_at[scale]
        return TypeAdapter[Figure](Figure).validate_python(options)

    def _own(self, scale: Scale) -> dict[str, Any]:
        return super()._own(scale) | {"figure": self._figure_of(scale)}

    def edition(self, pairs: Sequence[str] = (), scale: Scale = "embedded") -> Self:
        """As of any report."""
        report = super().edition(pairs, scale)
        return report.model_copy(update={"figure": report.figure.edition(report.axes)})

    def metrics(self) -> list[str]:
        """Names of the metrics that the report shows."""
        return self.figure.metrics()


AnyReport = TableSpec | FigureSpec
_ADAPTER: TypeAdapter[AnyReport] = TypeAdapter(Annotated[AnyReport, Field(discriminator="kind")])


def parse_report(section: Mapping[str, Any]) -> AnyReport:
    """Validate a report's YAML, its editions filled in. Raises ValidationError, whose locations
    begin with the kind; ValueError for a name that conf/scale does not have."""
    return _ADAPTER.validate_python(at_all_scales(section))


def report_keys(kind: str) -> Iterable[str]:
    """The keys that a report of this kind may have; none for an unknown kind."""
    models = get_args(AnyReport)
    return next(
        (
            model.model_fields
            for model in models
            if kind in get_args(model.model_fields["kind"].annotation)
        ),
        (),
    )
