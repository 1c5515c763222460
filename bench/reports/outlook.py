"""What reports would run, before they run: the dry run, the list of all reports, models that are out of reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.table import Table

from bench.dry_run.downloads import config_folder
from bench.dry_run.estimate import Lengths, duration
from bench.dry_run.plan import Planned, show_plan
from bench.reports.overrides import Selection
from methods.engine.source import Source
from results.reports.axes import pairs_of
from results.reports.published import published_value

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.reports.plan import Plan
    from bench.run.session import Session
    from results.reports.spec import AnyReport

COLUMNS = ("report", "title", "run by", "scales", "points")


def show_cells(plans: Sequence[Plan], session: Session) -> None:
    """Print what the reports would run: their points, those that wait for a file too, and the cells that these are
    compared with."""
    planned: list[Planned] = []
    for plan in plans:
        waiting = {coords: (step.planned, str(step)) for coords, step in plan.steps.items() if step.planned is not None}
        points = {coords: (cell, "") for coords, cell in plan.cells.items()} | waiting
        for coords, (cell, awaits) in points.items():
            planned.append(Planned(" / ".join(coords), cell, published_value(plan.spec, coords, "tau"),
                                   plan.spec.trace and not plan.is_frontier(coords), awaits))
        beside = [*plan.all_cells(), *(cell.baseline() for cell, _ in points.values())]
        planned += [Planned("", cell) for cell in beside]
    once = {one.cell.unread_name: one for one in reversed(planned)}
    left_out = Counter(reason for plan in plans for coords, reason in (plan.absent | plan.refused).items()
                       if coords not in plan.steps)
    needs = [f"{reason} ({count} point{'s' * (count > 1)} left out)" for reason, count in left_out.items()]
    show_plan([one for one in planned if one is once[one.cell.unread_name]], session, needs)


def show_reports(reports: Iterable[AnyReport], overrides: Sequence[str], session: Session) -> None:
    """Print a line for each report: its title, which command runs it, its scales, and how many points it has in the
    edition that `overrides` choose. No point is composed: that takes torch."""
    chosen = Selection.from_overrides(overrides)
    edition = f"pair={','.join(chosen.pairs)}" if chosen.pairs else f"scale={chosen.scale}"
    table = Table(*COLUMNS, title=f"reports; points of {edition}", title_justify="left")
    for report in reports:
        scales = ", ".join(scale for scale, names in pairs_of(report.axes).items() if names) or "any"
        run_by = "its name, every" if report.on_request else "its name, every, all"
        has_edition = report.has_edition(chosen.pairs, chosen.scale)
        points = str(len(list(chosen.edition(report).points()))) if has_edition else "–"
        table.add_row(report.name, report.title, run_by, scales, points)
    session.print(table)
    session.print("report=all (make tables) runs those marked all, report=every those marked every. report=NAME "
                  "dry_run=true says what one takes and lacks", soft_wrap=True)


def announce(plans: Sequence[Plan], session: Session) -> None:
    """Print how many cells of these reports are missing, and about how long they take where that is known."""
    cells = {(cell.name, cell.n, cell.timed): cell for plan in plans for cell in plan.all_cells()}.values()
    traced = {name for plan in plans for name in plan.traced()}
    if missing := [cell for cell in cells if not session.is_complete(cell, traced)]:
        time = duration([(cell, None) for cell in missing], Lengths(session.store), session.settings.quality_batch)
        takes = "" if time == "–" else f"; they take about {time}"
        session.print(f"missing: {len(missing)} of {len(cells)} cells{takes}. An interrupted run resumes",
                      soft_wrap=True)


def reachable(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The plans, with the cells whose models are neither here nor on a hub that answers among those `absent`."""
    found = {}
    for name, plan in plans.items():
        faults = {coords: fault for coords, cell in plan.cells.items() if (fault := out_of_reach(cell))}
        cells = {coords: cell for coords, cell in plan.cells.items() if coords not in faults}
        found[name] = replace(plan, cells=cells, absent=plan.absent | faults)
    return found


def out_of_reach(cell: Cell) -> str:
    """Which model of the cell can be had neither here nor from the hub, and why; empty where all can."""
    for role in cell.roles:
        checkpoint = cell.pair.checkpoint(role)
        folder = "" if Source.of(checkpoint.source).is_gguf else config_folder(checkpoint.source, checkpoint.revision)
        if isinstance(folder, str) and folder:
            return f"pair.{role}={checkpoint.source}: {folder}"
    return ""
