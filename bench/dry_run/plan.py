"""`dry_run=true`: what would run, what it takes in memory, what it would download. Nothing runs; at most configurations
are fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from rich.table import Table

from bench.dry_run.devices import grouped, shares
from bench.dry_run.downloads import Listing, listing, size
from bench.dry_run.known import FREE, Cost, cost, cpu_time, download, hours, known, rough_estimate
from bench.dry_run.memory import Estimate, estimate
from methods.engine.fingerprints import unhashed
from methods.engine.source import ModelError, Source
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
    cost          GPUs and hours, of a paper's pair
    """

    cell: Cell
    name: str | None
    memory: Estimate | None
    fingerprints: Mapping[str, str]
    problem: str
    cost: Cost | None = None


def show_plan(cells: Sequence[Cell], labels: Sequence[str], session: Session,
              taus: Sequence[float | None] | None = None) -> None:
    """Print one point in full, or many as a table with their sums. `taus`: the paper's τ of each point."""
    points = zip(cells, labels, taus or [None] * len(cells), strict=True)
    once = {cell.model_dump_json(): (cell, label, tau) for cell, label, tau in points}
    entries = [replace(dry_run_entry(cell), cost=cost(cell, tau)) for cell, _, tau in once.values()]
    cells, labels = [entry.cell for entry in entries], [label for _, label, _ in once.values()]
    if len(cells) == 1:
        _show_point(entries[0], session)
    with_costs = any(found.cost for found in entries)
    titles = ["point", "folder", "in the store", "prompts", "memory", *(["GPUs", "GPU hours"] if with_costs else [])]
    table = Table(*titles, title=f"would run in {session.store.root}", title_justify="left")
    for found, label in zip(entries, labels, strict=True):
        name = found.name or f"unknown: {found.problem}"
        held = "–" if found.memory is None else _total(found.memory)
        state = "–" if found.name is None else _state(found.cell, session)
        costs = _cost_texts(found.cost) if with_costs else []
        table.add_row(label, name, state, _prompts(found.cell), held, *costs)
    session.print(table)
    if len(cells) > 1:
        _show_sums(entries, session)
    _show_downloads(cells, session)


def _total(memory: Estimate) -> str:
    return f"at least {size(memory.total)}" if memory.missing else size(memory.total)


def _prompts(cell: Cell) -> str:
    return "auto" if cell.half_width is not None else str(cell.n or "all")


def dry_run_entry(cell: Cell) -> DryRunEntry:
    """Ask what the cell's models are; a hub model that cannot be asked makes the answer unknown, not an error."""
    folders = {}
    for role in cell.roles:
        checkpoint = cell.pair.checkpoint(role)
        folder = config_folder(checkpoint.source, checkpoint.revision)
        if isinstance(folder, str):
            return DryRunEntry(cell, None, rough_estimate(cell), {}, f"pair.{role}={checkpoint.source}: {folder}")
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


def duration(points: Sequence[tuple[Cell, float | None]]) -> str:
    """Minutes or GPU hours that cells take at most, with the paper's τ of each; – where neither is known."""
    if points and (time := cpu_time([cell for cell, _ in points])) is not None:
        return f"{minutes(time.answers + time.clock)} min"
    costs = [(cell, found) for cell, tau in points if (found := cost(cell, tau)) is not None]
    return f"{rounded(hours(costs))} GPU h" if len(costs) == len(points) and costs else "–"


def minutes(seconds: float) -> int:
    return max(1, round(seconds / 60))


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


def rounded(number: float) -> str:
    """Two significant digits, or whole hours: 0.74, 5.9, 332."""
    return f"{number:.2g}" if number < 99.5 else f"{number:.0f}"


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
        table.add_row(f"{part.role}: {part.source}", size(part.weights), size(part.cache))
    for role, source in memory.missing.items():
        table.add_row(f"{role}: {source}", "unknown", "unknown")
    if memory.copies:
        table.add_row("copies in faster layouts (at most)", size(memory.copies), "")
    table.add_row("largest forward (estimate)", "", size(memory.working) if memory.working else "unknown")
    table.add_row("total", _total(memory), "", style="bold")
    session.print(table)
    if found.cell.engine.parallel != "none":
        _show_devices(found.cell, memory, session)


def _show_devices(cell: Cell, memory: Estimate, session: Session) -> None:
    """What each device holds, and whether a GPU has so much."""
    gpu, engine = known().gpu, cell.engine
    table = Table("device", "holds", "weights", "KV cache", "total", f"of {gpu.name}", title_justify="left",
                  title=f"engine.parallel={engine.parallel} on {engine.devices} devices")
    held = shares(cell, memory)
    for name, share in grouped(held):
        table.add_row(name, share.holds, size(share.weights), size(share.cache), size(share.total),
                      f"{share.total / gpu.bytes:.0%}")
    session.print(table)
    usable, most = gpu.bytes * (1 - FREE), max(share.total for share in held)
    if most > usable:
        session.print(f"too much for {gpu.name}: a device needs {size(most)} and has {size(int(usable))}, as "
                      f"{FREE:.0%} stay free; give a larger engine.devices, or GPUs with more memory", soft_wrap=True)


def _show_sums(entries: Sequence[DryRunEntry], session: Session) -> None:
    states = [_state(found.cell, session) for found in entries if found.name is not None]
    prompts = sum(found.cell.n or 0 for found in entries)
    whole = "" if all(found.cell.n for found in entries) else " and all those of tasks without n"
    session.print(f"{len(entries)} points, {states.count('complete')} complete; {prompts} prompts in all{whole}",
                    highlight=False)
    if costs := [(found.cell, found.cost) for found in entries if found.cost is not None]:
        gpu = known().gpu
        session.print(f"GPU hours: {rounded(hours(costs))} on {gpu.name}, plain decoding included and shared, if each "
                      f"forward reads its weights once at {gpu.bytes_per_s / 1e12:.2f} TB/s and each answer has "
                      "max_new_tokens; τ of the paper, or 1", highlight=False)
    if time := cpu_time([found.cell for found in entries]):
        session.print(f"time of one core, at most: {minutes(time.answers)} min for the answers, which all cores share, "
                      f"and {minutes(time.clock) if time.clock else 0} min for the clock, which runs alone; if each "
                      "answer has max_new_tokens", highlight=False, soft_wrap=True)
    held = [(found.memory.total, found.cell) for found in entries if found.memory is not None]
    if held:
        total, cell = max(held, key=lambda entry: entry[0])
        session.print(f"memory: {size(total)} at most ({cell.pair.name} {cell.label})")


def _show_downloads(cells: Sequence[Cell], session: Session) -> None:
    """A line for each hub model, its files where it is the only point; then their sum."""
    found: dict[tuple[str, str | None], Listing] = {}
    for cell in cells:
        for role in cell.roles:
            source, revision = cell.pair.checkpoint(role).source, cell.pair.checkpoint(role).revision
            if not Source.of(source).is_here:
                found[source, revision] = listing(source, revision)
    if not found:
        session.print("download: nothing, every model is here")
    for (source, revision), files in found.items():
        at, expected = f" at {revision}" if revision else "", download(source)
        about = f"about {size(round(expected))}; {files.problem}" if files.problem and expected else str(files)
        session.print(f"download: {source}{at}: {about}", soft_wrap=True)
        for file in files.missing if len(cells) == 1 else ():
            weight = "size unknown" if file.size is None else size(file.size)
            session.print(f"  {file.name}  {weight}")
    if len(found) > 1:
        sizes = [(download(source) or 0) if files.problem else files.size for (source, _), files in found.items()]
        unknown = sum(bool(files.problem) and download(source) is None for (source, _), files in found.items())
        beside = f" and {unknown} model{'s' if unknown > 1 else ''} of unknown size" if unknown else ""
        session.print(f"download: {size(round(sum(sizes)))} in all{beside}")
    for source in dict.fromkeys(data for cell in cells if (data := _data_source(cell)) is not None):
        described = known().data.get(source)
        expected = None if described is None else described.bytes
        about = f"about {size(round(expected))}" if expected else "size unknown"
        session.print(f"download: data set {source}: {about}", soft_wrap=True)


def _data_source(cell: Cell) -> str | None:
    """The data set on the hub that the cell's task reads; None where its rows are here."""
    task = cell.task.options.model_dump()
    return None if task.get("path") is not None else task.get("hub") or task.get("files")


def _state(cell: Cell, session: Session) -> str:
    folder = session.folder(cell)
    if folder.summary() is not None and session.problem(cell) is None:
        return "complete"
    done = len(folder.good_samples())
    return f"{done} prompt{'s' if done > 1 else ''} done" if done else "nothing"
