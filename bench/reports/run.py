"""`report=NAME`: run the missing cells of a report, or of several (`[NAME,NAME]`, `all`, `every`), then render it from
the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.config.compose import composer
from bench.config.errors import refuse_booleans
from bench.config.section import refusals
from bench.reports.outlook import announce, reachable, show_cells, show_reports
from bench.reports.overrides import LAYOUT, Selection, key_of, made_by, takes_rule
from bench.reports.plan import Plan, needs_judge, plan_of, uncollected
from bench.reports.steps import run_steps
from bench.run.judging import check_references, judge_cells
from bench.run.session import Session
from results.reports.spec import AnyReport, TableSpec, parse_report, report_keys
from results.store.files import check_creatable, check_writable

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.command import Command
    from bench.config.compose import Composer
    from results.reports.grid import Outcome
    from results.reports.page import Item
    from results.reports.spec import Coords, FigureSpec

ALL, EVERY, LIST = "all", "every", "list"
"""In place of a report's name: those that `make tables` runs, those on request too, or a list of them."""
NO_NUMBER = {"fresh", "output.keep", "output.dir", "store.dir", "quality_batch", "workers"}
"""Overrides that change no number of a report."""


@dataclass(frozen=True, slots=True)
class Request:
    """What `report=NAME` or `report=[NAME,NAME]` on the command line asks for.

    reports     names of reports; or all, every or list alone.
    changes     overrides of the report itself: `report.KEY=VALUE`.
    overrides   all other overrides: of its cells and of the settings.
    """

    reports: tuple[str, ...]
    changes: tuple[str, ...]
    overrides: tuple[str, ...]

    @classmethod
    def from_command(cls, command: Command) -> Request:
        """Raises ValueError for `report.KEY=` together with several reports, and for several of which one is a
        group."""
        changes = tuple(line for line in command.overrides if key_of(line).lstrip("+").startswith("report."))
        request = cls(command.reports, changes, tuple(line for line in command.overrides if line not in changes))
        if len(request.reports) > 1 and (groups := {ALL, EVERY, LIST} & set(request.reports)):
            raise ValueError(f"{request}: {sorted(groups)[0]} cannot be combined with other reports; give it alone, "
                             "or only names of reports")
        if changes and (len(request.reports) > 1 or request.reports[0] in (ALL, EVERY, LIST)):
            raise ValueError(f"{changes[0]}: changes one report, {request} names several; give "
                             "report=NAME (report=list shows all)")
        return request

    def __str__(self) -> str:
        return f"report={self.reports[0]}" if len(self.reports) == 1 else f"report=[{','.join(self.reports)}]"

    def asks(self, *names: str) -> bool:
        """Whether one of these names is among those given."""
        return bool(set(names) & set(self.reports))

    def names(self, spec: TableSpec | FigureSpec) -> bool:
        """Whether this report is asked for; report=all leaves out those `on_request`."""
        return self.asks(spec.name, EVERY) or (self.asks(ALL) and not spec.on_request)

    def changes_to(self, report: str) -> tuple[str, ...]:
        return self.changes if self.asks(report) else ()

    def overrides_of(self, spec: TableSpec | FigureSpec) -> list[str]:
        """The overrides of a report's cells: those of the rule only where it takes one or is asked for."""
        return [line for line in self.overrides
                if takes_rule(spec) or self.names(spec) or key_of(line).partition(".")[0] != "rule"]

    def command(self, report: str) -> str:
        """The command that makes this one report, without what changes no number of it: where files are, that it was
        timed anew, how many prompts were decoded together."""
        own = (line for line in self.overrides if key_of(line) not in NO_NUMBER)
        return made_by(f"report={report}", *self.changes_to(report), *own)


def run_reports(command: Command, hydra: Composer) -> int:
    """Run the missing cells of the requested reports and render them into <output.dir>/report/. The page there also
    shows the reports that were rendered before.

    Overrides on the command line win over those of the report; `report.KEY=` changes the report itself. Returns the
    exit status: 0, or 1 if a cell failed. Raises ValueError if the command cannot run."""
    request = Request.from_command(command)
    session = Session(hydra.settings(request.overrides))
    folder = session.settings.output.dir / "report"
    reports = load_reports(request, hydra, None if session.settings.dry_run else folder)
    if request.asks(LIST):
        show_reports(reports.values(), request.overrides, session)
        return 0
    specs = list(reports.values())
    with uncollected():
        plans = {spec.name: plan_of(spec, hydra, request.overrides_of(spec)) for spec in specs}
    requested = [spec.name for spec in specs if request.names(spec)]
    if session.settings.cost is None:  # a profile prices every prompt
        check_selection([] if request.asks(ALL, EVERY) else [plans[name] for name in requested])
    steps = [step for name in requested for step in plans[name].steps.values()]
    if session.settings.dry_run:
        check_creatable(folder, "output.dir")
        found = [plans[name] for name in requested]
        if not any(plan.cells or plan.steps for plan in found) and not (found and all(plan.absent for plan in found)):
            runnable(requested, plans, request, session)
        show_cells(found, session)
        return 0
    from bench.reports.render import keep_reports, log_items, render_plans  # pandas, which a dry run should not cost

    if run_steps(steps, session):
        plans = {spec.name: plan_of(spec, hydra, request.overrides_of(spec)) for spec in specs}
    plans = reachable(plans)
    requested = runnable(requested, plans, request, session)
    shown = {name: plan for name, plan in plans.items() if plan.cells or name in requested}
    session.check([cell for plan in shown.values() for cell in plan.all_cells()], "report")
    if (keep := session.settings.output.keep) is not None:
        check_writable(keep, "output.keep")
    announce([plans[name] for name in requested], session)
    judged = run_plans([plans[name] for name in requested], session)
    own = {plans[name].spec.name: name for name in requested}
    items = render_plans(list(shown.values()), [request.command(name) for name in shown], folder, session, own)
    log_items(items, session)
    print_verdicts(items, session)
    if keep is not None:
        keep_reports([plans[own[item.spec.name]] for item in items], items, keep, session)
    return max(judged, print_status([plans[name] for name in requested], session))


def report_grid(name: str) -> dict[Coords, Outcome]:
    """Run and render a table or figure as `report=NAME` does; what the store then holds for each of its points. Raises
    ValueError."""
    with composer() as hydra:
        run_reports(hydra.command([f"report={name}"]), hydra)
        return plan_of(load_report(name, hydra), hydra, []).grid(Session(hydra.settings([])))


def load_reports(request: Request, hydra: Composer, folder: Path | None) -> dict[str, AnyReport]:
    """The requested reports and those already rendered into `folder`, if given, by name. Raises ValueError for an
    unknown or a malformed report."""
    for name in request.reports:
        hydra.check_option("report", name, ALL, EVERY, LIST)
    selection, reports = Selection.from_overrides(request.overrides), {}
    for name in hydra.options("report"):
        was_rendered = folder is not None and any(folder.glob(f"{name}*"))
        if not was_rendered and not request.asks(name, ALL, EVERY, LIST):
            continue  # composing a report takes a tenth of a second
        report = load_report(name, hydra, request.changes_to(name))
        is_requested = request.names(report)
        if request.asks(name, LIST) or ((was_rendered or is_requested) and is_edition(
                report, selection, None if is_requested else folder)):
            reports[name] = report
    return reports


def load_report(name: str, hydra: Composer, changes: Sequence[str] = ()) -> AnyReport:
    """conf/report/NAME.yaml with `changes`, validated. Raises ValueError."""
    section = hydra.section("report", name, changes)
    with refusals("report", report_keys(section.get("kind", "")), given=section):
        report = parse_report(section)
    refuse_booleans(section, report, "report")
    if report.name != name:
        raise ValueError(f"report={name}: its YAML has name: {report.name}; give it the file's name")
    return report


def is_edition(report: AnyReport, selection: Selection, folder: Path | None) -> bool:
    """Whether the report has this edition and, with `folder`, whether it was rendered there."""
    if not report.has_edition(selection.pairs, selection.scale):
        return False
    return folder is None or any(folder.glob(f"{selection.edition(report).name}.*"))


def runnable(requested: Sequence[str], plans: Mapping[str, Plan], request: Request, session: Session) -> list[str]:
    """Of the requested reports those with a cell that can run; of a group the others are left out with their reason.
    Raises ValueError, with the reason of the first refusal, if there is none."""
    names = [name for name in requested if plans[name].cells]
    if not names:
        refusals = (reason for name in requested for reason in plans[name].refused.values())
        edition = " ".join(line for line in request.overrides if key_of(line) in ("pair", *LAYOUT)) or "scale=embedded"
        absent = next((reason for name in requested for reason in plans[name].absent.values()),
                      f"no requested report supports {edition}; see report=list")
        raise ValueError(next(refusals, f"{request}: no cell can run: {absent}"))
    for name in requested:
        if name not in names:
            reason = next(iter((plans[name].refused | plans[name].absent).values()))
            session.print(f"left out: report={name}: {reason}", markup=False, soft_wrap=True)
    return names


def check_selection(plans: Sequence[Plan]) -> None:
    """Raises ValueError where rows select their setting by speed and fewer than two prompts are timed."""
    for plan in plans:
        timed = [cell.timed for coords, cell in plan.cells.items() if not plan.is_untimed(coords)]
        if getattr(plan.spec, "choice", None) is not None and min(timed, default=2) < 2:
            raise ValueError(f"timed={min(timed)}: {plan.spec.title} selects settings by their speed on one half of "
                             "the prompts and reports the other: give at least timed=2")


def run_plans(plans: Sequence[Plan], session: Session) -> int:
    """Measure, trace and audit the cells of these reports where that is missing, add the metrics that compare cells,
    compare meanings, and let an LLM judge those whose grades are shown. Returns 1 where one of the last two failed,
    else 0."""
    from bench.reports.bound import audit
    from bench.reports.meanings import compare_meanings  # torch, which a refused command should not cost

    for reason in sorted({reason for plan in plans for reason in plan.absent.values()}):
        session.print(f"left out: {reason}")
    if session.settings.judge.base_url is not None:
        check_references([cell for plan in plans if needs_judge(plan.spec) for cell in plan.cells.values()],
                         session.settings.judge)
    for plan in plans:
        session.logbook.group(plan.spec.name, plan.all_cells())
    traced = {name for plan in plans for name in plan.traced()}
    session.complete(distinct_cells(plans), traced, shown_names(plans), max(plan.spec.sessions for plan in plans))
    audit(plans, session)
    status = max((compare_meanings(plan, session) for plan in plans), default=0)
    if session.settings.judge.base_url is None:
        return status
    for against in sorted({plan.spec.against for plan in plans}):
        judged = {cell.name: cell for plan in plans if plan.spec.against == against and needs_judge(plan.spec)
                  for cell in plan.cells.values()}
        status = max(status, judge_cells(list(judged.values()), session, against))
    return status


def print_verdicts(items: Sequence[Item], session: Session) -> None:
    """Print what the tables say of the rule that the command names."""
    for item in items:
        if isinstance(item.spec, TableSpec) and takes_rule(item.spec):
            for finding in (finding for table in item.tables for finding in table.findings):
                session.print(f"- {finding}", markup=False, soft_wrap=True)


def print_status(plans: Sequence[Plan], session: Session) -> int:
    """Print one line per failure and, with summary=json, the summaries. Returns the exit status: 1 after a failure."""
    problems = {" / ".join(coords): reason for plan in plans for coords, reason in plan.refused.items()}
    traced = (cell for plan in plans if plan.spec.trace for cell in plan.cells.values())
    problems |= {cell.name: reason for cell in traced if (reason := session.trace_failure(cell))}
    cells = distinct_cells(plans)
    status = session.print_failures(cells, problems)
    if session.settings.summary == "json":
        session.print_summaries(cells)
    return status


def distinct_cells(plans: Sequence[Plan]) -> list[Cell]:
    """All cells of these reports with their repeats, each once."""
    cells = (cell for plan in plans for cell in plan.all_cells())
    return list({(cell.name, cell.n, cell.timed): cell for cell in cells}.values())


def shown_names(plans: Sequence[Plan]) -> set[str]:
    """Names of the cells whose answers the page shows: those of its reports and their baselines."""
    return {each.name for plan in plans for cell in plan.cells.values() for each in (cell, cell.baseline())}
