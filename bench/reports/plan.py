"""The points of a report: composed into cells, run if they are missing, read back from the
store."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bench.config.command import key_of
from bench.reports.choice import chosen_rows
from bench.reports.meaning import lacking_package
from bench.reports.overrides import (
    PairSelection,
    lacking_rule,
    of_points,
    taken_by,
    takes_rule,
    with_names,
)
from bench.reports.spans import spans
from bench.reports.steps import Step, tuned, with_files
from results.metrics.catalog import JUDGED, METRICS, SPANS, TIMED
from results.metrics.cost import stated
from results.metrics.metric import Sums
from results.metrics.summary import Summary
from results.metrics.trace_metrics import trace_metrics
from results.reports.figures import Own
from results.reports.grid import OF_ALTERED, Conditions, Outcome, machine
from results.reports.spec import FigureSpec
from results.store.sample import Compared
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.compose import Composer
    from bench.run.requested_cell import RequestedCell
    from bench.run.session import Session
    from results.reports.spec import Coords, ReportSpec, TableSpec
    from results.store.sample import Sample

COVERAGE, AGREEMENT, CURRENCY = "coverage", "agreement", "currency"
"""Records of a cell: the audit of ARC-Decode's bound, how alike answers are, and how far its
altered target is from the target (`audits.py`)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A report and the cell of each of its points.

    spec      the report's edition on the chosen pair.
    cells     coordinates of a point -> its cell.
    refused   coordinates -> why this machine cannot run the point.
    absent    coordinates -> which part of the pair the point needs but the pair lacks.
    steps     coordinates -> the command that makes the file without which the point is refused.
    notes     coordinates -> numbers of its settings that were measured first.
    """

    spec: TableSpec | FigureSpec
    cells: dict[Coords, Cell]
    refused: dict[Coords, str]
    absent: dict[Coords, str] = field(default_factory=dict)
    steps: dict[Coords, Step] = field(default_factory=dict)
    notes: dict[Coords, str] = field(default_factory=dict)

    def groups(self, axis: str) -> list[list[Cell]]:
        """The cells that differ in this axis alone, together."""
        groups: dict[Coords, list[Cell]] = {}
        for coords, cell in self.cells.items():
            rest = tuple(label for name, label in self.spec.labels(coords).items() if name != axis)
            groups.setdefault(rest, []).append(cell)
        return list(groups.values())

    def all_cells(self) -> list[Cell]:
        """The cells of all points, with their repeats, of which only the samples are needed."""
        repeats = [
            cell.replace(repeat=cell.repeat + i, timed=0)
            for i in range(1, self.spec.repeats)
            for cell in self.repeated()
        ]
        return [*self.cells.values(), *repeats]

    def repeated(self) -> list[Cell]:
        """The cells but those that others are only compared with."""
        return [cell for coords, cell in self.cells.items() if not self.spec.is_frontier(coords)]

    def traced(self) -> set[str]:
        """Names of the cells that the report reads traces of."""
        return {cell.name for cell in self.repeated()} if self.spec.trace else set()

    def grid(self, session: Session) -> dict[Coords, Outcome]:
        """What the store holds for each point; where rows choose among settings, also for each row,
        at its coordinates without those of the settings."""
        measured = {
            coords: self._outcome(coords, cell, session) for coords, cell in self.cells.items()
        }
        for coords in self.notes.keys() & measured.keys():
            notes = (*measured[coords].notes, self.notes[coords])
            measured[coords] = replace(measured[coords], notes=notes)
        if of_meanings(self.spec):
            names = {cell.name: " / ".join(coords) for coords, cell in self.cells.items()}
            for coords, cell in self.cells.items():
                record = session.folder(cell).record(AGREEMENT) or {"values": {}}
                agreement = named(record["values"], names)
                measured[coords] = replace(measured[coords], agreement=agreement)
        for coords, reason in (self.refused | self.absent).items():
            measured[coords] = Outcome.missing(reason)
        return measured | chosen_rows(self.spec, self.cells, measured, session)

    def _outcome(self, coords: Coords, cell: Cell, session: Session) -> Outcome:
        name = self.spec.altered(coords)
        if name:
            return altered_outcome(cell, name, session)
        return outcome(cell, session, self.spec, self.spec.judged_at(coords))


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection of garbage inside: composing hundreds of points makes many objects that stay,
    and looking through them again and again takes a sixth of its time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def plan_of(spec: TableSpec | FigureSpec, hydra: Composer, overrides: Sequence[str]) -> Plan:
    """Compose every point of the report on the pair that `overrides` choose. `overrides` win over
    the report's `base`, and those of the pair also over its axes. A report without a speed needs no
    timed pass.

    Raises ValueError for any other override of an axis: it would show one point under several
    labels."""
    spec = PairSelection.from_overrides(overrides).edition(spec)
    lacking = lacking_rule(spec, overrides)
    spec = with_names(spec, hydra, overrides)
    is_timed = bool(TIMED & set(spec.metrics()))
    overrides = of_points(overrides)
    check_overrides(spec, overrides)
    lacking = lacking or lacking_models(spec, hydra, overrides)
    cost = next((line for line in overrides if key_of(line) == "cost"), None)
    if cost is not None:
        name = cost.partition("=")[2]
        spec = spec.model_copy(
            update={"name": f"{spec.name}_{name}", "title": f"{spec.title}, modelled for {name}"}
        )
    overrides = [line for line in overrides if line != cost]
    untimed = [] if is_timed and cost is None else ["timed=0"]
    plan = Plan(spec, {}, {})
    for point in spec.points():
        coords = point.coords
        without_cell = [entry.no_cell for entry in spec.entries(coords).values() if entry.no_cell]
        if reason := next(iter(without_cell), lacking):
            plan.absent[coords] = reason
            continue
        fixed = {key_of(line) for line in point.fixed} - {"pair"}
        free = [line for line in overrides if taken_by(fixed, key_of(line), spec)]
        lines, step, note = tuned(hydra, [*untimed, *point.overrides, *free])
        if step is not None:
            plan.steps[coords] = step
            plan.refused[coords] = f"needs {step.file}: steps=now first runs {step}"
            continue
        if note:
            plan.notes[coords] = note
        candidate, step = with_files(hydra, lines, hydra.candidate(lines))
        if step is not None:
            plan.steps[coords] = step
        cell = candidate.cell
        if cell is not None and spec.altered(coords) and cell.decoding.sampling.greedy:
            plan.absent[coords] = "temperature 0: a point mass has no distance from the target"
        elif cell is not None:
            plan.cells[coords] = cell
        elif candidate.absent:
            plan.absent[coords] = candidate.absent
        else:
            plan.refused[coords] = candidate.refused
    return plan


def of_meanings(spec: ReportSpec) -> Own | None:
    """The figure of a report that compares texts by models of meaning; None for most."""
    figure = spec.figure if isinstance(spec, FigureSpec) else None
    return figure if isinstance(figure, Own) and figure.meanings else None


def lacking_models(spec: ReportSpec, hydra: Composer, overrides: Sequence[str]) -> str:
    """Why a report that compares meanings cannot run: no model of meaning is given, or a package is
    not installed. Empty for all others."""
    figure = of_meanings(spec)
    if figure is None:
        return ""
    if models := hydra.settings(overrides).similarity.models(figure.meanings):
        return lacking_package(models)
    wanted = " or ".join(f"similarity.{name}=MODEL" for name in figure.meanings)
    return f"needs a model of meaning: {wanted}, a folder or a hub name org/model"


def named(
    agreement: Mapping[str, Mapping[str, Sequence[float]]], names: Mapping[str, str]
) -> dict[str, dict[str, Sequence[float]]]:
    """The agreement of a cell, its series named by coordinates where they are cells of the
    report."""
    return {
        measure: {names.get(series, series): values for series, values in of_series.items()}
        for measure, of_series in agreement.items()
    }


def check_overrides(spec: ReportSpec, overrides: Sequence[str]) -> None:
    """Raises ValueError for an override of a key that an axis of the report sets, except those of
    the pair, and of the rule where a row takes it."""
    entries = [entry for axis in spec.axes.values() for entry in axis]
    axis_keys = {key_of(line) for entry in entries for line in entry.overrides}
    if takes_rule(spec):
        axis_keys.discard("rule")
    for line in overrides:
        if key_of(line) in axis_keys and key_of(line).partition(".")[0] != "pair":
            raise ValueError(
                f"{line}: an axis of report={spec.name}, which sets it itself; change "
                f"conf/report/{spec.name}.yaml, or run a cell without report="
            )


def outcome(
    cell: Cell, session: Session, spec: TableSpec | FigureSpec, asked: float | None = None
) -> Outcome:
    """A cell as a report shows it: its summary (with those of its trace, if the report reads
    traces), how it was measured and what its rows are compared by; or why it has none. `asked`: the
    temperature that it is judged at in place of its own."""
    folder, summary, problem = session.folder(cell), session.compared(cell), session.problem(cell)
    if summary is not None and asked is not None:
        summary = session.judged_at(cell, summary, asked)
    if summary is not None and summary.n:
        traces = TraceFolder(folder, folder.ids)
        pairs = [pair for pair in folder.compared() if isinstance(pair, Compared)]
        if spec.trace:
            tokens = {pair.id: len(pair.sample.output_ids) for pair in pairs}
            audited = {
                name: value
                for name, value in (folder.record(COVERAGE) or {}).items()
                if name.removesuffix("_ci95") in METRICS
            }
            traced = trace_metrics([traces], tokens, cell.decoding.temperature)
            summary = summary.with_values(**traced, **audited)
        if SPANS & {*spec.metrics()}:
            summary = summary.with_values(**spans(cell, [pair.sample for pair in pairs]))
        if summary.judge is not None:
            summary = summary.with_values(**summary.judge.metrics())
        conditions = conditions_of(cell, summary, folder)
        if session.settings.cost is not None:
            conditions = replace(conditions, machine=stated(session.settings.cost), sessions=())
        measured = Outcome.measured(
            summary, traces if spec.trace else None, conditions, unjudged(cell, spec, session)
        )
        pass_at = getattr(cell.task.options, "pass_at", 1)
        if pass_at == 1:
            return measured
        return replace(measured, notes=coinciding([pair.sample for pair in pairs], pass_at))
    if summary is not None or folder.failure():
        return Outcome.failed(problem or "no prompt was measured")
    return Outcome.missing(problem or "not run yet")


def altered_outcome(cell: Cell, name: str, session: Session) -> Outcome:
    """How far the target of a cell, altered so, is from itself on the answers of plain decoding."""
    folder = session.folder(cell.baseline())
    record = folder.record(CURRENCY) or {"prompts": {}, "notes": {}}
    of_prompts = [record["prompts"].get(sample.id, {}) for sample in folder.good_samples()]
    if not of_prompts or not all(name in each for each in of_prompts):
        return Outcome.missing(session.problem(cell) or "not run yet")
    nats = [each[name] for each in of_prompts]
    tokens = [each["tokens"] for each in of_prompts]
    a_token, answer = (Sums.of([*zip(nats, of, strict=True)]) for of in (tokens, [1] * len(nats)))
    task = cell.load_task()
    summary = Summary(n=len(nats), failed=0, metric=task.metric, proportion=task.proportion)
    sums = dict.fromkeys(OF_ALTERED, a_token) | {"distortion_answer": answer}
    summary = summary.with_values(tokens=sum(tokens), **sums)
    conditions = replace(conditions_of(cell, summary, folder), sessions=())
    stated = replace(conditions, cell=f"{folder.key} {name}")  # it is not the cell that is shown
    notes = (record["notes"][name],) if name in record["notes"] else ()
    return replace(Outcome.measured(summary, conditions=stated), notes=notes, altered=name)


def coinciding(samples: Sequence[Sample], pass_at: int) -> tuple[str, ...]:
    """A note where answers to one problem are the same text: their pass@k is near their pass@1. A
    rule that draws few random numbers repeats itself."""
    distinct = len({(sample.item, *sample.texts) for sample in samples})
    if distinct == len(samples):
        return ()
    problems = len({sample.item for sample in samples})
    return (
        f"pass@{pass_at} of {len(samples)} answers to {problems} problems, of which {distinct} are "
        "distinct",
    )


def unjudged(cell: Cell, spec: TableSpec | FigureSpec, session: Session) -> str:
    """Why a cell has no grade; empty where the report shows none and for a task that no LLM
    judges."""
    if not needs_judge(spec) or cell.load_task().judged is None:
        return ""
    return "needs judge.base_url" if session.settings.judge.base_url is None else "not judged"


def needs_judge(spec: TableSpec | FigureSpec) -> bool:
    """Whether the report shows what an LLM judge gives."""
    return bool(set(JUDGED) & set(spec.metrics()))


def conditions_of(cell: Cell, summary: Summary, folder: RequestedCell) -> Conditions:
    """How a measured cell was measured, from its settings, its environment record and its timed
    prompts."""
    environment = folder.environment() or {}
    sessions = {row.session for row in folder.timed()}
    return Conditions(
        pair=cell.pair.name,
        temperature=cell.decoding.temperature,
        seed=cell.seed,
        repeats=summary.repeats,
        theta=getattr(cell.rule.options, "theta", None),
        machine=machine(environment, (session.threads for session in sessions)),
        date=str(environment.get("since", ""))[:10],
        lock=environment.get("lock"),
        baseline=f"{folder.baseline.key} in batches of {cell.batch}",
        sessions=tuple(sorted(sessions)),
        cell=folder.key,
        proportion=cell.load_task().proportion
        and all(sample.group is None for sample in folder.good_samples()),
    )
