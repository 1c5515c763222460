"""Print the findings on a workload and write them: workload.json, index.html, the table and the figure as files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.reports.overrides import made_by
from bench.reports.render import latest_environment, log_items
from results.metrics.intervals import LEVEL, together
from results.reports.advice import share, times
from results.reports.formats import render_table
from results.reports.page import Item, advice_section, write_index
from results.reports.workload import MEASURES, Workload

if TYPE_CHECKING:
    from bench.config.settings import Settings
    from bench.reports.plan import Plan
    from bench.run.session import Session
    from results.reports.findings import Findings, SettingResult
    from results.reports.grid import Grid

FOLDER = "workload"


def print_findings(findings: Findings, session: Session) -> None:
    """Print the settings, the parts of a cycle, the basis, the advice and its command."""
    table = Table("setting", "answer speedup", "by the token", "τ", "quality loss", "identical", "tokens/s", "n",
                  title="settings", title_justify="left")
    for result in findings.results:
        table.add_row(*setting_row(result))
    session.print(table)
    header, *rows = findings.cost_rows()
    if rows:
        costs = Table(*header, title="cost of a cycle, for the fastest setting of each method", title_justify="left")
        for row in rows:
            costs.add_row(*row)
        session.print(costs)
    for line in findings.basis:
        session.print(line, markup=False)
    session.print()
    session.print(findings.advice.headline, style="bold", markup=False)
    for reason in findings.advice.reasons:
        session.print(f"- {reason}", markup=False)
    if findings.command:
        session.print(findings.command, markup=False, soft_wrap=True)


def setting_row(result: SettingResult) -> list[str]:
    summary, candidate = result.summary, result.candidate
    return [
        candidate.label,
        *(times(speedup.by_itself()) if speedup.value else "–" for speedup in (candidate.speedup, candidate.by_token)),
        "–" if candidate.tau is None else f"{candidate.tau:.2f}",
        "none (lossless)" if candidate.exact else share(candidate.loss.by_itself()),
        "–" if summary.precision is None else f"{summary.precision:.0%}",
        "–" if summary.tokens_per_s is None else f"{summary.tokens_per_s:.1f}",
        str(candidate.n),
    ]


def write_findings(workload: Workload, plan: Plan, findings: Findings, session: Session) -> None:
    """Write workload.json, the table, the figure and the page; with summary=json also print the JSON."""
    settings = session.settings
    folder, command = settings.output.dir / FOLDER, made_by(*sys.argv[1:])
    environment, grid = latest_environment([plan], session), grid_of(plan, findings, session)
    items = report_items(workload, findings, grid, settings, command)
    opening = advice_section(findings.advice, findings.command, findings.basis, findings.cost_rows())
    page = write_index(folder, items, environment, title="Leeway: your own prompts", opening=opening)
    record = plain(workload, findings, grid, command, environment)
    file = folder / "workload.json"
    file.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    log_items(items, session, workload.name)
    session.print(f"page: {page}, numbers: {file}", soft_wrap=True)
    if settings.summary == "json":
        print(json.dumps(record, ensure_ascii=False))


def grid_of(plan: Plan, findings: Findings, session: Session) -> Grid:
    """The outcomes in the store, with the estimates of each measured setting."""
    summaries = {result.coords: result.summary.with_values(**result.estimates()) for result in findings.results}
    return {coords: replace(outcome, summary=summaries[coords]) if coords in summaries else outcome
            for coords, outcome in plan.grid(session).items()}


def report_items(workload: Workload, findings: Findings, grid: Grid, settings: Settings, command: str) -> list[Item]:
    """Render the table and the figure."""
    from plots.render import render  # matplotlib, which a dry run or a refused command should not cost

    folder = settings.output.dir / FOLDER
    table = workload.table(any(result.summary.accuracy is not None for result in findings.results))
    figure = workload.figure()
    figure_grid = {coords[1:]: outcome for coords, outcome in grid.items()}  # the figure has no axis "Workload"
    return [Item(table, grid, render_table(table, grid, folder), command),
            Item(figure, figure_grid, render(figure, figure_grid, folder), command)]


def plain(workload: Workload, findings: Findings, grid: Grid, command: str,
          environment: Mapping[str, Any]) -> dict[str, Any]:
    """The findings as workload.json holds them."""
    quality = findings.quality
    return {
        "advice": findings.plain_advice(),
        "quality": {"measure": quality.measure, "definition": MEASURES[quality.measure], "limit": workload.quality_loss,
                    "min_prompts": workload.min_prompts, "plain_right": quality.right},
        "basis": findings.basis, "level_alone": LEVEL, "level_together": together(len(findings.results)),
        "settings": [result.plain() for result in findings.results],
        "components": {label: asdict(cost) for label, cost in findings.costs.items()},
        "unmeasured": {" / ".join(coords[1:]): outcome.reason for coords, outcome in grid.items()
                       if outcome.summary is None},
        "command": command, "environment": dict(environment),
    }
