"""`dry_run=true`: what would run, what it takes in memory, what it would download, what it lacks. Nothing runs; at most
configurations are fetched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from rich.table import Table

from bench.dry_run.downloads import Listing, listing, size
from bench.dry_run.estimate import Memory, cpu_time, gpu_hours, known, known_model, memory_of, prompts_of
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
class DryRunEntry:
    """What is known of a cell before it runs.

    tau           the paper's; None where it prints none
    name          its folder in the store; None where `problem` says why
    memory        None where `problem` says why
    fingerprints  role -> content fingerprint of the model, or that its weights are not yet hashed
    """

    cell: Cell
    tau: float | None
    name: str | None
    memory: Memory | None
    fingerprints: Mapping[str, str]
    problem: str

    @property
    def total(self) -> str:
        if self.memory is None or not self.memory.total:
            return "–"
        return size(self.memory.total) if self.memory.is_whole else f"at least {size(self.memory.total)}"


Entries = Sequence[tuple[DryRunEntry, "CellState | None"]]
"""Each with what the store holds of it; None where its folder is unknown."""


def show_plan(cells: Sequence[Cell], labels: Sequence[str], session: Session,
              taus: Sequence[float | None] | None = None, traced: Collection[str] = ()) -> None:
    """Print one point in full; of several the sums, and each point where they are few or with verbose=true. `taus`: the
    paper's τ of each point; `traced`: names of the cells whose traces are read."""
    points = zip(cells, labels, taus or [None] * len(cells), strict=True)
    once = {cell.model_dump_json(): (cell, label, tau) for cell, label, tau in points}
    found = [dry_run_entry(cell, tau, session.settings.quality_batch) for cell, _, tau in once.values()]
    entries = [(one, None if one.name is None else session.state(one.cell, traced)) for one in found]
    if not all(state is not None and state.is_complete for _, state in entries):
        check_creatable(session.store.root, "store.dir")
    if len(entries) == 1:
        _show_point(found[0], session)
    else:
        _show_totals(entries, session.print)
    if len(entries) <= MOST_SHOWN or session.settings.verbose:
        table = Table("point", "folder", "in the store", "prompts", "memory",
                      title=f"would run in {session.store.root}", title_justify="left")
        for (one, state), (_, label, _) in zip(entries, once.values(), strict=True):
            table.add_row(label, one.name or f"unknown: {one.problem}", str(state or "–"),
                          str(prompts_of(one.cell) or "all"), one.total)
        session.print(table)
    _show_downloads([cell for cell, _, _ in once.values()], session.print)
    unjudged = dict.fromkeys(cell.task.name for cell, _, _ in once.values() if cell.load_task().judged is not None)
    if unjudged and session.settings.judge.base_url is None:
        session.print(f"without a judge: {', '.join(unjudged)} will have no score; give judge.base_url=URL "
                      "judge.model=NAME", soft_wrap=True)


def dry_run_entry(cell: Cell, tau: float | None, quality_batch: int) -> DryRunEntry:
    """Ask what the cell's models are; a hub model that cannot be asked makes the answer unknown, not an error."""
    folders = {}
    for role in cell.roles:
        checkpoint = cell.pair.checkpoint(role)
        folder = config_folder(checkpoint.source, checkpoint.revision)
        if isinstance(folder, str):
            return DryRunEntry(cell, tau, None, memory_of(cell, quality_batch, {}), {},
                               f"pair.{role}={checkpoint.source}: {folder}")
        folders[role] = folder
    try:
        if not cell.pair.ignore_generation_config:
            check_generation_config(cell.pair.target.source, cell.pair.target.revision, fetch=True)
        memory = memory_of(cell, quality_batch, folders)
        if new := {role: note for role, folder in folders.items() if (note := _unhashed(cell, role, folder))}:
            sources = {role: cell.pair.checkpoint(role).source for role in new}
            problem = "; ".join(f"pair.{role}={sources[role]}: {note}" for role, note in new.items())
            return DryRunEntry(cell, tau, None, memory, new, problem)
        return DryRunEntry(cell, tau, cell.name, memory, cell.fingerprints(), "")
    except ModelError as error:
        return DryRunEntry(cell, tau, None, None, {}, one_line(error))


def duration(points: Sequence[tuple[Cell, float | None]]) -> str:
    """Minutes or GPU hours that cells take at most, with the paper's τ of each; – where neither is known."""
    if points and (time := cpu_time([cell for cell, _ in points])) is not None:
        return f"{_minutes(sum(time))} min"
    return "–" if (hours := gpu_hours(points)) is None else f"{_rounded(hours)} GPU h"


def _minutes(seconds: float) -> int:
    return max(1, round(seconds / 60))


def _rounded(number: float) -> str:
    """Two significant digits, or whole hours: 0.74, 5.9, 332."""
    return f"{number:.2g}" if number < 99.5 else f"{number:.0f}"


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


def _show_point(found: DryRunEntry, session: Session) -> None:
    print(yaml.safe_dump(found.cell.model_dump(mode="json"), sort_keys=False, allow_unicode=True), end="")
    print("identity:", f"unknown: {found.problem}" if found.name is None else found.name.rpartition("-")[2])
    for role, fingerprint in found.fingerprints.items():
        print(f"fingerprint of {role}: {fingerprint}")
    if (memory := found.memory) is None:
        print(f"memory: unknown: {found.problem}")
        return
    title = (f"memory in {found.cell.engine.dtype}: {memory.rows} × {memory.slots} tokens, {memory.nodes} of them a "
             "draft's")
    table = Table("part", "weights", "KV cache", title=title, title_justify="left")
    for role, part in memory.parts.items():
        table.add_row(f"{role}: {found.cell.pair.checkpoint(role).source}",
                      *("unknown" if held is None else size(held) for held in part))
    table.add_row("total", found.total, "", style="bold")
    session.print(table)


def _show_totals(entries: Entries, show: Callable[..., None]) -> None:
    """The sums of all points, then a line for each pair."""
    counts = [prompts_of(found.cell) for found, _ in entries]
    whole = "" if None not in counts else " and all those of tasks without n"
    missing = [found.cell for found, state in entries if state is None or not state.is_complete]
    untraced = sum(state is not None and state.is_untraced for _, state in entries)
    again = f", {untraced} without the traces that are read, so their answers are decoded again" if untraced else ""
    show(f"{len(entries)} points, {len(entries) - len(missing)} complete{again}; {sum(count or 0 for count in counts)} "
         f"prompts in all{whole}", soft_wrap=True)
    if hours := _hours(entries):
        gpu = known().gpu
        show(f"GPU hours: {hours} on {gpu['name']}, plain decoding included and shared, if each forward reads its "
             f"weights once at {gpu['bytes_per_s'] / 1e12:.2f} TB/s and each answer has max_new_tokens; τ of the "
             "paper, or 1", soft_wrap=True)
    if missing and (time := cpu_time(missing)):
        answers, clock = time
        show(f"time of one core for what is missing, at most: {_minutes(answers)} min for the answers, which all "
             f"cores share, and {_minutes(clock) if clock else 0} min for the timed pass, which runs alone; if each "
             "answer has max_new_tokens", soft_wrap=True)
    largest = max(entries, key=_held)[0]
    if _held((largest, None)):
        show(f"memory: {largest.total} at most ({largest.cell.pair.name} {largest.cell.label})")
    names = list(dict.fromkeys(found.cell.pair.name for found, _ in entries))
    if len(names) < 2:
        return
    table = Table("pair", "points", "complete", "memory", "GPU hours",
                  title="by pair; verbose=true lists every point", title_justify="left")
    for name in names:
        own = [(found, state) for found, state in entries if found.cell.pair.name == name]
        complete = sum(state is not None and state.is_complete for _, state in own)
        table.add_row(name, str(len(own)), str(complete), max(own, key=_held)[0].total, _hours(own) or "–")
    show(table)


def _held(entry: tuple[DryRunEntry, CellState | None]) -> int:
    memory = entry[0].memory
    return 0 if memory is None else memory.total


def _hours(entries: Entries) -> str:
    """GPU hours of the cells whose models and prompts are known; empty without any."""
    points = [(found.cell, found.tau) for found, _ in entries]
    hours = gpu_hours([point for point in points if gpu_hours([point]) is not None])
    return "" if hours is None else _rounded(hours)


def _show_downloads(cells: Sequence[Cell], show: Callable[..., None]) -> None:
    """A line for each hub model, its files where it is the only point; their sum; then a line for each data set."""
    checkpoints = [cell.pair.checkpoint(role) for cell in cells for role in cell.roles]
    found = {(one.source, one.revision): listing(one.source, one.revision) for one in checkpoints
             if not Source.of(one.source).is_here}
    if not found:
        show("download: nothing, every model is here")
    for (source, revision), files in found.items():
        at = f" at {revision}" if revision else ""
        expected = _expected(source)
        about = f"about {size(expected)}; {files.problem}" if files.problem and expected else str(files)
        model = known_model(source)
        gated = "; gated: its owner must grant access to your token" if model is not None and model.gated else ""
        show(f"download: {source}{at}: {about}{gated}", soft_wrap=True)
        for file in files.missing if len(cells) == 1 else ():
            show(f"  {file.name}  {'size unknown' if file.size is None else size(file.size)}")
    if len(found) > 1:
        _show_sum({source: files for (source, _), files in found.items()}, show)
    tasks = [cell.task.options.model_dump() for cell in cells]
    for data in dict.fromkeys(str(task["hub"] or task["files"]) for task in tasks
                              if task.get("path") is None and (task.get("hub") or task.get("files"))):
        held = known().data.get(data, {}).get("bytes")
        show(f"download: data set {data}: {f'about {size(round(held))}' if held else 'size unknown'}", soft_wrap=True)


def _show_sum(found: Mapping[str, Listing], show: Callable[..., None]) -> None:
    total = sum(_expected(source) if files.problem else files.size for source, files in found.items())
    unknown = sum(bool(files.problem) and not _expected(source) for source, files in found.items())
    beside = f" and {unknown} model{'s' if unknown > 1 else ''} of unknown size" if unknown else ""
    show(f"download: {size(total)} in all{beside}")


def _expected(source: str) -> int:
    """Bytes of a model in two bytes a parameter; 0 for one that is not known."""
    model = known_model(source)
    return 0 if model is None else 2 * model.parameters
