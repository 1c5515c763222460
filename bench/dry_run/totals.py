"""What all points of a dry run take together: hours, memory, downloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from bench.dry_run.downloads import Listing, listing, size
from bench.dry_run.hours import cpu_time, hours, prompts_of
from bench.dry_run.sizes import download, known
from methods.engine.source import Source

if TYPE_CHECKING:
    from bench.dry_run.hours import Priced
    from bench.dry_run.plan import DryRunEntry
    from bench.run.session import CellState


def minutes(seconds: float) -> int:
    return max(1, round(seconds / 60))


def rounded(number: float) -> str:
    """Two significant digits, or whole hours: 0.74, 5.9, 332."""
    return f"{number:.2g}" if number < 99.5 else f"{number:.0f}"


def show_totals(entries: Sequence[DryRunEntry], states: Sequence[CellState | None], show: Callable[..., None]) -> None:
    """Show the sums of all points, then a line for each pair. `states`: what the store holds of each point,
    None where its folder is unknown."""
    cells = [found.cell for found in entries]
    counts = [prompts_of(cell) for cell in cells]
    whole = "" if None not in counts else " and all those of tasks without n"
    missing = [cell for cell, state in zip(cells, states, strict=True) if state is None or not state.is_complete]
    untraced = sum(state is not None and state.is_untraced for state in states)
    again = f", {untraced} without the traces that are read, so their answers are decoded again" if untraced else ""
    show(f"{len(entries)} points, {len(cells) - len(missing)} complete{again}; {sum(count or 0 for count in counts)} "
         f"prompts in all{whole}", soft_wrap=True)
    if costs := _costs(entries):
        gpu = known().gpu
        show(f"GPU hours: {rounded(hours(costs))} on {gpu.name}, plain decoding included and shared, if each "
             f"forward reads its weights once at {gpu.bytes_per_s / 1e12:.2f} TB/s and each answer has "
             "max_new_tokens; τ of the paper, or 1", soft_wrap=True)
    if missing and (time := cpu_time(missing)):
        show(f"time of one core for what is missing, at most: {minutes(time.answers)} min for the answers, which all "
             f"cores share, and {minutes(time.clock) if time.clock else 0} min for the timed pass, which runs alone; "
             "if each answer has max_new_tokens", soft_wrap=True)
    held = [(found.memory.total, found.cell) for found in entries if found.memory is not None]
    if held:
        total, cell = max(held, key=lambda entry: entry[0])
        show(f"memory: {size(total)} at most ({cell.pair.name} {cell.label})")
    if len({cell.pair.name for cell in cells}) > 1:
        _show_pairs(entries, states, show)


def _costs(entries: Sequence[DryRunEntry]) -> list[Priced]:
    return [(found.cell, found.cost) for found in entries if found.cost is not None]


def _show_pairs(entries: Sequence[DryRunEntry], states: Sequence[CellState | None], show: Callable[..., None]) -> None:
    """A line for each pair."""
    table = Table("pair", "points", "complete", "memory", "GPUs a task", "GPU hours",
                  title="by pair; verbose=true lists every point", title_justify="left")
    for name in dict.fromkeys(found.cell.pair.name for found in entries):
        own = [(found, state) for found, state in zip(entries, states, strict=True) if found.cell.pair.name == name]
        costs = _costs([found for found, _ in own])
        memory = max((found.memory.total for found, _ in own if found.memory is not None), default=None)
        complete = sum(state is not None and state.is_complete for _, state in own)
        table.add_row(name, str(len(own)), str(complete), "–" if memory is None else size(memory),
                      str(max(one.gpus for _, one in costs)) if costs else "–",
                      rounded(hours(costs)) if costs else "–")
    show(table)


def show_downloads(entries: Sequence[DryRunEntry], show: Callable[..., None]) -> None:
    """A line for each hub model, its files where it is the only point; then their sum."""
    found: dict[tuple[str, str | None], Listing] = {}
    cells = [entry.cell for entry in entries]
    for cell in cells:
        for role in cell.roles:
            source, revision = cell.pair.checkpoint(role).source, cell.pair.checkpoint(role).revision
            if not Source.of(source).is_here:
                found[source, revision] = listing(source, revision)
    if not found:
        show("download: nothing, every model is here")
    for (source, revision), files in found.items():
        at, expected = f" at {revision}" if revision else "", download(source)
        about = f"about {size(round(expected))}; {files.problem}" if files.problem and expected else str(files)
        gated = "; gated: its owner must grant access to your token" if is_gated(source) else ""
        show(f"download: {source}{at}: {about}{gated}", soft_wrap=True)
        for file in files.missing if len(cells) == 1 else ():
            weight = "size unknown" if file.size is None else size(file.size)
            show(f"  {file.name}  {weight}")
    if len(found) > 1:
        sizes = [(download(source) or 0) if files.problem else files.size for (source, _), files in found.items()]
        unknown = sum(bool(files.problem) and download(source) is None for (source, _), files in found.items())
        beside = f" and {unknown} model{'s' if unknown > 1 else ''} of unknown size" if unknown else ""
        show(f"download: {size(round(sum(sizes)))} in all{beside}")
    for source in dict.fromkeys(data for entry in entries if (data := _data_source(entry)) is not None):
        described = known().data.get(source)
        expected = None if described is None else described.bytes
        about = f"about {size(round(expected))}" if expected else "size unknown"
        show(f"download: data set {source}: {about}", soft_wrap=True)


def is_gated(source: str) -> bool:
    """Whether the hub gives a model only to who was granted access."""
    model = known().models.get(source)
    return model is not None and model.gated


def _data_source(entry: DryRunEntry) -> str | None:
    """The data set on the hub that the cell's task reads; None where its rows are here."""
    task = entry.cell.task.options.model_dump()
    return None if task.get("path") is not None else task.get("hub") or task.get("files")
