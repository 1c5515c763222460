"""`report=NAME`: run the points of a table or figure that are missing, then render every report from the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.config.compose import Command, Composer
from bench.config.errors import ConfigError, format_exception, unknown_key
from bench.config.overrides import key_of, made_by, pair_of
from bench.config.schema import validated
from bench.config.settings import Settings
from bench.dry_run.plan import show_plan
from bench.reports.plan import Plan, environment_of, plan_of, run_missing
from bench.reports.workload import run_workload
from bench.run.bound_audit import audit_cells
from bench.run.console import console
from bench.run.outcome import print_failures, print_summaries
from bench.run.related_cells import add_cross_cell_metrics
from bench.run.rotation import check_store
from plots.render import render
from results.reports.formats import render_table
from results.reports.page import Item, write_index
from results.reports.spec import ReportSpec
from results.reports.workload import Workload, spec_of
from results.store.cells import Store
from results.store.traces import TraceFolder

log = logging.getLogger(__name__)
ALL = "all"
OWN_KEYS = frozenset(Settings.model_fields)


def run_reports(command: Command, hydra: Composer) -> int:
    """Run what the named report needs (`all`: every one) and render it into <output.dir>/report/, whose page also shows
    the reports that were rendered there before.

    Overrides of the command line win over those of the report; `report.KEY=` changes the report itself. Exit status as
    for points. Raises ConfigError."""
    changes = [line for line in command.overrides if key_of(line).lstrip("+").startswith("report.")]
    overrides = [line for line in command.overrides if line not in changes]
    settings = Settings.from_config(hydra.point([x for x in overrides if key_of(x).split(".")[0] in OWN_KEYS]).config)
    folder = settings.output.dir / "report"
    known = hydra.options("report")
    if command.report not in (ALL, *known):
        choices = [f"report={name}" for name in (ALL, *known)]
        raise ConfigError(unknown_key(f"report={command.report}", choices, what="unknown"))
    if changes and command.report == ALL:
        raise ConfigError(f"{changes[0]}: changes one report; name it in place of report={ALL}")
    sections = {name: hydra.section("report", name, changes if name == command.report else ()) for name in known}
    models = {name: spec_of(section) for name, section in sections.items()}
    if models.get(command.report) is Workload:
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
    add_cross_cell_metrics(cells, store)
    made = {name: made_by(f"report={name}", *(changes if name == command.report else ()), *overrides) for name in shown}
    render_plans(list(shown.values()), list(made.values()), folder, settings, "report")
    refused = {" / ".join(coords): reason for plan in chosen for coords, reason in plan.refused.items()}
    refused |= {name: reason for name in traced if (reason := TraceFolder(store.cell(name)).failure())}
    status = print_failures(cells, settings, refused)
    print_summaries(cells, settings)
    return status


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
            log.error("report %s was not drawn: %s", plan.spec.name, format_exception(error))
            continue
        items.append(Item(plan.spec, grid, paths, command))
        console().print(f"{plan.spec.title}: {', '.join(path.name for path in paths)}", highlight=False)
    page = write_index(folder, items, environment_of(plans, store))
    console().print(f"page: {page}", highlight=False, soft_wrap=True)
    settings.tracker.options.log_files(name, [path for item in items for path in item.paths])
