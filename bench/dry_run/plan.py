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
    Lengths,
    Memory,
    Point,
    apart,
    counted,
    duration,
    known,
    known_model,
    memory_of,
    seconds,
)
from bench.run.judging import lacks_references
from methods.engine.families import check_generation_config
from methods.engine.fingerprints import unhashed
from methods.engine.source import ModelError, Source
from results.store.errors import one_line
from results.store.files import check_creatable

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.session import CellState, Session

MOST_SHOWN = 40
"""Points that are listed one by one without verbose=true."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of a cell before it runs. `name`, its folder, and `memory` are None where
    `problem` says why; `state` is what the store holds."""

    planned: Point
    name: str | None
    memory: Memory | None
    problem: str = ""
    state: CellState | None = None

    @property
    def held(self) -> int:
        return 0 if self.memory is None else self.memory.total

    @property
    def total(self) -> str:
        if self.memory is None or not self.held:
            return "–"
        return size(self.held) if self.memory.is_whole else f"at least {size(self.held)}"


def show_plan(
    planned: Sequence[Point], session: Session, needs: Sequence[str] = (), sessions: int = 1
) -> None:
    """Print the sums of all points, and each point where they are few or with verbose=true; then
    what is needed before they start, `needs` among it. `sessions`: those of the reports, where the
    command names no number."""
    looked = [look(one, session) for one in planned]
    open_ = [one for one in looked if one.state is None or not one.state.is_complete]
    if open_:
        check_creatable(session.store.root, "store.dir")
    shown = [one for one in looked if one.planned.label]
    if looked:
        _show_totals(looked, open_, session, session.settings.sessions or sessions)
    if 0 < len(shown) <= MOST_SHOWN or session.settings.verbose:
        table = Table(
            "point",
            "folder",
            "in the store",
            "prompts",
            "memory",
            title=f"would run in {session.store.root}",
            title_justify="left",
        )
        for one in shown:
            table.add_row(
                one.planned.label,
                one.name or f"unknown: {one.problem}",
                str(one.state or "–"),
                str(counted(one.planned.cell)[0] or "all"),
                one.total,
            )
        session.print(table)
    _show_needs(planned, needs, session)


def look(planned: Point, session: Session) -> Looked:
    """Ask what the cell's models are; a hub model that cannot be asked makes the answer unknown,
    not an error."""
    cell, folders = planned.cell, {}
    batch = session.settings.quality_batch
    for role in cell.roles:
        checkpoint = cell.pair.checkpoint(role)
        folder = config_folder(checkpoint.source, checkpoint.revision)
        if isinstance(folder, str):
            return Looked(
                planned,
                None,
                memory_of(cell, batch, {}),
                f"pair.{role}={checkpoint.source}: {folder}",
            )
        folders[role] = folder
    try:
        if not cell.pair.ignore_generation_config:
            check_generation_config(cell.pair.target.source, cell.pair.target.revision, fetch=True)
        memory = memory_of(cell, batch, folders)
        weights = [
            file
            for role, folder in folders.items()
            for file in unhashed(folder)
            if Source.of(cell.pair.checkpoint(role).source).kind
            not in ("random", "gguf", "package")
        ]
        problem = planned.awaits and f"first: {planned.awaits}"
        if weights:
            problem = (
                f"{size(sum(file.stat().st_size for file in weights))} of weights are not yet "
                "hashed"
            )
        if problem:
            return Looked(planned, None, memory, problem)
        return Looked(
            planned,
            cell.name,
            memory,
            state=session.state(cell, [cell.name] if planned.traced else []),
        )
    except ModelError as error:
        return Looked(planned, None, None, one_line(error))


def _show_totals(
    looked: Sequence[Looked], missing: Sequence[Looked], session: Session, sessions: int
) -> None:
    """The sums of all points, then a line for each pair."""
    prompts = [counted(one.planned.cell)[0] for one in looked]
    points = sum(bool(one.planned.label) for one in looked)
    beside = (
        f" and {len(looked) - points} cells that they are compared with"
        if len(looked) > points
        else ""
    )
    total = sum(count or 0 for count in prompts)
    every = (
        "all prompts of their tasks" if not total else f"{total} prompt{'s' * (total != 1)} in all"
    )
    whole = " and all those of the cells without n" if total and None in prompts else ""
    untraced = sum(one.state is not None and one.state.is_untraced for one in looked)
    again = (
        f", {untraced} without the traces that are read, so their answers are decoded again"
        if untraced
        else ""
    )
    session.print(
        f"{points} point{'s' * (points != 1)}{beside}, {len(looked) - len(missing)} "
        f"complete{again}; {every}{whole}",
        soft_wrap=True,
    )
    lengths, batch = Lengths(session.store), session.settings.quality_batch
    costs = {
        id(one): one.planned._replace(answered=one.state.done if one.state else 0)
        for one in missing
    }
    time = seconds(costs.values(), lengths, batch, sessions)
    answers, clock = (max(int(one > 0), round(one / 60)) for one in time["core"])
    if answers:
        session.print(
            f"time of one core for what is missing: {answers} min for the answers, which all cores "
            f"share, and {clock} min for the timed pass, which runs alone"
            f"{apart(sessions, session.settings.sessions_gap_s)}",
            soft_wrap=True,
        )
    gpu = known().gpu
    if sum(time["GPU"]):
        session.print(
            f"GPU hours: {sum(time['GPU']) / 3600:.3g} on {gpu['name']}, "
            f"{time['GPU'][1] / 3600:.3g} of them the timed pass, if each forward reads its "
            f"weights once at {gpu['bytes_per_s'] / 1e12:.2f} TB/s; τ of the paper, or 1",
            soft_wrap=True,
        )
    assumed = dict.fromkeys(
        (one.planned.cell.task.name, *lengths.of(one.planned.cell)) for one in missing
    )
    if sum(map(sum, time.values())):
        session.print(
            "if an answer has "
            + ", ".join(f"{tokens} tokens on {task} ({whose})" for task, tokens, whose in assumed),
            soft_wrap=True,
        )
    largest = max(looked, key=lambda one: one.held)
    if largest.held:
        cell = largest.planned.cell
        session.print(f"memory: {largest.total} at most ({cell.pair.name} {cell.label})")
    names = list(dict.fromkeys(one.planned.cell.pair.name for one in looked))
    table = Table(
        "pair",
        "cells",
        "complete",
        "memory",
        "time",
        title="by pair; verbose=true lists every point",
        title_justify="left",
    )
    for name in names if len(names) > 1 else ():
        own = [one for one in looked if one.planned.cell.pair.name == name]
        table.add_row(
            name,
            str(len(own)),
            str(sum(one not in missing for one in own)),
            max(own, key=lambda one: one.held).total,
            duration([costs[id(one)] for one in own if id(one) in costs], lengths, batch, sessions),
        )
    if table.row_count:
        session.print(table)


def _show_needs(planned: Sequence[Point], needs: Sequence[str], session: Session) -> None:
    """What has to be there before the cells start: models, data sets, a judge, files that a command
    makes first."""
    cells = [one.cell for one in planned]
    found = [
        *needs,
        *(
            f"{command} (for {count} cells)"
            for command, count in Counter(one.awaits for one in planned if one.awaits).items()
        ),
        *_models(cells),
    ]
    for data in dict.fromkeys(
        str(task["hub"] or task["files"])
        for cell in cells
        if (task := cell.task.options.model_dump()).get("path") is None
        and (task.get("hub") or task.get("files"))
    ):
        held = known().data.get(data, {}).get("bytes")
        found.append(f"data set {data}: {f'about {size(round(held))}' if held else 'size unknown'}")
    tasks = [cell.load_task() for cell in cells]
    found += dict.fromkeys(
        f"bubblewrap, or {one.name} will have no score (score=later): {fault}"
        for one in tasks
        if (fault := one.unscorable())
    )
    unjudged = dict.fromkeys(one.name for one in tasks if one.judged is not None)
    if unjudged and session.settings.judge.base_url is None:
        found.append(
            f"a judge, or {', '.join(unjudged)} will have no score: judge.base_url=URL "
            "judge.model=NAME"
        )
    if session.settings.judge.references is None:
        found += dict.fromkeys(
            f"reference answers for the judge of {one.name}: judge.references=FILE, in FastChat's "
            "answer format"
            for one in tasks
            if lacks_references(one)
        )
    print("needed before you start:" if found else "needed before you start: nothing")
    for line in found:
        session.print(f"  {line}", markup=False, soft_wrap=True)


def _models(cells: Iterable[Cell]) -> list[str]:
    """A line for each model that is not here."""
    found = []
    for one in dict.fromkeys(cell.pair.checkpoint(role) for cell in cells for role in cell.roles):
        if Source.of(one.source).is_here:
            continue
        asked, model = listing(one.source, one.revision), known_model(one.source)
        if not asked.problem and not asked.missing:
            continue
        held = asked.missing or (0 if model is None else 2 * model.parameters)
        said = f"{'about ' if asked.problem else ''}{size(held)}" if held else "size unknown"
        gated = (
            "; gated: its owner must grant access to your token"
            if model is not None and model.gated
            else ""
        )
        found.append(
            f"model {one.source}{f' at {one.revision}' if one.revision else ''}: {said}"
            f"{f'; {asked.problem}' if asked.problem else ''}{gated}"
        )
    return found
