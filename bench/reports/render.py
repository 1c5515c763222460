"""Render reports from the store: their tables, their figures, and one page over all of them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.reports.viewer import groups_of
from results.reports.axes import AS_GIVEN
from results.reports.figures import Planes
from results.reports.formats import render_table
from results.reports.grid import labels_of
from results.reports.page import Item, write_index
from results.reports.spec import FigureSpec, TableSpec
from results.store.errors import format_exception
from results.store.files import copy_file, replace_text

if TYPE_CHECKING:
    from bench.reports.plan import Plan
    from bench.run.session import Session
    from results.reports.grid import Grid

log = logging.getLogger(__name__)
KEPT = (".md", ".csv", ".tex", ".png")
"""Endings of the files that `output.keep` keeps; PDF, SVG and HTML are made from the store again."""
QUALITY = ("accuracy", "nll", "precision")
"""Metrics that a trade-off shows against the speed: the first that cells have."""


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
        items.append(Item(plan.spec, grid, paths, command))
        session.print(f"{plan.spec.title}: {', '.join(path.name for path in paths)}")
    page = page_of(items, plans, folder, session, asked=asked)
    session.print(f"page: {page}", soft_wrap=True)
    return [item for item in items if not asked or item.spec.name in asked]


def page_of(items: Sequence[Item], plans: Sequence[Plan], folder: Path, session: Session,
            asked: Collection[str] = ()) -> Path:
    """Write the page of these plans, with what was drawn of them, <folder>/index.html. Returns its path. `asked`: names
    of the reports that it opens with, all if empty."""
    opened = [plan for plan in plans if not asked or plan.spec.name in asked]
    names = {plan.spec.name for plan in opened}
    cells = {cell.name: cell for plan in opened for cell in plan.cells.values()}
    groups = groups_of(cells.values(), session.store, row_names(opened))
    with TemporaryDirectory() as made:
        first = [item for item in items if item.spec.name in names]
        if not any(isinstance(item.spec, FigureSpec) for item in first):
            first = [replace(item, figure=trade_off(item, Path(made))) for item in first]
        return write_index(folder, first, latest_environment(opened, session), groups=groups,
                           others=[item for item in items if item.spec.name not in names])


def row_names(plans: Iterable[Plan]) -> dict[str, str]:
    """Name of a cell -> what the rows of its table call it."""
    names = {}
    for plan in plans:
        spec = plan.spec
        shown = [axis for axis in spec.axes if isinstance(spec, TableSpec) and axis not in spec.columns
                 and len(labels_of(spec.axes[axis])) > 1]
        for coords, cell in plan.cells.items():
            labels = spec.labels(coords)
            names[cell.name] = ", ".join(labels[axis] for axis in shown if labels[axis] != AS_GIVEN)
    return names


def trade_off(item: Item, folder: Path) -> Sequence[Path]:
    """Files of the figure below a report's table, drawn in `folder`: its rows' speed against their quality, unless the
    report has a figure of its own; empty where no two cells have both."""
    spec, summaries = item.spec, [held.summary for held in item.grid.values() if held.summary is not None]
    if not isinstance(spec, TableSpec) or spec.planes is not None:
        return ()
    quality = next((name for name in QUALITY if sum(
        each.value("speedup") is not None and each.value(name) is not None for each in summaries) > 1), None)
    if quality is None:
        return ()
    from plots.planes import render_planes  # matplotlib, as below

    rows = labels_of(spec.axes[spec.rows[-1]])
    planes = Planes(x=("speedup",), y=(quality,), lines={label: (label,) for label in rows})
    return render_planes(planes, spec.chosen(), item.grid, folder)


def log_items(items: Iterable[Item], session: Session, group: str | None = None) -> None:
    """Log the files of each report with the tracker, in a group or each in its own."""
    for item in items:
        session.logbook.log_report(item.spec.name, item.spec.title, item.command, item.paths, group)


def keep_reports(plans: Sequence[Plan], items: Sequence[Item], folder: Path, session: Session) -> None:
    """`output.keep=FOLDER`: copy what was drawn of the reports `plans` there, each with its command and the environment
    it was measured in, and list them with their commands in TABLES.md, whose lines of other reports stay."""
    folder.mkdir(parents=True, exist_ok=True)
    listing, lines = folder / "TABLES.md", kept_lines(folder)
    for plan, item in zip(plans, items, strict=True):
        name, shown = item.spec.name, "md" if item.spec.kind == "table" else "png"
        lines[name] = (f"- [{item.spec.title}]({name}.{shown}): [numbers]({name}.csv), "
                       f"[environment]({name}.environment.json), `{item.command}`")
        record = json.dumps({"command": item.command, **latest_environment([plan], session)}, indent=1,
                            ensure_ascii=False)
        replace_text(folder / f"{name}.environment.json", f"{record}\n")
        for path in item.paths:
            if path.suffix in KEPT:
                copy_file(path, folder / path.name)
    replace_text(listing, "\n".join(["# Tables and figures", "", *(lines[name] for name in sorted(lines)), ""]))
    session.print(f"kept in {folder}: {', '.join(item.spec.name for item in items)}", soft_wrap=True)


def kept_lines(folder: Path) -> dict[str, str]:
    """Name of a kept report -> its line of TABLES.md."""
    listing = folder / "TABLES.md"
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    return {found[1]: line for line in lines if (found := re.search(r"\[numbers\]\((\w+)\.csv\)", line))}


def draw(spec: TableSpec | FigureSpec, grid: Grid, folder: Path) -> list[Path]:
    """Write one report's files into `folder` and return their paths."""
    if isinstance(spec, TableSpec):
        if spec.planes is None:
            return render_table(spec, grid, folder)
        from plots.planes import render_planes  # matplotlib, as below

        return [*render_table(spec, grid, folder), *render_planes(spec.planes, spec.chosen(), grid, folder)]
    from plots.render import render  # matplotlib, which a dry run or a refused command should not cost

    return render(spec, grid, folder)


def latest_environment(plans: Sequence[Plan], session: Session) -> dict[str, Any]:
    """The environment record of the cell among those shown that ran last; empty if none ran."""
    records = [record for plan in plans for cell in plan.cells.values()
               if (record := session.folder(cell).environment()) is not None]
    latest = max(records, key=lambda record: record["since"], default={})
    return {key: value for key, value in latest.items() if key != "earlier"}
