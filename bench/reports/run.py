"""`report=NAME`: run the missing cells of a report, or of several (`[NAME,NAME]`, `all`, `every`),
then render it from the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from bench.config.command import check_clock, key_of
from bench.config.errors import refuse_booleans
from bench.config.section import refusals
from bench.dry_run.downloads import config_folder
from bench.dry_run.estimate import PlannedCell, apart, duration, step_duration
from bench.dry_run.fit import fault_on, machine_of
from bench.dry_run.plan import show_plan
from bench.reports.overrides import LAYOUT, PairSelection, made_by, takes_rule
from bench.reports.plan import Plan, needs_judge, of_meanings, plan_of, uncollected
from bench.reports.steps import run_steps
from bench.run.judging import check_references, judge_cells
from bench.run.session import Session
from methods.engine.source import ModelSource
from results.reports.axes import pairs_of
from results.reports.contradictions import contradictions, summary
from results.reports.spec import AnyReport, TableSpec, parse_report, report_keys
from results.store.files import check_creatable, check_writable

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.command import Command
    from bench.config.compose import Composer
    from bench.reports.steps import Step
    from results.reports.page import Item
    from results.reports.spec import FigureSpec

ALL, EVERY, LIST, CONTRADICTIONS = "all", "every", "list", "contradictions"
"""In place of a report's name: those that `make tables` runs, those on request too, a list of them,
or what the papers say against themselves."""
NO_NUMBER = {
    "fresh",
    "output.archive",
    "output.dir",
    "store.dir",
    "quality_batch",
    "score",
    "workers",
}
"""Overrides that change no number of a report."""
LISTED = ("report", "title", "run by", "scales", "points")
"""Columns of `report=list`."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What `report=NAME` or `report=[NAME,NAME]` on the command line asks for.

    reports     names of reports; or all, every or list alone.
    changes     overrides of the report itself: `report.KEY=VALUE`.
    overrides   all other overrides: of its cells and of the settings.
    """

    reports: tuple[str, ...]
    changes: tuple[str, ...]
    overrides: tuple[str, ...]

    @classmethod
    def from_command(cls, command: Command) -> ReportRequest:
        """Raises ValueError for `report.KEY=` together with several reports, and for several of
        which one is a group."""
        changes = tuple(
            line for line in command.overrides if key_of(line).lstrip("+").startswith("report.")
        )
        overrides = tuple(line for line in command.overrides if line not in changes)
        request = cls(command.reports, changes, overrides)
        groups = sorted({ALL, EVERY, LIST, CONTRADICTIONS} & set(request.reports))
        if len(request.reports) > 1 and groups:
            raise ValueError(
                f"{request}: {groups[0]} cannot be combined with other reports; give it "
                "alone, or only names of reports"
            )
        if changes and (len(request.reports) > 1 or groups):
            raise ValueError(
                f"{changes[0]}: changes one report, {request} names several; give "
                "report=NAME (report=list shows all)"
            )
        return request

    def __str__(self) -> str:
        names = ",".join(self.reports)
        return f"report={names}" if len(self.reports) == 1 else f"report=[{names}]"

    def with_models(self, reports: Iterable[AnyReport]) -> ReportRequest:
        """With the papers' models of meaning where a report compares meanings at their scale, and
        the command gives none."""
        keys = {key_of(line).partition(".")[0] for line in self.overrides}
        if "scale=paper" not in self.overrides or "similarity" in keys:
            return self
        if not any(map(of_meanings, reports)):
            return self
        return replace(self, overrides=(*self.overrides, "similarity=papers"))

    def asks(self, *names: str) -> bool:
        """Whether one of these names is among those given."""
        return bool(set(names) & set(self.reports))

    def names(self, spec: TableSpec | FigureSpec) -> bool:
        """Whether this report is asked for; report=all leaves out those `on_request`."""
        return self.asks(spec.name, EVERY) or (self.asks(ALL) and not spec.on_request)

    def command(self, report: str) -> str:
        """The command that makes this one report, without what changes no number of it: where files
        are, that it was timed anew, how many prompts were decoded together."""
        lines = (line for line in self.overrides if key_of(line) not in NO_NUMBER)
        return made_by(f"report={report}", *self.changes, *lines)


def run_reports(command: Command, hydra: Composer) -> int:
    """Run the missing cells of the requested reports and render them and their page into
    <output.dir>/report/.

    Overrides on the command line win over those of the report; `report.KEY=` changes the report
    itself. Returns the exit status: 0, or 1 if a cell failed. Raises ValueError if the command
    cannot run."""
    request = ReportRequest.from_command(command)
    if request.asks(CONTRADICTIONS):
        show_contradictions()
        return 0
    reports = load_reports(request, hydra)
    request = request.with_models(reports.values())
    session = Session(hydra.settings(request.overrides))
    folder = session.settings.output.dir / "report"
    if request.asks(LIST):
        show_reports(reports.values(), request.overrides, session)
        return 0
    plans = plans_of(reports, hydra, request)
    # a profile prices every prompt
    if session.settings.cost is None and not request.asks(ALL, EVERY):
        check_selection(plans.values())
    if cells := [cell for plan in plans.values() for cell in plan.cells.values()]:
        check_clock(session.settings, cells)
    if session.settings.dry_run:
        check_creatable(folder, "output.dir")
        if not any(plan.cells or plan.steps for plan in plans.values()) and not (
            plans and all(plan.absent for plan in plans.values())
        ):
            runnable(plans, request, session)
        show_cells(list(plans.values()), session)
        return 0
    # pandas, which a dry run should not cost
    from bench.reports.render import keep_reports, render_plans

    if run_steps(asked_steps(plans, session), session):
        session.forget()
        plans = plans_of(reports, hydra, request)
    plans = runnable(on_machine(reachable(plans), session), request, session)
    drawn = {name: plan for name, plan in plans.items() if not awaits_clock(plan, session)}
    session.check([cell for plan in plans.values() for cell in plan.all_cells()], "report")
    if (archive := session.settings.output.archive) is not None:
        check_writable(archive, "output.archive")
    runnable_plans = list(plans.values())
    announce(runnable_plans, session)
    judged = run_plans(runnable_plans, session)
    if drawn:
        commands = [request.command(name) for name in drawn]
        items = render_plans(list(drawn.values()), commands, folder, session)
        print_verdicts(items, session)
        if archive is not None:
            keep_reports(list(drawn.values()), items, archive, session)
    for name in sorted(set(plans) - set(drawn)):
        session.print(
            f"not drawn: report={name} selects settings by their speed: the same command without "
            "timed=0 times its prompts and draws it",
            soft_wrap=True,
        )
    return max(judged, print_status(runnable_plans, session))


def asked_steps(plans: Mapping[str, Plan], session: Session) -> list[Step]:
    """The commands that run first; with steps=later none, and a line names each. Raises ConfigError
    where their answers cannot be scored."""
    steps = list(dict.fromkeys(step for plan in plans.values() for step in plan.steps.values()))
    if session.settings.steps == "later":
        for step in steps:
            line = f"left out: cells that need {step.file}; steps=now first runs {step}"
            session.print(line, markup=False, soft_wrap=True)
        return []
    if steps:  # they decode
        within = reachable(plans).values()
        session.check_scores([cell for plan in within for cell in plan.all_cells()])
    return steps


def plans_of(
    reports: Mapping[str, AnyReport], hydra: Composer, request: ReportRequest
) -> dict[str, Plan]:
    with uncollected():
        return {name: plan_of(report, hydra, request.overrides) for name, report in reports.items()}


def load_reports(request: ReportRequest, hydra: Composer) -> dict[str, AnyReport]:
    """The requested reports by name, those that have the scale or the pairs. Raises ValueError for
    an unknown or a malformed report."""
    for name in request.reports:
        hydra.check_option("report", name, ALL, EVERY, LIST, CONTRADICTIONS)
    selection, reports = PairSelection.from_overrides(request.overrides), {}
    for pair in selection.pairs:
        hydra.check_option("pair", pair)
    for name in hydra.options("report"):
        if not request.asks(name, ALL, EVERY, LIST):
            continue  # composing a report takes a tenth of a second
        report = load_report(name, hydra, request.changes)
        if request.asks(LIST) or (
            request.names(report) and report.has_edition(selection.pairs, selection.scale)
        ):
            reports[name] = report
    return reports


def load_report(name: str, hydra: Composer, changes: Sequence[str] = ()) -> AnyReport:
    """conf/report/NAME.yaml with `changes`, validated. Raises ValueError."""
    section = hydra.section("report", name, changes)
    with refusals("report", report_keys(section.get("kind", "")), plain=section):
        report = parse_report(section)
    refuse_booleans(section, report, "report")
    if report.name != name:
        raise ValueError(
            f"report={name}: its YAML has name: {report.name}; give it the file's name"
        )
    return report


def runnable(
    plans: Mapping[str, Plan], request: ReportRequest, session: Session
) -> dict[str, Plan]:
    """The reports with a cell that can run; of a group the others are left out with their reason.
    Raises ValueError, with the reason of the first refusal, if there is none."""
    if not any(plan.cells for plan in plans.values()):
        refusals = (reason for plan in plans.values() for reason in plan.refused.values())
        absences = (reason for plan in plans.values() for reason in plan.absent.values())
        chosen = " ".join(line for line in request.overrides if key_of(line) in ("pair", *LAYOUT))
        edition = chosen or "scale=embedded"
        absent = next(absences, f"no requested report supports {edition}; see report=list")
        raise ValueError(next(refusals, f"{request}: no cell can run: {absent}"))
    for name, plan in plans.items():
        if not plan.cells:
            reason = next(iter((plan.refused | plan.absent).values()))
            session.print(f"left out: report={name}: {reason}", markup=False, soft_wrap=True)
    return {name: plan for name, plan in plans.items() if plan.cells}


def fewest_timed(plan: Plan) -> int | None:
    """Of a report whose rows select their setting by speed, the fewest prompts that one of its
    cells times; else None."""
    if getattr(plan.spec, "choice", None) is None:
        return None
    return min((cell.timed for cell in plan.cells.values()), default=None)


def awaits_clock(plan: Plan, session: Session) -> bool:
    """Whether its rows select their setting by speed and `timed=0` asks for the answers alone."""
    return session.settings.cost is None and fewest_timed(plan) == 0


def check_selection(plans: Iterable[Plan]) -> None:
    """Raises ValueError where rows select their setting by the speed of a single prompt."""
    for plan in plans:
        if fewest_timed(plan) == 1:
            raise ValueError(
                f"timed=1: report={plan.spec.name} selects settings by their speed on one half of "
                "the prompts and reports the other: give at least timed=2, or timed=0 for the "
                "answers alone"
            )


def run_plans(plans: Sequence[Plan], session: Session) -> int:
    """Measure, trace and audit the cells of these reports where that is missing, add the metrics
    that compare cells, compare meanings, and let an LLM judge those whose grades are shown. Returns
    1 where one of the last two failed, else 0."""
    # torch, which a refused command should not cost
    from bench.reports.audits import audit, compare_meanings
    from bench.run.run import run

    for reason in sorted({reason for plan in plans for reason in plan.absent.values()}):
        session.print(f"left out: {reason}")
    if session.settings.judge.base_url is not None:
        judged = [cell for plan in plans if needs_judge(plan.spec) for cell in plan.cells.values()]
        check_references(judged, session.settings.judge)
    for plan in plans:
        session.logbook.group(plan.spec.name, plan.all_cells())
    traced = {name for plan in plans for name in plan.traced()}
    shown = {
        name
        for plan in plans
        for cell in plan.cells.values()
        for name in (cell.name, cell.baseline().name)
    }
    sessions = max(plan.spec.sessions for plan in plans)
    run(distinct_cells(plans), session, traced, shown, sessions)
    audit(plans, session)
    status = max((compare_meanings(plan, session) for plan in plans), default=0)
    if session.settings.judge.base_url is None:
        return status
    for against in sorted({plan.spec.against for plan in plans}):
        by_name = {
            cell.name: cell
            for plan in plans
            if plan.spec.against == against and needs_judge(plan.spec)
            for cell in plan.cells.values()
        }
        status = max(status, judge_cells(list(by_name.values()), session, against))
    return status


def print_verdicts(items: Sequence[Item], session: Session) -> None:
    """Print what the tables say of the rule that the command names."""
    for item in items:
        if isinstance(item.spec, TableSpec) and takes_rule(item.spec):
            for table in item.tables:
                for finding in table.findings:
                    session.print(f"- {finding}", markup=False, soft_wrap=True)


def print_status(plans: Sequence[Plan], session: Session) -> int:
    """Print one line per failure and, with summary=json, the summaries. Returns the exit status: 1
    after a failure."""
    problems = {
        " / ".join(coords): reason for plan in plans for coords, reason in plan.refused.items()
    }
    traced = (cell for plan in plans if plan.spec.trace for cell in plan.cells.values())
    failures = {cell.name: session.trace_failure(cell) for cell in traced}
    problems |= {name: reason for name, reason in failures.items() if reason is not None}
    cells = distinct_cells(plans)
    status = session.print_failures(cells, problems)
    if session.settings.summary == "json":
        session.print_summaries(cells)
    return status


def distinct_cells(plans: Sequence[Plan]) -> list[Cell]:
    """All cells of these reports with their repeats, each once."""
    cells = (cell for plan in plans for cell in plan.all_cells())
    return list({(cell.name, cell.n, cell.timed): cell for cell in cells}.values())


def show_cells(plans: Sequence[Plan], session: Session) -> None:
    """Print what the reports would run: their points, those that wait for a file too, and the cells
    that these are compared with."""
    planned: list[PlannedCell] = []
    for plan in plans:
        waiting = {
            coords: (step.planned, str(step), step_duration(step.planned, step.answers))
            for coords, step in plan.steps.items()
            if step.planned is not None
        }
        points = {coords: (cell, "", "") for coords, cell in plan.cells.items()} | waiting
        for coords, (cell, awaits, took) in points.items():
            traced = plan.spec.trace and not plan.spec.is_frontier(coords)
            label = " / ".join(coords)
            point = PlannedCell(cell, traced, label=label, awaits=awaits, step_time=took)
            planned.append(point)
        beside = [*plan.all_cells(), *(cell.baseline() for cell, *_ in points.values())]
        planned += [PlannedCell(cell) for cell in beside]
    once: dict[tuple[str, str], PlannedCell] = {}
    for point in planned:
        once.setdefault((point.cell.unread_name, point.cell.pair.target.source), point)
    left_out = Counter(
        reason
        for plan in plans
        for coords, reason in (plan.absent | plan.refused).items()
        if coords not in plan.steps
    )
    needs = [
        f"{reason} ({count} point{'s' * (count > 1)} left out)"
        for reason, count in left_out.items()
    ]
    for figure in filter(None, (of_meanings(plan.spec) for plan in plans)):
        models = session.settings.similarity.models(figure.meanings)
        needs += [
            f"model {source}: of meaning (similarity.{name})"
            for name, source in models.items()
            if not Path(source).is_dir()
        ]
    sessions = max((plan.spec.sessions for plan in plans), default=1)
    show_plan(list(once.values()), session, needs, sessions)


def show_contradictions() -> None:
    """Print what the papers' numbers and texts say against each other."""
    listed = contradictions()
    for number, contradiction in enumerate(listed, start=1):
        print(contradiction.text(number))
    print(summary(listed))


def show_reports(reports: Iterable[AnyReport], overrides: Sequence[str], session: Session) -> None:
    """Print a line for each report: its title, which command runs it, its scales, and how many
    points it has in the edition that `overrides` choose. No point is composed: that takes torch."""
    chosen = PairSelection.from_overrides(overrides)
    edition = f"pair={','.join(chosen.pairs)}" if chosen.pairs else f"scale={chosen.scale}"
    table = Table(*LISTED, title=f"reports; points of {edition}", title_justify="left")
    for report in reports:
        scales = (
            ", ".join(scale for scale, names in pairs_of(report.axes).items() if names) or "any"
        )
        run_by = "its name, every" if report.on_request else "its name, every, all"
        has_edition = report.has_edition(chosen.pairs, chosen.scale)
        points = str(len(list(chosen.edition(report).points()))) if has_edition else "–"
        table.add_row(report.name, report.title, run_by, scales, points)
    session.print(table)
    session.print(
        "report=all (make tables) runs those marked all, report=every those marked every. "
        "report=NAME dry_run=true says what one takes and lacks",
        soft_wrap=True,
    )


def announce(plans: Sequence[Plan], session: Session) -> None:
    """Print how many cells of these reports are missing, and about how long they take where that is
    known."""
    cells = distinct_cells(plans)
    traced = {name for plan in plans for name in plan.traced()}
    if missing := session.lacking(cells, traced):
        points = [
            PlannedCell(cell, todo=session.todo(cell, is_traced=cell.name in traced))
            for cell in missing
        ]
        sessions = session.settings.sessions or max(plan.spec.sessions for plan in plans)
        time = duration(points)
        pauses = apart(sessions, session.settings.sessions_gap_s)
        takes = f"; they take about {time}{pauses}, right to a factor of two" if time else ""
        session.print(
            f"missing: {len(missing)} of {len(cells)} cells{takes}. An interrupted run resumes",
            soft_wrap=True,
        )


def reachable(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The plans, with the cells whose models are neither here nor on a hub that answers among those
    `absent`."""
    within = {}
    for name, plan in plans.items():
        faults = {coords: out_of_reach(cell) for coords, cell in plan.cells.items()}
        cells = {coords: cell for coords, cell in plan.cells.items() if not faults[coords]}
        absent = {coords: fault for coords, fault in faults.items() if fault}
        within[name] = replace(plan, cells=cells, absent=plan.absent | absent)
    return within


def on_machine(plans: Mapping[str, Plan], session: Session) -> dict[str, Plan]:
    """The plans, with the cells of which a GPU's part does not fit the machine among those
    `refused`."""
    within = {}
    for name, plan in plans.items():
        machine = machine_of(session.settings.machine, plan.cells.values())
        faults = {
            coords: "" if machine is None else fault_on(cell, machine)
            for coords, cell in plan.cells.items()
        }
        cells = {coords: cell for coords, cell in plan.cells.items() if not faults[coords]}
        refused = {coords: fault for coords, fault in faults.items() if fault}
        within[name] = replace(plan, cells=cells, refused=plan.refused | refused)
    return within


def out_of_reach(cell: Cell) -> str:
    """Which model of the cell can be had neither here nor from the hub, and why; empty where all
    can."""
    for role in cell.roles:
        checkpoint = cell.pair.checkpoint(role)
        if ModelSource.of(checkpoint.source).is_gguf:
            continue
        folder = config_folder(checkpoint.source, checkpoint.revision)
        if isinstance(folder, str) and folder:
            return f"pair.{role}={checkpoint.source}: {folder}"
    return ""
