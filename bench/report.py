"""`report=NAME`: run the points of a table or figure that are missing, then render every report from the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from bench.cell import Cell, validated
from bench.closing import console, print_failures, print_summaries, show_plan, trouble
from bench.compose import Command, Composer
from bench.errors import ConfigError, described
from bench.job import run_cells
from bench.runner import rotations
from bench.settings import Settings
from plots.render import render
from results.grid import Outcome
from results.html import Item, write_index
from results.report import Coords, ReportSpec
from results.store import CellFolder, Store
from results.tables import render_table

log = logging.getLogger(__name__)
ALL = "all"


@dataclass(frozen=True, slots=True)
class Plan:
    """A report with the cell of each of its points; `refused` says why a point has none on this machine."""

    spec: ReportSpec
    cells: dict[Coords, Cell]
    refused: dict[Coords, str]

    def grid(self, store: Store) -> dict[Coords, Outcome]:
        """What the store holds for each point."""
        found = {coords: outcome(store.cell(cell.name)) for coords, cell in self.cells.items()}
        return found | {coords: Outcome.missing(reason) for coords, reason in self.refused.items()}


def run_reports(command: Command, hydra: Composer) -> int:
    """Run what the named report needs (`all`: every one) and render all reports into <output.dir>/report/.

    Overrides of the command line win over those of the report. Exit status as for points. Raises ConfigError."""
    settings = Settings.of(command.points[0].config)
    known = hydra.options("report")
    wanted = known if command.report == ALL else [command.report]
    plans = {name: plan_of(hydra.section("report", name), hydra, command.points[0].overrides) for name in {*known, *wanted}}
    chosen = [plans[name] for name in wanted if command.report != ALL or not plans[name].spec.on_request]
    cells = list({cell.name: cell for plan in chosen for cell in plan.cells.values()}.values())
    if not cells:
        raise ConfigError(next((reason for plan in chosen for reason in plan.refused.values()), f"report={ALL}: none yet"))
    if settings.dry_run:
        show_plan(cells, [f"{cell.label} {cell.task.name}" for cell in cells], settings)
        return 0
    for rotation in rotations(cells):
        run_cells(rotation, settings)
    shown = [plan for name, plan in sorted(plans.items()) if plan in chosen or _has_results(plan, settings)]
    render_plans(shown, settings.output.dir / "report", settings, "report")
    refused = {" / ".join(coords): reason for plan in chosen for coords, reason in plan.refused.items()}
    status = print_failures(cells, settings, refused)
    print_summaries(cells, settings)
    return status


def plan_of(section: Mapping[str, Any], hydra: Composer, overrides: Sequence[str]) -> Plan:
    """Compose every point of a report. Raises ConfigError for a report that is not laid out soundly."""
    spec = validated(ReportSpec, section, "report")
    plan = Plan(spec, {}, {})
    for point in spec.points():
        try:
            plan.cells[point.coords] = Cell.of(hydra.point([*point.overrides, *overrides]).config)
        except ConfigError as error:
            plan.refused[point.coords] = str(error)
    return plan


def outcome(folder: CellFolder) -> Outcome:
    """A cell as a report shows it: its numbers, or why there are none."""
    summary, problem = folder.summary(), trouble(folder)
    if summary is not None and summary["n"]:
        return Outcome.measured(summary)
    if summary is not None or folder.failure():
        return Outcome.failed(problem or "no prompt was measured")
    return Outcome.missing(problem or "not run yet")


def render_plans(plans: Sequence[Plan], folder: Path, settings: Settings, name: str) -> None:
    """Tables, figures and one page over all of them; a report that cannot be drawn does not keep the others back."""
    store, items = Store(settings.store.dir), []
    for plan in plans:
        grid = plan.grid(store)
        draw: Callable[..., list[Path]] = render_table if plan.spec.kind == "table" else render
        try:
            paths = draw(plan.spec, grid, folder)
        except Exception as error:  # named, and the page goes on without it
            log.error("report %s was not drawn: %s", plan.spec.name, described(error))
            continue
        items.append(Item(plan.spec, grid, paths))
        console().print(f"{plan.spec.title}: {', '.join(path.name for path in paths)}", highlight=False)
    page = write_index(folder, items, _environment(plans, store))
    console().print(f"page: {page}", highlight=False, soft_wrap=True)
    settings.tracker.options.log_files(name, [path for item in items for path in item.paths])


def _has_results(plan: Plan, settings: Settings) -> bool:
    store = Store(settings.store.dir)
    return any(store.cell(cell.name).summary() is not None for cell in plan.cells.values())


def _environment(plans: Sequence[Plan], store: Store) -> dict[str, Any]:
    """The machine of the cell that ran last, of those shown."""
    recorded = [found for plan in plans for cell in plan.cells.values()
                if (found := store.cell(cell.name).environment()) is not None]
    latest = max(recorded, key=lambda found: found["since"], default={})
    return {key: value for key, value in latest.items() if key != "earlier"}
