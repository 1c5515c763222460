"""`dry_run=true`: what would run, what it takes in memory, what it would download. Nothing runs; at most configurations
are fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from rich.table import Table

from bench.dry_run.downloads import Listing, listing, size
from bench.dry_run.memory import Estimate, estimate
from methods.engine.fingerprints import unhashed
from methods.engine.source import ModelError, folder_of, is_gguf, is_here, is_random
from results.store.reasons import one_line

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.session import Session


@dataclass(frozen=True, slots=True)
class DryRunEntry:
    """What is known of a cell before it runs.

    name          its folder in the store; None where `problem` says why
    memory        None where `problem` says why
    fingerprints  role -> content fingerprint of the model, or that its weights are not yet hashed
    """

    cell: Cell
    name: str | None
    memory: Estimate | None
    fingerprints: Mapping[str, str]
    problem: str


def show_plan(cells: Sequence[Cell], labels: Sequence[str], session: Session) -> None:
    """Print one point in full, or many as a table with their sums."""
    once = {cell.model_dump_json(): (cell, label) for cell, label in zip(cells, labels, strict=True)}
    cells, labels = zip(*once.values(), strict=True)
    entries = [dry_run_entry(cell) for cell in cells]
    if len(cells) == 1:
        _show_point(entries[0], session)
    table = Table("point", "folder", "in the store", title=f"would run in {session.store.root}", title_justify="left")
    for found, label in zip(entries, labels, strict=True):
        name = found.name or f"unknown: {found.problem}"
        table.add_row(label, name, "–" if found.name is None else _state(found.cell, session))
    session.print(table)
    if len(cells) > 1:
        _show_sums(entries, session)
    _show_downloads(cells, session)


def dry_run_entry(cell: Cell) -> DryRunEntry:
    """Ask what the cell's models are; a hub model that cannot be asked makes the answer unknown, not an error."""
    folders = {}
    for role in cell.roles:
        checkpoint = cell.pair.checkpoint(role)
        folder = config_folder(checkpoint.source, checkpoint.revision)
        if isinstance(folder, str):
            return DryRunEntry(cell, None, None, {}, f"pair.{role}={checkpoint.source}: {folder}")
        folders[role] = folder
    try:
        memory = estimate(cell, folders)
        if new := {role: note for role, folder in folders.items() if (note := _unhashed(cell, role, folder))}:
            sources = {role: cell.pair.checkpoint(role).source for role in new}
            problem = "; ".join(f"pair.{role}={sources[role]}: {note}" for role, note in new.items())
            return DryRunEntry(cell, None, memory, new, problem)
        return DryRunEntry(cell, cell.name, memory, cell.fingerprints(), "")
    except ModelError as error:
        return DryRunEntry(cell, None, None, {}, one_line(error))


def _unhashed(cell: Cell, role: str, folder: Path) -> str | None:
    """That the first run will hash a model's weights; None where their hash is known."""
    source = cell.pair.checkpoint(role).source
    files = [] if is_random(source) or is_gguf(source) else unhashed(folder)
    return f"not yet hashed ({size(sum(file.stat().st_size for file in files))} of weights)" if files else None


@cache
def config_folder(source: str, revision: str | None) -> Path | str:
    """The folder where a source's config.json lies, fetched from the hub if it has to be; or why there is none."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    if folder_of(source).is_dir():
        return folder_of(source)
    if is_gguf(source):
        return f"{'not converted' if is_here(source) else 'not fetched'} yet; python -m bench.real_model prepares it"
    here = try_to_load_from_cache(source, "config.json", revision=revision)
    if isinstance(here, str):
        return Path(here).parent
    if problem := listing(source, revision).problem:
        return problem
    try:
        return Path(hf_hub_download(source, "config.json", revision=revision)).parent
    except (OSError, ValueError) as error:
        return one_line(error)


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
        table.add_row(f"{part.role}: {part.source}", size(part.weights), size(part.cache))
    table.add_row("largest forward (estimate)", "", size(memory.working))
    table.add_row("total", size(memory.total), "", style="bold")
    session.print(table)


def _show_sums(entries: Sequence[DryRunEntry], session: Session) -> None:
    states = [_state(found.cell, session) for found in entries if found.name is not None]
    prompts = sum(found.cell.n or 0 for found in entries)
    whole = "" if all(found.cell.n for found in entries) else " and all those of tasks without n"
    session.print(f"{len(entries)} points, {states.count('complete')} complete; {prompts} prompts in all{whole}",
                    highlight=False)
    known = [(found.memory.total, found.cell) for found in entries if found.memory is not None]
    if known:
        total, cell = max(known, key=lambda entry: entry[0])
        session.print(f"memory: {size(total)} at most ({cell.pair.name} {cell.label})")


def _show_downloads(cells: Sequence[Cell], session: Session) -> None:
    """A line for each hub model, its files where it is the only point; then their sum."""
    found: dict[tuple[str, str | None], Listing] = {}
    for cell in cells:
        for role in cell.roles:
            source, revision = cell.pair.checkpoint(role).source, cell.pair.checkpoint(role).revision
            if not is_here(source):
                found[source, revision] = listing(source, revision)
    if not found:
        session.print("download: nothing, every model is here")
    for (source, revision), files in found.items():
        at = f" at {revision}" if revision else ""
        session.print(f"download: {source}{at}: {files}", soft_wrap=True)
        for file in files.missing if len(cells) == 1 else ():
            known = "size unknown" if file.size is None else size(file.size)
            session.print(f"  {file.name}  {known}")
    if len(found) > 1:
        total = sum(files.size for files in found.values())
        unknown = sum(bool(files.problem) for files in found.values())
        beside = f" and {unknown} models of unknown size" if unknown else ""
        session.print(f"download: {size(total)} in all{beside}")


def _state(cell: Cell, session: Session) -> str:
    folder = session.folder(cell)
    if folder.summary() is not None and session.problem(cell) is None:
        return "complete"
    done = len(folder.good_samples())
    return f"{done} prompt{'s' if done > 1 else ''} done" if done else "nothing"
