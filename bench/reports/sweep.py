"""The plot of a named sweep: its axes are whatever was swept, its layout stands in conf/sweep/NAME.yaml."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from bench.config.cell import Cell
from bench.config.compose import Command
from bench.config.errors import ConfigError, format_validation
from bench.config.overrides import made_by
from bench.config.schema import Section, parse
from bench.config.settings import Settings
from bench.reports.plan import Plan
from bench.reports.render import render_plans
from results.metrics.catalog import METRICS
from results.reports.axes import Entry
from results.reports.figures import Figure
from results.reports.spec import Coords, ReportSpec
from results.store.cells import Store

SHORT = {"draft.length": "K", "decoding.temperature": "T"}


class Layout(Section):
    """`figure` names swept keys as its axes; further swept keys get a panel each."""

    title: str
    figure: Figure


def plans_of(command: Command, cells: Sequence[Cell]) -> list[Plan]:
    """The sweep's figure and the table behind it. Raises ConfigError for a layout that does not fit the points."""
    layout = parse(Layout, command.points[0].config, "sweep")
    settings = [dict(line.split("=", 1) for line in point.overrides) for point in command.points]
    named = layout.figure.used()
    varying = [key for key in settings[0] if key in named or len({one[key] for one in settings}) > 1]
    values = {key: list(dict.fromkeys(one[key] for one in settings)) for key in varying}
    axes = {key: tuple(_entry(key, value) for value in found) for key, found in values.items()}
    panels = (*layout.figure.panels, *(key for key in varying if key not in named))
    figure = layout.figure.model_copy(update={"panels": panels})
    name, about = f"sweep_{command.sweep}", {"title": layout.title, "axes": axes}
    metrics = [getattr(figure, part, None) for part in ("left", "right", "x", "y")]
    values_shown = dict.fromkeys([metric for metric in metrics if metric in METRICS] + ["tau"])
    try:
        specs = [ReportSpec(name=name, kind="figure", figure=figure, **about)]
        if len(varying) > 1:
            specs.append(ReportSpec(name=f"{name}_table", kind="table", columns=varying[:1], rows=varying[1:],
                                    values=tuple(values_shown), **about))
    except ValidationError as error:
        complaint = format_validation(error, "sweep", Layout.model_fields)
        raise ConfigError(f"+sweep={command.sweep}: {complaint}") from error
    coords: list[Coords] = [tuple(_entry(key, one[key]).label for key in varying) for one in settings]
    return [Plan(spec, dict(zip(coords, cells, strict=True)), {}) for spec in specs]


def render_sweep(command: Command, plans: Sequence[Plan], settings: Settings, store: Store) -> None:
    folder, made = settings.output.dir / "sweep" / str(command.sweep), made_by(*command.overrides)
    render_plans(plans, [made] * len(plans), folder, settings, store, f"sweep-{command.sweep}")


def _entry(key: str, value: str) -> Entry:
    try:
        number = float(value)
    except ValueError:
        return Entry(label=value, overrides=(f"{key}={value}",))
    name = SHORT.get(key, key.rpartition(".")[2])
    return Entry(label=f"{name} = {value}", value=number, overrides=(f"{key}={value}",))
