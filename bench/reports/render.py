"""Render reports from the store: their tables, their figures, and one page over all of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.reports.overrides import made_by
from bench.reports.viewer import groups_of
from results.reports.axes import replaced
from results.reports.figure_data import render_data
from results.reports.formats import render_table
from results.reports.opening import overview
from results.reports.page import Item, inline_svg, write_index
from results.reports.spec import FigureSpec, TableSpec
from results.reports.splits import method_names, splits_of_groups, splits_of_report
from results.store.reasons import format_exception

if TYPE_CHECKING:
    from markupsafe import Markup

    from bench.config.cell import Cell
    from bench.reports.plan import Plan
    from bench.run.session import Session
    from results.reports.grid import Grid
    from results.reports.spec import Coords
    from results.reports.splits import Split
    from results.reports.viewer.groups import Group

log = logging.getLogger(__name__)
SPLITS = 2
"""Panels that the opening has room for; the others stand in their reports."""


def render_plans(plans: Sequence[Plan], commands: Sequence[str], folder: Path, session: Session,
                 asked: Collection[str] = ()) -> list[Item]:
    """Write every report's table or figure and the page <folder>/index.html. Returns what was drawn of those asked for.

    `commands` has one command per plan, printed under its report; `asked`: names of the reports that the page opens
    with, all if empty. A report that cannot be drawn is logged as an error and left out of the page."""
    items = []
    for plan, command in zip(plans, commands, strict=True):
        grid = plan.grid(session)
        try:
            paths = draw(plan.spec, grid, folder)
        except Exception as error:  # one faulty report must not hide the others
            log.error("report %s was not drawn: %s", plan.spec.name, format_exception(error))
            continue
        items.append(Item(plan.spec, grid, paths, command, cells_of(plan)))
        session.print(f"{plan.spec.title}: {', '.join(path.name for path in paths)}")
    page = page_of(items, plans, folder, session, opened=[plan for plan in plans if plan.spec.name in asked])
    session.print(f"page: {page}", soft_wrap=True)
    return [item for item in items if not asked or item.spec.name in asked]


def page_of(items: Sequence[Item], plans: Sequence[Plan], folder: Path, session: Session, answers: bool = True,
            opened: Sequence[Plan] = ()) -> Path:
    """Write the page of these plans, with what was drawn of them, <folder>/index.html. Returns its path. `answers`:
    with the answers of all cells; `opened`: whose cells it opens with, all if empty."""
    cells = {cell.name: cell for plan in plans for cell in plan.cells.values()}
    groups = groups_of(cells.values(), session.store)
    rows = {cell.name: names[coords] for plan in opened or plans for names in [method_names(plan.spec)]
            for coords, cell in plan.cells.items()}
    first = {plan.spec.name for plan in opened or plans}
    splits = [split for item in items if item.spec.name in first for split in splits_of_report(item.spec, item.grid)]
    return write_page(folder, items, latest_environment(opened or plans, session), groups, answers=answers,
                      opened=groups_with(groups, rows), splits=splits)


def groups_with(groups: Sequence[Group], rows: Mapping[str, str]) -> list[Group]:
    """The groups with these cells, name -> what their report calls them, and their baselines alone."""
    kept = [replace(group, cells=[replace(cell, row=rows.get(cell.key, "")) for cell in group.cells
                                  if cell.baseline or cell.key in rows]) for group in groups]
    return [group for group in kept if any(cell.key in rows for cell in group.cells)]


def log_items(items: Iterable[Item], session: Session, group: str | None = None) -> None:
    """Log the files of each report with the tracker, in a group or each in its own."""
    for item in items:
        session.logbook.log_report(item.spec.name, item.spec.title, item.command, item.paths, group)


def cells_of(plan: Plan) -> dict[Coords, tuple[str, str]]:
    """Coordinates -> name of the cell, and the command that measures it alone."""
    overrides = {point.coords: point.overrides for point in plan.spec.points()}
    return {coords: (cell.name, made_by(*replaced(overrides.get(coords, ()), sizes(cell))))
            for coords, cell in plan.cells.items()}


def sizes(cell: Cell) -> list[str]:
    """The overrides that ask for as many prompts and timed prompts as the cell does."""
    return [*([] if cell.n is None else [f"n={cell.n}"]), f"timed={cell.timed}"]


def write_page(folder: Path, items: Sequence[Item], environment: Mapping[str, Any], groups: Sequence[Group],
               listed: bool = False, answers: bool = True,
               opened: Sequence[Group] | None = None, splits: Sequence[Split] = ()) -> Path:
    """Draw the overview of these cells and write <folder>/index.html. Returns its path. `answers`: with those of the
    cells; `opened`: those of the overview, all if None; `splits`: what it opens with, those of the cells if empty;
    other arguments as `write_index`."""
    from plots.overview import NAME, OF_SPLITS, render_overview, render_splits  # matplotlib, as below

    shown = groups if opened is None else opened
    first = (splits or splits_of_groups(shown))[:SPLITS]
    opening = overview(shown, environment, _inline(render_overview(shown, folder), NAME, "Overview"), first,
                       _inline(render_splits(first, folder), OF_SPLITS, "What gains in τ consist of"))
    return write_index(folder, items, environment, opening=opening, groups=groups if answers else (), listed=listed)


def _inline(paths: Sequence[Path], name: str, title: str) -> Markup | None:
    """The SVG among these files, for the page."""
    return next((inline_svg(path, name, title) for path in paths if path.suffix == ".svg"), None)


def draw(spec: TableSpec | FigureSpec, grid: Grid, folder: Path) -> list[Path]:
    """Write one report's files into `folder` and return their paths."""
    if isinstance(spec, TableSpec):
        if spec.planes is None:
            return render_table(spec, grid, folder)
        from plots.planes import render_planes  # matplotlib, as below

        return [*render_table(spec, grid, folder), *render_planes(spec.planes, spec.chosen(), grid, folder)]
    from plots.render import render  # matplotlib, which a dry run or a refused command should not cost

    return [*render(spec, grid, folder), *render_data(spec, grid, folder)]


def latest_environment(plans: Sequence[Plan], session: Session) -> dict[str, Any]:
    """The environment record of the cell among those shown that ran last; empty if none ran."""
    records = [record for plan in plans for cell in plan.cells.values()
               if (record := session.folder(cell).environment()) is not None]
    latest = max(records, key=lambda record: record["since"], default={})
    return {key: value for key, value in latest.items() if key != "earlier"}
