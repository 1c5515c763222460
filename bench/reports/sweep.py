"""`+sweep=NAME`: the figure of a named sweep, and the table behind it. conf/sweep/NAME.yaml holds its layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from bench.config.section import Section, parse, refusals
from bench.reports.overrides import made_by
from bench.reports.plan import Plan
from bench.reports.render import log_items, render_plans
from results.reports.axes import Entry
from results.reports.figures import Figure
from results.reports.spec import FigureSpec, TableSpec

if TYPE_CHECKING:
    from bench.config.point import Command
    from bench.run.session import Session

SHORT = {"draft.length": "K", "decoding.temperature": "T"}
"""Keys that are shown under another name than their last part."""


class Layout(Section):
    """The section `sweep`: the title, and a figure whose axes are swept keys. Other swept keys get a panel each.
    `editions`: scale -> overrides that make the sweep the paper's own."""

    title: str
    figure: Figure
    editions: dict[str, tuple[str, ...]] = Field(default_factory=dict)


def plans_of(command: Command) -> list[Plan]:
    """The figure of a sweep and, if several keys vary, the table behind it. Raises ValueError for a layout that does
    not fit the points."""
    layout = parse(Layout, command.points[0].config, "sweep")
    points = [dict(line.split("=", 1) for line in point.overrides) for point in command.points]
    keys = varying_keys(points, layout.figure.axes())
    axes = {key: tuple(entry_of(key, value) for value in dict.fromkeys(point[key] for point in points)) for key in keys}
    with refusals("sweep", Layout.model_fields, prefix=f"+sweep={command.sweep}: "):
        specs = specs_of(str(command.sweep), layout, axes)
    coords = [tuple(entry_of(key, point[key]).label for key in keys) for point in points]
    return [Plan(spec, dict(zip(coords, command.cells, strict=True)), {}) for spec in specs]


def varying_keys(points: Sequence[Mapping[str, str]], figure_axes: Sequence[str]) -> list[str]:
    """The keys that take several values, and those that the figure names."""
    return [key for key in points[0] if key in figure_axes or len({point[key] for point in points}) > 1]


def specs_of(sweep: str, layout: Layout, axes: Mapping[str, tuple[Entry, ...]]) -> list[FigureSpec | TableSpec]:
    """The figure over all axes, and a table if there are several. Raises ValidationError."""
    others = [key for key in axes if key not in layout.figure.axes()]
    figure = layout.figure.model_copy(update={"panels": (*layout.figure.panels, *others)})
    name, common = f"sweep_{sweep}", {"title": layout.title, "axes": axes}
    specs: list[FigureSpec | TableSpec] = [
        FigureSpec.model_validate({"name": name, "kind": "figure", "figure": figure, **common})]
    if len(axes) > 1:
        column, *rows = axes
        layout_of_table: dict[str, Any] = {"columns": [column], "rows": rows,
                                           "values": list(dict.fromkeys([*figure.metrics(), "tau"]))}
        specs.append(TableSpec.model_validate({"name": f"{name}_table", "kind": "table", **layout_of_table, **common}))
    return specs


def render_sweep(command: Command, plans: Sequence[Plan], session: Session) -> None:
    """Render the sweep into <output.dir>/sweep/NAME/."""
    folder, made = session.settings.output.dir / "sweep" / str(command.sweep), made_by(*command.overrides)
    log_items(render_plans(plans, [made] * len(plans), folder, session), session, plans[0].spec.name)


def entry_of(key: str, value: str) -> Entry:
    """The entry of one swept value; a number also gets a place on a numeric axis."""
    try:
        number = float(value)
    except ValueError:
        return Entry(label=value, overrides=(f"{key}={value}",))
    name = SHORT.get(key, key.rpartition(".")[2])
    return Entry(label=f"{name} = {value}", value=number, overrides=(f"{key}={value}",))
