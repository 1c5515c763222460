"""`dry_run=true`: what would run, what it takes in memory, what it would download. Nothing runs; at most configurations
are fetched."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from rich.table import Table

from bench.dry_run.downloads import listing, size
from bench.dry_run.hours import Cost, cost, cpu_time, hours, prompts_of
from bench.dry_run.memory import Memory, memory_of
from bench.dry_run.totals import minutes, rounded, show_downloads, show_totals
from methods.engine.fingerprints import unhashed
from methods.engine.generation_config import check_generation_config
from methods.engine.source import ModelError, Source
from results.store.files import check_creatable
from results.store.reasons import one_line

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.session import CellState, Session

MOST_SHOWN = 40
"""Points that are listed one by one without verbose=true."""


@dataclass(frozen=True, slots=True)
class DryRunEntry:
    """What is known of a cell before it runs.

    name          its folder in the store; None where `problem` says why
    memory        None where `problem` says why
    fingerprints  role -> content fingerprint of the model, or that its weights are not yet hashed
    cost          GPUs and hours, of a paper's pair
    """

    cell: Cell
    name: str | None
    memory: Memory | None
    fingerprints: Mapping[str, str]
    problem: str
    cost: Cost | None = None


def show_plan(cells: Sequence[Cell], labels: Sequence[str], session: Session,
              taus: Sequence[float | None] | None = None, traced: Collection[str] = ()) -> None:
    """Print one point in full; of several the sums, and each point where they are few or with verbose=true. `taus`: the
    paper's τ of each point; `traced`: names of the cells whose traces are read."""
    points = zip(cells, labels, taus or [None] * len(cells), strict=True)
    once = {cell.model_dump_json(): (cell, label, tau) for cell, label, tau in points}
    entries = [replace(dry_run_entry(cell), cost=cost(cell, tau)) for cell, _, tau in once.values()]
    states = [None if found.name is None else session.state(found.cell, traced) for found in entries]
    if not all(state is not None and state.is_complete for state in states):
        check_creatable(session.store.root, "store.dir")
    if len(entries) == 1:
        _show_point(entries[0], session)
    if len(entries) > 1:
        show_totals(entries, states, session.print)
    if len(entries) <= MOST_SHOWN or session.settings.verbose:
        _show_points(entries, [label for _, label, _ in once.values()], states, session)
    show_downloads(entries, session.print)


def _show_points(entries: Sequence[DryRunEntry], labels: Sequence[str], states: Sequence[CellState | None],
                 session: Session) -> None:
    with_costs = any(found.cost for found in entries)
    titles = ["point", "folder", "in the store", "prompts", "memory", *(["GPUs", "GPU hours"] if with_costs else [])]
    table = Table(*titles, title=f"would run in {session.store.root}", title_justify="left")
    for found, label, state in zip(entries, labels, states, strict=True):
        name = found.name or f"unknown: {found.problem}"
        held = "–" if found.memory is None else _total(found.memory)
        costs = _cost_texts(found.cost) if with_costs else []
        table.add_row(label, name, str(state or "–"), _prompts(found.cell), held, *costs)
    session.print(table)


def _total(memory: Memory) -> str:
    return size(memory.total) if memory.is_whole else f"at least {size(memory.total)}"


def _prompts(cell: Cell) -> str:
    """How many prompts: no more than a file has that is here."""
    return str(prompts_of(cell) or cell.n or "all")


def dry_run_entry(cell: Cell) -> DryRunEntry:
    """Ask what the cell's models are; a hub model that cannot be asked makes the answer unknown, not an error."""
    folders = {}
    for role in cell.roles:
        checkpoint = cell.pair.checkpoint(role)
        folder = config_folder(checkpoint.source, checkpoint.revision)
        if isinstance(folder, str):
            return DryRunEntry(cell, None, memory_of(cell, {}), {}, f"pair.{role}={checkpoint.source}: {folder}")
        folders[role] = folder
    try:
        if not cell.pair.ignore_generation_config:
            check_generation_config(cell.pair.target.source, cell.pair.target.revision, fetch=True)
        memory = memory_of(cell, folders)
        if new := {role: note for role, folder in folders.items() if (note := _unhashed(cell, role, folder))}:
            sources = {role: cell.pair.checkpoint(role).source for role in new}
            problem = "; ".join(f"pair.{role}={sources[role]}: {note}" for role, note in new.items())
            return DryRunEntry(cell, None, memory, new, problem)
        return DryRunEntry(cell, cell.name, memory, cell.fingerprints(), "")
    except ModelError as error:
        return DryRunEntry(cell, None, None, {}, one_line(error))


def duration(points: Sequence[tuple[Cell, float | None]]) -> str:
    """Minutes or GPU hours that cells take at most, with the paper's τ of each; – where neither is known."""
    if points and (time := cpu_time([cell for cell, _ in points])) is not None:
        return f"{minutes(time.answers + time.clock)} min"
    costs = [(cell, found) for cell, tau in points if (found := cost(cell, tau)) is not None]
    return f"{rounded(hours(costs))} GPU h" if len(costs) == len(points) and costs else "–"


def _unhashed(cell: Cell, role: str, folder: Path) -> str | None:
    """That the first run will hash a model's weights; None where their hash is known."""
    source = cell.pair.checkpoint(role).source
    files = [] if Source.of(source).kind in ("random", "gguf", "package") else unhashed(folder)
    return f"not yet hashed ({size(sum(file.stat().st_size for file in files))} of weights)" if files else None


@cache
def config_folder(source: str, revision: str | None) -> Path | str:
    """The folder where a source's config.json lies, fetched from the hub if it has to be; or why there is none."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    parsed = Source.of(source)
    if parsed.folder.is_dir():
        return parsed.folder
    if parsed.is_gguf:
        return f"{'not converted' if parsed.is_here else 'not fetched'} yet; python -m bench.real_model prepares it"
    here = try_to_load_from_cache(source, "config.json", revision=revision)
    if isinstance(here, str):
        return Path(here).parent
    if problem := listing(source, revision).problem:
        return problem
    try:
        return Path(hf_hub_download(source, "config.json", revision=revision)).parent
    except (OSError, ValueError) as error:
        return one_line(error)


def _cost_texts(found: Cost | None) -> list[str]:
    """GPUs and hours, with `at most` where no τ of a paper is known."""
    if found is None:
        return ["–", "–"]
    bound = "" if found.tau or not found.own else "at most "
    return [str(found.gpus), f"{bound}{rounded(found.own or found.baseline)}"]


def _show_point(found: DryRunEntry, session: Session) -> None:
    plain = found.cell.model_dump(mode="json")
    print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), end="")
    print("identity:", f"unknown: {found.problem}" if found.name is None else found.name.rpartition("-")[2])
    for role, fingerprint in found.fingerprints.items():
        print(f"fingerprint of {role}: {fingerprint}")
    if (memory := found.memory) is None:
        print(f"memory: unknown: {found.problem}")
        return
    title = (f"memory in {found.cell.engine.dtype}: {memory.rows} × {memory.slots} tokens, {memory.nodes} of them a "
             "draft's")
    table = Table("part", "weights", "KV cache", title=title, title_justify="left")
    for part in memory.parts:
        held = ["unknown" if held is None else size(held) for held in (part.weights, part.cache)]
        table.add_row(f"{part.role}: {part.source}", *held)
    table.add_row("total", _total(memory), "", style="bold")
    session.print(table)
