"""`report=NAME`: run the points of a table or figure that are missing, then render every report from the store."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cell import Cell
from bench.closing import console, print_failures, print_summaries, trouble
from bench.compose import Command, Composer
from bench.controls import relate
from bench.coverage import RECORD, audit_cells
from bench.errors import ConfigError, NotInPair, described, unknown
from bench.job import run_cells
from bench.plan import show_plan
from bench.runner import check_store, is_complete, rotations
from bench.sections import validated
from bench.settings import Settings
from bench.trace import trace_cells
from plots.render import render
from results.grid import Outcome
from results.html import Item, write_index
from results.report import Coords, ReportSpec
from results.store import CellFolder, Store
from results.tables import render_table
from results.trace import TraceFolder
from results.traced import traced_metrics
from results.workload import Workload, spec_of

log = logging.getLogger(__name__)
ALL = "all"
OWN_KEYS = frozenset(Settings.model_fields)


@dataclass(frozen=True, slots=True)
class Plan:
    """A report with the cell of each of its points; `refused` says why a point has none on this machine, `absent` for
    which points the pair lacks a part."""

    spec: ReportSpec
    cells: dict[Coords, Cell]
    refused: dict[Coords, str]
    absent: dict[Coords, str] = field(default_factory=dict)

    def all_cells(self) -> list[Cell]:
        """The cells of all points, with their repeats."""
        return [cell.twin(repeat=cell.repeat + i) if i else cell
                for i in range(self.spec.repeats) for cell in self.cells.values()]

    def grid(self, store: Store) -> dict[Coords, Outcome]:
        """What the store holds for each point."""
        found = {coords: outcome(store.cell(cell.name), self.spec.trace) for coords, cell in self.cells.items()}
        return found | {coords: Outcome.missing(reason) for coords, reason in (self.refused | self.absent).items()}


def run_reports(command: Command, hydra: Composer) -> int:
    """Run what the named report needs (`all`: every one) and render it into <output.dir>/report/, whose page also shows
    the reports that were rendered there before.

    Overrides of the command line win over those of the report; `report.KEY=` changes the report itself. Exit status as
    for points. Raises ConfigError."""
    changes = [line for line in command.overrides if key_of(line).lstrip("+").startswith("report.")]
    overrides = [line for line in command.overrides if line not in changes]
    settings = Settings.of(hydra.point([x for x in overrides if key_of(x).split(".")[0] in OWN_KEYS]).config)
    folder = settings.output.dir / "report"
    known = hydra.options("report")
    if command.report not in (ALL, *known):
        choices = [f"report={name}" for name in (ALL, *known)]
        raise ConfigError(unknown(f"report={command.report}", choices, what="unknown"))
    if changes and command.report == ALL:
        raise ConfigError(f"{changes[0]}: changes one report; name it in place of report={ALL}")
    sections = {name: hydra.section("report", name, changes if name == command.report else ()) for name in known}
    models = {name: spec_of(section) for name, section in sections.items()}
    if models.get(command.report) is Workload:
        from bench.workload import run_workload

        return run_workload(validated(Workload, sections[command.report], "report"), hydra, overrides, settings)
    specs = {name: validated(ReportSpec, sections[name], "report")
             for name, model in models.items() if model is ReportSpec}
    wanted = [name for name, spec in specs.items() if command.report in (name, ALL if not spec.on_request else name)]
    pair = pair_of(overrides)
    before = [name for name, spec in specs.items() if any(folder.glob(f"{spec.edition(pair).name}.*"))]
    plans = {name: plan_of(specs[name], hydra, overrides) for name in sorted({*wanted, *before})}
    shown = {name: plan for name, plan in plans.items() if plan.cells or name in wanted}  # files of others stay as are
    chosen = [shown[name] for name in wanted]
    points = [(cell, " / ".join(coords)) for plan in chosen for coords, cell in plan.cells.items()]
    if not points:
        refusals = (reason for plan in chosen for reason in plan.refused.values())
        raise ConfigError(next(refusals, f"report={command.report}: there is none"))
    if settings.dry_run:
        show_plan([cell for cell, _ in points], [label for _, label in points], settings)
        return 0
    check_store([cell for plan in shown.values() for cell in plan.all_cells()], Store(settings.store.dir))
    cells = list({cell.name: cell for plan in chosen for cell in plan.all_cells()}.values())
    traced = {cell.name for plan in chosen if plan.spec.trace for cell in plan.cells.values()}
    for reason in sorted({reason for plan in chosen for reason in plan.absent.values()}):
        console().print(f"left out: {reason}", highlight=False)
    run_missing(cells, settings, traced)
    audit_cells([cell for plan in chosen if plan.spec.audit for cell in plan.cells.values()], Store(settings.store.dir))
    store = Store(settings.store.dir)
    relate(cells, store)
    made = {name: made_by(f"report={name}", *(changes if name == command.report else ()), *overrides) for name in shown}
    render_plans(list(shown.values()), list(made.values()), folder, settings, "report")
    refused = {" / ".join(coords): reason for plan in chosen for coords, reason in plan.refused.items()}
    refused |= {name: reason for name in traced if (reason := TraceFolder(store.cell(name)).failure())}
    status = print_failures(cells, settings, refused)
    print_summaries(cells, settings)
    return status


def run_missing(cells: Sequence[Cell], settings: Settings, traced: Collection[str] = ()) -> None:
    """Complete the cells, rotation by rotation, saying which is at work; those named in `traced` are traced as well."""
    groups = rotations(cells)
    for number, group in enumerate(groups, start=1):
        if any(not is_complete(Store(settings.store.dir).cell(cell.name)) for cell in group):
            first = group[0]
            about = f"{first.pair.name}, {first.task.name}, temperature {first.decoding.temperature:g}"
            console().print(f"{number} of {len(groups)}: {about}, {len(group)} points", highlight=False)
        run_cells(group, settings)
        if not settings.trace and (noted := [cell for cell in group if cell.name in traced]):
            trace_cells(noted, Store(settings.store.dir))


def plan_of(spec: ReportSpec, hydra: Composer, overrides: Sequence[str]) -> Plan:
    """Compose every point of a report's edition on the pair that `overrides` choose; they win over what all its points
    share.

    Raises ConfigError for an override of an axis, which would show one point under several labels. Only the choice of
    the pair may replace an axis' own."""
    spec = spec.edition(pair_of(overrides))
    spanned = {key_of(line) for entries in spec.axes.values() for entry in entries for line in entry.overrides}
    for line in overrides:
        if key_of(line) in spanned and key_of(line).partition(".")[0] != "pair":
            raise ConfigError(f"{line}: an axis of report={spec.name}; change conf/report/{spec.name}.yaml, or run the "
                              "point without report=")
    plan = Plan(spec, {}, {})
    for point in spec.points():
        entries = {key_of(line) for line in point.overrides[len(spec.base):]} - {"pair"}
        own = [line for line in overrides if key_of(line) not in entries]
        try:
            plan.cells[point.coords] = Cell.of(hydra.point([*point.overrides, *own]).config)
        except NotInPair as error:
            plan.absent[point.coords] = str(error)
        except ConfigError as error:
            plan.refused[point.coords] = str(error)
    return plan


def pair_of(overrides: Sequence[str]) -> str | None:
    """The pair that is chosen by name."""
    return next((line.partition("=")[2] for line in overrides if key_of(line) == "pair"), None)


def key_of(override: str) -> str:
    return override.partition("=")[0]


def outcome(folder: CellFolder, trace: bool = False) -> Outcome:
    """A cell as a report shows it: its numbers, with `trace` those of its trace too, or why there are none."""
    summary, problem = folder.summary(), trouble(folder)
    if summary is not None and summary["n"]:
        traces = TraceFolder(folder)
        if not trace:
            return Outcome.measured(summary)
        return Outcome.measured({**summary, **traced_metrics(traces), **(folder.record(RECORD) or {})}, traces)
    if summary is not None or folder.failure():
        return Outcome.failed(problem or "no prompt was measured")
    return Outcome.missing(problem or "not run yet")


def made_by(*overrides: str) -> str:
    """The command that these overrides make, as a shell takes it."""
    return shlex.join(["python", "-m", "bench", *overrides])


def render_plans(plans: Sequence[Plan], commands: Sequence[str], folder: Path, settings: Settings, name: str) -> None:
    """Tables, figures and one page over all of them, each with its command; a report that cannot be drawn does not keep
    the others back."""
    store, items = Store(settings.store.dir), []
    for plan, command in zip(plans, commands, strict=True):
        grid = plan.grid(store)
        draw: Callable[..., list[Path]] = render_table if plan.spec.kind == "table" else render
        try:
            paths = draw(plan.spec, grid, folder)
        except Exception as error:  # named, and the page goes on without it
            log.error("report %s was not drawn: %s", plan.spec.name, described(error))
            continue
        items.append(Item(plan.spec, grid, paths, command))
        console().print(f"{plan.spec.title}: {', '.join(path.name for path in paths)}", highlight=False)
    page = write_index(folder, items, environment_of(plans, store))
    console().print(f"page: {page}", highlight=False, soft_wrap=True)
    settings.tracker.options.log_files(name, [path for item in items for path in item.paths])


def environment_of(plans: Sequence[Plan], store: Store) -> dict[str, Any]:
    """The machine of the cell that ran last, of those shown."""
    recorded = [found for plan in plans for cell in plan.cells.values()
                if (found := store.cell(cell.name).environment()) is not None]
    latest = max(recorded, key=lambda found: found["since"], default={})
    return {key: value for key, value in latest.items() if key != "earlier"}
