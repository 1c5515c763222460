"""`dry_run=true`: what would run, what it takes, and what is needed before it starts. Nothing runs;
at most configurations are fetched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.filesize import decimal as size
from rich.table import Table

from bench.dry_run.downloads import config_folder, listing
from bench.dry_run.estimate import (
    MemoryNeed,
    PlannedCell,
    apart,
    duration,
    known_model,
    known_sizes,
    memory_of,
    prompts_and_answers,
)
from bench.dry_run.fit import machine_of, misfit, most_rows, on_fullest
from bench.run.console import counted
from bench.run.judging import lacks_references
from methods.engine.families import check_generation_config
from methods.engine.fingerprints import unhashed
from methods.engine.source import ModelError, ModelSource
from results.store.errors import StoreError, one_line
from results.store.files import check_creatable

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Settings
    from bench.run.session import Session
    from results.store.state import Todo

MOST_SHOWN = 40
"""Points that are listed one by one without verbose=true."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of a cell before it runs. `name`, its folder, `memory` and what it lacks are
    None where `problem` says why."""

    planned: PlannedCell
    name: str | None
    memory: MemoryNeed | None
    problem: str = ""

    @property
    def cell(self) -> Cell:
        return self.planned.cell

    @property
    def is_complete(self) -> bool:
        return self.todo is not None and not self.todo

    @property
    def todo(self) -> Todo | None:
        """What it lacks."""
        return self.planned.todo

    @property
    def bytes(self) -> int:
        return 0 if self.memory is None else self.memory.total

    @property
    def need(self) -> MemoryNeed:
        assert self.memory is not None, "a cell of models of which nothing is known"
        return self.memory

    @property
    def part(self) -> float:
        """Bytes on the fullest of its GPUs."""
        return 0.0 if self.memory is None else on_fullest(self.memory, self.cell)

    @property
    def a_gpu(self) -> str:
        """`part` in words."""
        if not self.bytes:
            return "–"
        return size(int(self.part)) if self.need.is_whole else f"at least {size(int(self.part))}"

    @property
    def total(self) -> str:
        if self.memory is None or not self.bytes:
            return "–"
        return size(self.bytes) if self.memory.is_whole else f"at least {size(self.bytes)}"


def show_plan(
    planned: Sequence[PlannedCell], session: Session, needs: Sequence[str] = (), sessions: int = 1
) -> None:
    """Print the sums of all points, and each point where they are few or with verbose=true; then
    what is needed before they start, `needs` among it. `sessions`: those of the reports, where the
    command names no number."""
    looked = [look(point, session) for point in planned]
    if not all(each.is_complete for each in looked):
        check_creatable(session.store.root, "store.dir")
    if looked:
        _show_totals(looked, session, session.settings.sessions or sessions)
        _show_pairs(looked, session)
    shown = [each for each in looked if each.planned.label]
    if 0 < len(shown) <= MOST_SHOWN or session.settings.verbose:
        table = Table(
            "point",
            "folder",
            "lacks",
            "prompts",
            "memory",
            title=f"would run in {session.store.root}",
            title_justify="left",
        )
        for each in shown:
            table.add_row(
                each.planned.label,
                each.name or f"unknown: {each.problem}",
                "–" if each.todo is None else str(each.todo),
                str(prompts_and_answers(each.cell)[0] or "all"),
                each.total,
            )
        session.print(table)
    _show_needs(planned, needs, session)


def look(planned: PlannedCell, session: Session) -> Looked:
    """Ask what the cell's models are; a hub model that cannot be asked makes the answer unknown,
    not an error."""
    cell = planned.cell
    folders = {}
    batch = session.settings.quality_batch
    for role, checkpoint in cell.checkpoints.items():
        folder = config_folder(checkpoint.source, checkpoint.revision)
        if isinstance(folder, str):
            problem = f"pair.{role}={checkpoint.source}: {folder}"
            return Looked(planned, None, memory_of(cell, batch, {}), problem)
        folders[role] = folder
    try:
        if not cell.pair.ignore_generation_config:
            check_generation_config(
                cell.pair.target.source,
                cell.pair.target.revision,
                fetch=True,
                penalty=cell.decoding.repetition_penalty,
            )
        memory = memory_of(cell, batch, folders)
        weights = [
            file.stat().st_size
            for role, checkpoint in cell.checkpoints.items()
            if ModelSource.of(checkpoint.source).kind not in ("random", "gguf", "package")
            for file in unhashed(folders[role])
        ]
        problem = planned.awaits and f"first: {planned.awaits}"
        if weights:
            problem = f"{size(sum(weights))} of weights are not yet hashed"
        if problem:
            return Looked(planned, None, memory, problem)
        todo = session.todo(cell, is_traced=planned.traced)
        if todo.fault is not None:
            raise StoreError(todo.fault)
        return Looked(planned._replace(todo=todo), cell.name, memory)
    except ModelError as error:
        return Looked(planned, None, None, one_line(error))


def _show_totals(looked: Sequence[Looked], session: Session, sessions: int) -> None:
    """The sums of all points."""
    points = sum(bool(each.planned.label) for each in looked)
    line = counted(points, "point")
    if len(looked) > points:
        line += f" and {len(looked) - points} cells that they are compared with"
    line += f", {sum(each.is_complete for each in looked)} complete"
    if untraced := sum(each.todo is not None and bool(each.todo.trace) for each in looked):
        line += f", {untraced} without the traces that are read, so their answers are decoded again"
    prompts = [prompts_and_answers(each.cell)[0] for each in looked]
    if total := sum(count or 0 for count in prompts):
        line += f"; {counted(total, 'prompt')} in all"
        if None in prompts:
            line += " and all those of the cells without n"
    else:
        line += "; all prompts of their tasks"
    session.print(line, soft_wrap=True)
    if time := duration(each.planned for each in looked if not each.is_complete):
        session.print(
            f"what is missing takes about {time}, right to a factor of two"
            f"{apart(sessions, session.settings.sessions_gap_s)}",
            soft_wrap=True,
        )
    largest = max(looked, key=lambda each: each.part)
    if largest.bytes:
        pair, devices = largest.cell.pair.name, largest.cell.engine.devices
        gpus = f" on {devices} GPUs, {largest.a_gpu} on the fullest," if devices > 1 else ""
        session.print(f"memory: {largest.total}{gpus} at most ({pair} {largest.cell.label})")
    for line in fitting(looked, session.settings):
        session.print(line, markup=False, soft_wrap=True)


def fitting(looked: Sequence[Looked], settings: Settings) -> list[str]:
    """What does not fit the machine, a line for each pair and division of its target; or that all
    fits. Nothing where the machine's GPUs are not known."""
    machine = machine_of(settings.machine, [each.cell for each in looked])
    if machine is None:
        return []
    groups: dict[tuple[object, ...], list[Looked]] = {}
    for each in looked:
        if each.memory is not None and each.bytes:
            engine = each.cell.engine
            key = each.cell.pair.name, engine.parallel, engine.devices, engine.dtype
            groups.setdefault(key, []).append(each)
    lines = []
    for group in groups.values():
        largest = max(group, key=lambda each: each.part)
        cell, need = largest.cell, largest.need
        where = f"{machine.name}: {cell.pair.name}, {counted(len(group), 'cell')}: "
        if fault := misfit(cell, need.with_rows(max(1, cell.batch)), machine):
            lines.append(f"{where}does not fit: {fault}")
        elif (rows := most_rows(cell, need, machine)) < need.rows:
            divided = cell.engine.parallel == "tensor"
            then = f"give quality_batch={rows}" if divided else "a run halves a batch until it fits"
            lines.append(f"{where}of {need.rows} prompts together {rows} fit; {then}")
    return lines or [f"{machine.name}: all fits"]


def _show_pairs(looked: Sequence[Looked], session: Session) -> None:
    """A line for each pair, where there are several."""
    pairs: dict[str, list[Looked]] = {}
    for each in looked:
        pairs.setdefault(each.cell.pair.name, []).append(each)
    if len(pairs) < 2:
        return
    table = Table(
        "pair",
        "cells",
        "complete",
        "memory",
        "GPUs",
        "a GPU",
        "time",
        title="by pair; verbose=true lists every point",
        title_justify="left",
    )
    for name, cells in pairs.items():
        table.add_row(
            name,
            str(len(cells)),
            str(sum(each.is_complete for each in cells)),
            max(cells, key=lambda each: each.bytes).total,
            str(max(each.cell.engine.devices for each in cells)),
            max(cells, key=lambda each: each.part).a_gpu,
            duration(each.planned for each in cells if not each.is_complete) or "–",
        )
    session.print(table)


def _show_needs(planned: Sequence[PlannedCell], needs: Sequence[str], session: Session) -> None:
    """What has to be there before the cells start: models, data sets, a judge, files that a command
    makes first."""
    cells = [point.cell for point in planned]
    steps = Counter(point.awaits for point in planned if point.awaits)
    took = {point.awaits: point.step_time for point in planned if point.awaits}
    started = {
        cell.engine.devices: f"torchrun --nproc-per-node {cell.engine.devices} -m bench …, which "
        "starts a process on each GPU of engine.parallel=tensor (docs/scale.md)"
        for cell in cells
        if cell.engine.parallel == "tensor"
    }
    lines = [
        *started.values(),
        *needs,
        *(
            f"{command} (for {count} cells{f', about {took[command]}' if took[command] else ''}; "
            "steps=now runs it)"
            for command, count in steps.items()
        ),
        *_models(cells),
    ]
    options = [cell.task.options.model_dump() for cell in cells]
    sets = [task.get("hub") or task.get("files") for task in options if task.get("path") is None]
    for data in dict.fromkeys(map(str, filter(None, sets))):
        weight = known_sizes().data.get(data, {}).get("bytes")
        lines.append(
            f"data set {data}: {f'about {size(round(weight))}' if weight else 'size unknown'}"
        )
    tasks = [cell.load_task() for cell in cells]
    faults = {task.name: task.unscorable() for task in tasks}
    lines += [
        f"bubblewrap, or {name} will have no score (score=later): {fault}"
        for name, fault in faults.items()
        if fault
    ]
    unjudged = dict.fromkeys(task.name for task in tasks if task.judged is not None)
    if unjudged and session.settings.judge.base_url is None:
        lines.append(
            f"a judge, or {', '.join(unjudged)} will have no score: judge.base_url=URL "
            "judge.model=NAME"
        )
    if session.settings.judge.references is None:
        lines += dict.fromkeys(
            f"reference answers for the judge of {task.name}: judge.references=FILE, in FastChat's "
            "answer format"
            for task in tasks
            if lacks_references(task)
        )
    print("needed before you start:" if lines else "needed before you start: nothing")
    for line in lines:
        session.print(f"  {line}", markup=False, soft_wrap=True)


def _models(cells: Iterable[Cell]) -> list[str]:
    """A line for each model that is not here."""
    lines = []
    checkpoints = (checkpoint for cell in cells for checkpoint in cell.checkpoints.values())
    for checkpoint in dict.fromkeys(checkpoints):
        source, revision = checkpoint.source, checkpoint.revision
        if ModelSource.of(source).is_here:
            continue
        asked = listing(source, revision)
        model = known_model(source)
        if not asked.problem and not asked.missing:
            continue
        weight = asked.missing or (0 if model is None else 2 * model.parameters)
        line = f"model {source}{f' at {revision}' if revision else ''}: "
        if asked.problem and weight:
            line += "about "
        line += size(weight) if weight else "size unknown"
        if asked.problem:
            line += f"; {asked.problem}"
        if model is not None and model.gated:
            line += "; gated: its owner must grant access to your token"
        lines.append(line)
    return lines
