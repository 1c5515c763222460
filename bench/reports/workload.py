"""`report=workload`: a user's own prompts, the settings of conf/report/workload.yaml, and what to make of them.

Every setting is a cell of the store, so the command goes on where it was interrupted and shares its points with other
reports. Written into <output.dir>/workload/: workload.json, index.html, and the table and the figure as files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.table import Table

from bench.config.cell import NOTHING_TO_JUDGE, Cell
from bench.config.compose import Composer
from bench.config.errors import ConfigError
from bench.config.overrides import key_of, made_by
from bench.config.settings import Settings
from bench.dry_run.plan import show_plan
from bench.reports.plan import Plan, plan_of
from bench.reports.render import latest_environment
from bench.run.cells import run_cells
from bench.run.console import console
from bench.run.model_pool import ModelPool
from bench.run.outcome import print_failures
from bench.run.related_cells import add_cross_cell_metrics
from bench.run.rotation import check_store
from plots.render import render
from results.metrics.intervals import LEVEL, together
from results.metrics.quality_loss import (
    Estimate,
    agreement_pairs,
    baseline_right,
    fewest_right,
    quality_measure,
    relative_loss,
    score_pairs,
    speedup_estimate,
)
from results.reports.advice import Advice, Candidate, advise, share, times
from results.reports.formats import render_table
from results.reports.grid import Grid, Outcome
from results.reports.page import Item, advice_section, write_index
from results.reports.spec import Coords
from results.reports.workload import MEASURES, Workload
from results.store.cells import Store
from results.store.sample import Sample
from results.store.summary import Summary

FOLDER = "workload"
COSTS = ("Setting", "draft", "verify", "other", "cycle", "plain token", "prefill", "speedup", "ideal")


@dataclass(frozen=True, slots=True)
class Quality:
    """What quality is measured by; `right`: how many items plain decoding gets right, None without a score."""

    measure: Literal["score", "agreement"]
    right: float | None


@dataclass(frozen=True, slots=True)
class Setting:
    """One measured point: its overrides, its cell's summary, what the advice is given of it."""

    coords: Coords
    overrides: tuple[str, ...]
    cell: Cell
    summary: Summary
    candidate: Candidate

    @property
    def method(self) -> str:
        return self.coords[1]

    def plain(self) -> dict[str, Any]:
        """The setting as JSON."""
        shown = ("n", "failed", "tau", "tau_ci95", "speedup", "precision", "edit_similarity", "accuracy",
                 "accuracy_ci95", "baseline_accuracy", "nll", "baseline_nll", "tokens_per_s",
                 "baseline_tokens_per_s")
        one, plain = self.candidate, self.summary.plain()
        return {"label": one.label, "overrides": list(self.overrides), "cell": self.cell.name, "exact": one.exact,
                **{name: plain.get(name) for name in shown}, **self.clustered(), "items": one.n,
                "together": {"speedup": one.speedup.interval, "quality_loss": one.loss.interval}}

    def clustered(self) -> dict[str, Any]:
        """What is estimated over items here, its intervals for this setting alone."""
        loss, speed = self.candidate.loss, self.candidate.speedup
        return {"quality_loss": loss.value, "quality_loss_ci95": loss.alone, "speedup_ci95": speed.alone}


@dataclass(frozen=True, slots=True)
class Answer:
    """All that is said of a workload. `command` measures the setting that the advice speaks of; empty without one."""

    found: list[Setting]
    quality: Quality
    advice: Advice
    costs: dict[str, dict[str, float | None]]
    basis: list[str]
    command: str


def run_workload(workload: Workload, hydra: Composer, overrides: Sequence[str], settings: Settings,
                 store: Store) -> int:
    """Run what is missing and say what comes of it. Exit status as for points. Raises ConfigError."""
    plan = plan_of(workload.table(), hydra, overrides)
    if not plan.cells:
        raise ConfigError(next(iter(plan.refused.values())))
    cells = list({cell.name: cell for cell in plan.cells.values()}.values())
    if settings.dry_run:
        show_plan(list(plan.cells.values()), [" / ".join(coords[1:]) for coords in plan.cells], store)
        return 0
    check_store(cells, store)
    run_cells(cells, settings, store, ModelPool())
    add_cross_cell_metrics(cells, store)
    found, quality = measured(plan, store, workload.quality_loss)
    advice = advise([one.candidate for one in found], workload.quality_loss, workload.min_prompts)
    answer = Answer(found, quality, advice, costs_of(found), basis_of(workload, plan, quality, found),
                    command_of(plan, found, advice, overrides))
    say(answer)
    write(workload, plan, answer, settings, store)
    refused = {" / ".join(coords[1:]): reason for coords, reason in plan.refused.items()}
    return print_failures(cells, settings, store, refused)


def measured(plan: Plan, store: Store, limit: float) -> tuple[list[Setting], Quality]:
    """Every point that has numbers, and what quality is measured by."""
    samples: dict[Coords, list[Sample]] = {}
    for coords, cell in plan.cells.items():
        folder = store.cell(cell.name)
        if (summary := folder.summary()) is not None and summary.n and not folder.failure():
            samples[coords] = folder.good_samples()
    right = baseline_right(list(samples.values()))
    quality = Quality(quality_measure(right, limit), right)
    exact = [samples[coords] for coords in samples if is_exact(plan.cells[coords])]
    given = {point.coords: point.overrides[len(plan.spec.base):] for point in plan.spec.points()}
    found = []
    for coords, lines in samples.items():
        cell, summary = plan.cells[coords], store.cell(plan.cells[coords].name).summary()
        greedy = cell.decoding.sampling.greedy
        if is_exact(cell):
            loss = Estimate(0.0)
        elif quality.measure == "score":
            loss = relative_loss(score_pairs(lines), len(samples))
        else:  # at temperature 0 no answer agrees more than fully
            best = (1.0, 1.0) if greedy else (0.0, 1.0)
            loss = relative_loss(agreement_pairs(lines, exact, greedy), len(samples), best)
        speed, items = speedup_estimate(lines, summary.speedup, len(samples))
        candidate = Candidate(", ".join(coords[1:]), is_exact(cell), summary.tau, speed, loss, items)
        found.append(Setting(coords, given[coords], cell, summary, candidate))
    return found, quality


def is_exact(cell: Cell) -> bool:
    """Does the cell's method have exactly the target's distribution? Any strict rule at temperature 0; above, the
    lossless test without pruning and without the released codes' q_mode."""
    if cell.rule.name not in NOTHING_TO_JUDGE:
        return False
    exact = cell.pruning is None and getattr(cell.rule.options, "q_mode", "exact") == "exact"
    return cell.decoding.sampling.greedy or exact


def costs_of(found: Sequence[Setting]) -> dict[str, dict[str, float | None]]:
    """Setting -> milliseconds of the parts of its cycle in the profiling pass, for the fastest setting of each method.
    `token` is a token of plain decoding in the same pass, `ideal` the speedup if only drafts and forwards took time."""
    best: dict[str, Setting] = {}
    for one in sorted(found, key=lambda one: one.candidate.speedup.value or 0):
        best[one.method] = one
    costs = {}
    for one in (one for one in found if one in best.values()):
        phases, ideal = one.summary.phases, one.summary.speedup_ideal
        if not phases or not ideal:
            continue  # no answer of the pass had a cycle
        draft, verify = 1e3 * phases["draft"], 1e3 * phases["verify"]
        costs[one.candidate.label] = {
            "draft_ms": draft, "verify_ms": verify, "other_ms": 1e3 * (phases["accept"] + phases["commit"]),
            "cycle_ms": 1e3 * phases["cycle"], "token_ms": ideal * (draft + verify) / one.summary.tau,
            "prefill_ms": 1e3 * phases["prefill"], "speedup": one.summary.speedup, "speedup_ideal": ideal,
        }
    return costs


def basis_of(workload: Workload, plan: Plan, quality: Quality, found: Sequence[Setting]) -> list[str]:
    """What the advice stands on, in words."""
    cell = next(iter(plan.cells.values()))
    path, limit = cell.load_task().path, workload.quality_loss
    lines = [
        f"Measured on {cell.pair.name}, {cell.task.name}{f' ({path})' if path else ''}, temperature "
        f"{cell.decoding.temperature:g}, batch {cell.batch}, at most {cell.decoding.max_new_tokens} new tokens a turn.",
        f"Quality is {MEASURES[quality.measure]}. Up to {limit:.0%} may be lost.",
    ]
    if quality.measure == "agreement" and quality.right is not None:
        items = max(one.candidate.n for one in found)
        lines.append(f"The task's score decides nothing here: plain decoding reaches {quality.right:.3g} of {items}, "
                     f"and below {fewest_right(limit)} a single right answer that is lost is more than {limit:.0%}.")
    many = len(found)
    holds = "are 95% intervals" if many < 2 else (
        f"hold at 95% for all {many} settings together (each at {together(many):.2%}, Bonferroni), since the best of "
        "many looks good by chance. Those in the tables hold at 95% for a setting alone")
    return [*lines, f"The ranges in these sentences decide, and {holds}. What is said is shown by a whole range over "
                    f"at least {workload.min_prompts} prompts; several samples of a prompt count as one."]


def command_of(plan: Plan, found: Sequence[Setting], advice: Advice, overrides: Sequence[str]) -> str:
    """The command that measures the setting that the advice speaks of, with all that the report was given: what sets it
    apart stands last. Empty without a setting."""
    best = next((one for one in found if one.candidate.label == advice.best), None)
    if best is None:
        return ""
    own = {key_of(line) for line in best.overrides}
    lines = {key_of(line): line for line in (*plan.spec.base, *best.overrides, *overrides)}  # the last wins
    return made_by(*sorted(lines.values(), key=lambda line: key_of(line) in own))


def cost_rows(costs: dict[str, dict]) -> list[list[str]]:
    """The table of the parts of a cycle, its head first."""
    rows = [list(COSTS)]
    for label, parts in costs.items():
        shown = [f"{parts[name]:.2f} ms ({parts[name] / parts['cycle_ms']:.0%})"
                 for name in ("draft_ms", "verify_ms", "other_ms")]
        speeds = ["–" if parts[name] is None else f"{parts[name]:.2f}×" for name in ("speedup", "speedup_ideal")]
        whole = [f"{parts[name]:.2f} ms" for name in ("cycle_ms", "token_ms", "prefill_ms")]
        rows.append([label, *shown, *whole, *speeds])
    return rows


def say(answer: Answer) -> None:
    """The report as text of a terminal."""
    out = console()
    table = Table("setting", "speedup", "τ", "quality loss", "identical", "tokens/s", "n", title="settings",
                  title_justify="left")
    for one in answer.found:
        summary, candidate = one.summary, one.candidate
        tau = "–" if candidate.tau is None else f"{candidate.tau:.2f}"
        speed = times(candidate.speedup.by_itself()) if candidate.speedup.value else "–"
        loss = "none (lossless)" if candidate.exact else share(candidate.loss.by_itself())
        table.add_row(candidate.label, speed, tau, loss, f"{summary.precision:.0%}",
                      f"{summary.tokens_per_s or 0:.1f}", str(candidate.n))
    out.print(table)
    head, *lines = cost_rows(answer.costs)
    if lines:
        parts = Table(*head, title="a cycle, the fastest setting of each method", title_justify="left")
        for line in lines:
            parts.add_row(*line)
        out.print(parts)
    for line in answer.basis:
        out.print(line, highlight=False, markup=False)
    out.print()
    out.print(answer.advice.headline, style="bold", highlight=False, markup=False)
    for reason in answer.advice.reasons:
        out.print(f"- {reason}", highlight=False, markup=False)
    if answer.command:
        out.print(answer.command, highlight=False, markup=False, soft_wrap=True)


def grid_of(plan: Plan, found: Sequence[Setting], store: Store) -> Grid:
    """The store's outcomes, with what each setting loses."""
    lost = {one.coords: one.summary.with_values(**one.clustered()) for one in found}
    return {coords: Outcome.measured(lost[coords]) if coords in lost else outcome
            for coords, outcome in plan.grid(store).items()}


def write(workload: Workload, plan: Plan, answer: Answer, settings: Settings, store: Store) -> None:
    """workload.json, the table, the figure and the page."""
    folder, found = settings.output.dir / FOLDER, answer.found
    environment, made, grid = latest_environment([plan], store), made_by(*sys.argv[1:]), grid_of(plan, found, store)
    spec = workload.table(any(one.summary.accuracy is not None for one in found))
    short = {coords[1:]: outcome for coords, outcome in grid.items()}
    figure = workload.figure()
    items = [Item(spec, grid, render_table(spec, grid, folder), made),
             Item(figure, short, render(figure, short, folder), made)]
    page = write_index(folder, items, environment, title="Leeway: your own prompts",
                       opening=advice_section(answer.advice, answer.command, answer.basis, cost_rows(answer.costs)))
    best = next((one for one in found if one.candidate.label == answer.advice.best), None)
    measure = answer.quality.measure
    plain = {
        "advice": {**asdict(answer.advice), "overrides": list(best.overrides) if best else [],
                   "command": answer.command},
        "quality": {"measure": measure, "definition": MEASURES[measure], "limit": workload.quality_loss,
                    "min_prompts": workload.min_prompts, "plain_right": answer.quality.right},
        "basis": answer.basis, "level_alone": LEVEL, "level_together": together(len(found)),
        "settings": [one.plain() for one in found],
        "components": answer.costs,
        "unmeasured": {" / ".join(coords[1:]): outcome.reason for coords, outcome in grid.items()
                       if outcome.summary is None},
        "command": made, "environment": environment,
    }
    text = json.dumps(plain, ensure_ascii=False, indent=1)
    (folder / "workload.json").write_text(text + "\n", encoding="utf-8")
    settings.tracker.options.log_files("workload", [path for item in items for path in item.paths])
    console().print(f"page: {page}, numbers: {folder / 'workload.json'}", highlight=False, soft_wrap=True)
    if settings.summary == "json":
        print(json.dumps(plain, ensure_ascii=False))
