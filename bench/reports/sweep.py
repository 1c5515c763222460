"""`+sweep=NAME`: the figure of a named sweep. conf/sweep/NAME.yaml holds its layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from bench.config.section import Section, parse, refusals
from bench.reports.overrides import made_by
from bench.reports.plan import Plan
from results.reports.axes import Entry
from results.reports.figures import Figure
from results.reports.spec import FigureSpec

if TYPE_CHECKING:
    from bench.config.command import Command
    from bench.run.session import Session

SHORT = {"draft.length": "K", "decoding.temperature": "T"}
"""Keys that are shown under another name than their last part."""


class SweepLayout(Section):
    """The section `sweep`: the title, and a figure whose axes are swept keys. Other swept keys get
    a panel each. `scales`: scale -> overrides that make the sweep the paper's own."""

    title: str
    figure: Figure
    scales: dict[str, tuple[str, ...]] = Field(default_factory=dict)


def plan_of_sweep(command: Command) -> Plan:
    """The figure of a sweep over the keys that take several values, and those that its layout
    names. Raises ValueError for a layout that does not fit the points."""
    layout = parse(SweepLayout, command.points[0].config, "sweep")
    points = [dict(line.split("=", 1) for line in point.overrides) for point in command.points]
    values = {key: list(dict.fromkeys(point[key] for point in points)) for key in points[0]}
    named = layout.figure.axes()
    keys = [key for key, of in values.items() if key in named or len(of) > 1]
    axes = {key: tuple(entry_of(key, value) for value in values[key]) for key in keys}
    panels = (*layout.figure.panels, *(key for key in keys if key not in named))
    with refusals("sweep", SweepLayout.model_fields, prefix=f"+sweep={command.sweep}: "):
        spec = FigureSpec.model_validate(
            {
                "name": f"sweep_{command.sweep}",
                "kind": "figure",
                "title": layout.title,
                "axes": axes,
                "figure": layout.figure.model_copy(update={"panels": panels}),
            }
        )
    coords = [tuple(entry_of(key, point[key]).label for key in keys) for point in points]
    return Plan(spec, dict(zip(coords, command.cells, strict=True)), {})


def render_sweep(command: Command, plan: Plan, session: Session) -> None:
    """Render the sweep into <output.dir>/sweep/NAME/."""
    # pandas, which other commands should not cost
    from bench.reports.render import render_plans

    folder = session.settings.output.dir / "sweep" / str(command.sweep)
    render_plans([plan], [made_by(*command.overrides)], folder, session, plan.spec.name)


def entry_of(key: str, value: str) -> Entry:
    """The entry of one swept value; a number also gets a place on a numeric axis."""
    try:
        number = float(value)
    except ValueError:
        return Entry(label=value, overrides=(f"{key}={value}",))
    name = SHORT.get(key, key.rpartition(".")[2])
    return Entry(label=f"{name} = {value}", value=number, overrides=(f"{key}={value}",))
