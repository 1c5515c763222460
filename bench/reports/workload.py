"""`report=workload`: measure the settings of conf/report/workload.yaml on a user's own prompts, and advise on them.

Every setting is a cell of the store, so that re-running the command resumes where it stopped, and other reports share
the cells. workload_page.py prints the findings and writes them into <output.dir>/workload/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from bench.dry_run.plan import show_plan
from bench.reports.overrides import key_of, made_by
from bench.reports.plan import Plan, plan_of
from bench.reports.workload_page import FOLDER, print_findings, write_findings
from results.metrics.intervals import together
from results.metrics.quality_loss import (
    Estimate,
    agreement_pairs,
    answer_speed_estimate,
    baseline_right,
    fewest_right,
    quality_measure,
    relative_loss,
    score_pairs,
    speedup_estimate,
)
from results.reports.advice import Candidate, advise
from results.reports.findings import CycleCost, Findings, Quality, SettingResult
from results.reports.workload import MEASURES, Workload
from results.store.compared import Compared

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.compose import Composer
    from bench.run.session import Session
    from results.reports.spec import Coords


def run_workload(workload: Workload, hydra: Composer, overrides: Sequence[str], session: Session) -> int:
    """Run the missing cells, print the findings and write them. Returns the exit status: 1 if a cell failed. Raises
    ValueError."""
    overrides = [line for line in overrides if key_of(line) != "scale"]  # the prompts are the user's at any scale
    plan = plan_of(workload.table(), hydra, overrides)
    if not plan.cells:
        reason = next(iter((plan.refused | plan.absent).values()))
        if plan.refused or not session.settings.dry_run:
            raise ValueError(reason)
        session.print(f"report={workload.name}: {reason}", markup=False, soft_wrap=True)
        return 0
    cells = list({cell.name: cell for cell in plan.cells.values()}.values())
    if session.settings.dry_run:
        show_plan(list(plan.cells.values()), [" / ".join(coords[1:]) for coords in plan.cells], session)
        return 0
    session.check(cells, FOLDER)
    session.logbook.group(workload.name, cells)
    session.complete(cells)
    findings = evaluate(workload, plan, overrides, session)
    print_findings(findings, session)
    write_findings(workload, plan, findings, session)
    refused = {" / ".join(coords[1:]): reason for coords, reason in plan.refused.items()}
    return session.print_failures(cells, refused)


def evaluate(workload: Workload, plan: Plan, overrides: Sequence[str], session: Session) -> Findings:
    """Estimate speedup and quality loss of every measured setting, and derive the advice."""
    prompts = measured_prompts(plan, session)
    right = baseline_right(list(prompts.values()))
    quality = Quality(quality_measure(right, workload.quality_loss), right)
    results = setting_results(plan, prompts, quality, session)
    advice = advise([result.candidate for result in results], workload.quality_loss, workload.min_prompts)
    best = next((result for result in results if result.candidate.label == advice.best), None)
    command = "" if best is None else command_of(plan, best, overrides)
    sentences = basis(workload, plan, quality, results)
    return Findings(results, quality, advice, best, cycle_costs(results), sentences, command)


def measured_prompts(plan: Plan, session: Session) -> dict[Coords, list[Compared]]:
    """The answered prompts of every cell that was measured, beside their baseline."""
    prompts = {}
    for coords, cell in plan.cells.items():
        folder = session.folder(cell)
        records = None if folder.failure() else folder.measured()
        if pairs := [pair for pair in records or () if isinstance(pair, Compared)]:
            prompts[coords] = pairs
    return prompts


def setting_results(plan: Plan, prompts: Mapping[Coords, list[Compared]], quality: Quality,
                    session: Session) -> list[SettingResult]:
    """One result per measured cell, in the order of the report."""
    overrides = {point.coords: point.fixed for point in plan.spec.points()}
    lossless = [prompts[coords] for coords in prompts if plan.cells[coords].is_lossless]
    results = []
    for coords, own in prompts.items():
        cell = plan.cells[coords]
        summary = session.compared(cell)
        if summary is None:
            continue
        loss = estimate_loss(cell, own, lossless, quality.measure, len(prompts))
        by_token, items = speedup_estimate(own, summary.speedup, len(prompts))
        candidate = Candidate(", ".join(coords[1:]), cell.is_lossless, summary.tau,
                              answer_speed_estimate(own, len(prompts)), loss, items, by_token, summary.length_ratio)
        results.append(SettingResult(coords, overrides[coords], cell.name, summary, candidate))
    return results


def estimate_loss(cell: Cell, own: Sequence[Compared], lossless: Sequence[Sequence[Compared]],
                  measure: Literal["score", "agreement"], settings: int) -> Estimate:
    """The quality that one of `settings` cells loses against plain decoding. `lossless`: prompts of the lossless
    cells, the reference of agreement above temperature 0."""
    if cell.is_lossless:
        return Estimate(0.0)
    if measure == "score":
        return relative_loss(score_pairs(own), settings)
    greedy = cell.decoding.sampling.greedy
    best = (1.0, 1.0) if greedy else (0.0, 1.0)  # at temperature 0 the reference agrees fully with itself
    return relative_loss(agreement_pairs(own, lossless, greedy), settings, best)


def cycle_costs(results: Sequence[SettingResult]) -> dict[str, CycleCost]:
    """Label -> the parts of a cycle in the profiling pass, for the fastest setting of each method."""
    fastest: dict[str, SettingResult] = {}
    for result in sorted(results, key=lambda result: result.candidate.speedup.value or 0):
        fastest[result.method] = result
    return {result.candidate.label: cost for result in results
            if result in fastest.values() and (cost := CycleCost.from_summary(result.summary)) is not None}


def basis(workload: Workload, plan: Plan, quality: Quality, results: Sequence[SettingResult]) -> list[str]:
    """Sentences on what the advice is based on."""
    cell, limit = next(iter(plan.cells.values())), workload.quality_loss
    path: Any = getattr(cell.task.options, "path", None)
    lines = [
        f"Measured on {cell.pair.name}, {cell.task.name}{f' ({path})' if path else ''}, temperature "
        f"{cell.decoding.temperature:g}, batch {cell.batch}, at most {cell.decoding.max_new_tokens} tokens per turn.",
        "Speed is that of whole answers: the target passes of all prompts at the median times of the timed ones, "
        "prefill included.",
        f"Quality is {MEASURES[quality.measure]}. The limit is a loss of {limit:.0%}.",
    ]
    if quality.measure == "agreement" and quality.right is not None:
        items = max(result.candidate.n for result in results)
        lines.append(f"The task's score is not used: plain decoding answers only {quality.right:.3g} of {items} prompts"
                     f" correctly. With fewer than {fewest_right(limit)}, losing one correct answer already exceeds "
                     f"{limit:.0%}.")
    settings = len(results)
    level = "are 95% intervals" if settings < 2 else (
        f"hold at 95% for all {settings} settings together (each at {together(settings):.2%}, Bonferroni), because the "
        "best of many settings looks good by chance. Intervals in the tables hold at 95% for one setting alone")
    lines.append(f"The intervals in these sentences decide, and {level}. A claim requires its whole interval and at "
                 f"least {workload.min_prompts} prompts; several samples of one prompt count as one.")
    return lines


def command_of(plan: Plan, result: SettingResult, overrides: Sequence[str]) -> str:
    """The command that measures this setting alone; the overrides that distinguish it come last."""
    own = {key_of(line) for line in result.overrides}
    lines = {key_of(line): line for line in (*plan.spec.base, *result.overrides, *overrides)}  # the last one wins
    return made_by(*sorted(lines.values(), key=lambda line: key_of(line) in own))
