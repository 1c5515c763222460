"""Render reports from the store: their tables, their figures, and one page over all of them, with
the answers of their cells, their prompts, the texts of their tokens and their traces."""

from __future__ import annotations

import gzip
import json
import logging
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bench.config.errors import ConfigError
from bench.run.claims import prompts_asked
from bench.run.console import display_names
from bench.run.requested_cell import folder_of
from results.reports.answers import Group, Viewed
from results.reports.formats import render_table
from results.reports.page import Item, write_index
from results.reports.spec import FigureSpec, TableSpec
from results.store.errors import StoreError, format_exception, redacted
from results.store.files import copy_file, replace_text, replacing
from results.store.traces import TraceFolder
from tasks.base import TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.reports.plan import Plan
    from bench.run.session import Session
    from results.reports.answers import Messages, Texts
    from results.reports.grid import Grid
    from results.store.cells import CellFolder, Store
    from tasks.base import Prompt

log = logging.getLogger(__name__)
KEEPING = ("lossless", "greedy", "block", "traversal")
"""Rules that keep the target's text."""
KEPT = (".md", ".csv", ".tex", ".png")
"""Endings of the files that `output.archive` keeps; PDF, SVG and HTML are made from the store
again."""
LARGE = 2**20
"""Bytes of a CSV file above which it is kept compressed."""
WITHOUT = {
    False: "without the prompts: the task cannot read them",
    True: "without the prompts: the files of the task have changed since",
}


def render_plans(
    plans: Sequence[Plan],
    commands: Sequence[str],
    folder: Path,
    session: Session,
    group: str | None = None,
) -> list[Item]:
    """Write every report's table or figure and the page <folder>/index.html, and tell the tracker:
    of each report in a group of its own, or of all in `group`. Returns what was drawn.

    `commands` has one command per plan, printed under its report. A report that cannot be drawn is
    logged as an error and left out of the page."""
    both = zip(plans, commands, strict=True)
    drawn = (drawn_item(plan, command, folder, session) for plan, command in both)
    items = [item for item in drawn if item is not None]
    page = page_of(items, plans, folder, session)
    session.print(f"page: {page}", soft_wrap=True)
    for item in items:
        session.logbook.log_report(item.spec.name, item.spec.title, item.command, item.paths, group)
    return items


def drawn_item(plan: Plan, command: str, folder: Path, session: Session) -> Item | None:
    """Write a report's table or figure; None for one that cannot be drawn."""
    grid = plan.grid(session)
    try:
        paths = draw(plan.spec, grid, folder)
    except Exception as error:  # one faulty report must not hide the others
        log.error("report %s was not drawn: %s", plan.spec.name, format_exception(error))
        return None
    session.print(f"{plan.spec.title}: {', '.join(path.name for path in paths)}")
    return Item(plan.spec, grid, paths, command)


def page_of(items: Sequence[Item], plans: Sequence[Plan], folder: Path, session: Session) -> Path:
    """Write the page of these plans, with what was drawn of them, <folder>/index.html. Returns its
    path."""
    cells = {cell.name: cell for plan in plans for cell in plan.cells.values()}
    papers = {plan.spec.name.partition("_")[0] for plan in plans}
    environment = latest_environment(map(session.folder, cells.values()))
    groups = groups_of(
        cells.values(),
        session.store,
        {
            cell.name: plan.spec.row_name(coords)
            for plan in plans
            for coords, cell in plan.cells.items()
            if not plan.spec.altered(coords)
        },
        papers,
    )
    return write_index(folder, items, environment, groups=groups)


def keep_reports(
    plans: Sequence[Plan], items: Sequence[Item], folder: Path, session: Session
) -> None:
    """`output.archive=FOLDER`: copy what was drawn of the reports `plans` there, each with its
    command and the environment it was measured in, and list them with their commands in TABLES.md,
    whose lines of other reports stay."""
    folder.mkdir(parents=True, exist_ok=True)
    listing, lines = folder / "TABLES.md", kept_lines(folder)
    of_name = {plan.spec.name: plan for plan in plans}
    for item in items:
        name, shown = item.spec.name, "md" if item.spec.kind == "table" else "png"
        copies = [keep(path, folder) for path in item.paths if path.suffix in KEPT]
        numbers = next(copy.name for copy in copies if ".csv" in copy.suffixes)
        lines[name] = (
            f"- [{item.spec.title}]({name}.{shown}): [numbers]({numbers}), "
            f"[environment]({name}.environment.json), `{item.command}`"
        )
        environment = {"command": item.command, **measured_on(of_name[name], session)}
        record = json.dumps(environment, indent=1, ensure_ascii=False)
        replace_text(folder / f"{name}.environment.json", f"{record}\n")
    listed = [line for _, line in sorted(lines.items())]
    replace_text(listing, "\n".join(["# Tables and figures", "", *listed, ""]))
    names = ", ".join(item.spec.name for item in items)
    session.print(f"kept in {folder}: {names}", soft_wrap=True)


def keep(path: Path, folder: Path) -> Path:
    """Copy a file of a report into `folder`, a large CSV file compressed. Returns the copy."""
    plain, packed = folder / path.name, folder / f"{path.name}.gz"
    if path.suffix == ".csv" and path.stat().st_size > LARGE:
        with replacing(packed) as temporary:
            # mtime=0: the same bytes whenever it is written
            temporary.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        plain.unlink(missing_ok=True)
        return packed
    copy_file(path, plain)
    packed.unlink(missing_ok=True)
    return plain


def kept_lines(folder: Path) -> dict[str, str]:
    """Name of a kept report -> its line of TABLES.md."""
    listing = folder / "TABLES.md"
    text = listing.read_text(encoding="utf-8") if listing.exists() else ""
    lines = re.finditer(r"^.*\[numbers\]\((\w+)\.csv(\.gz)?\).*$", text, re.MULTILINE)
    return {line[1]: line[0] for line in lines}


def draw(spec: TableSpec | FigureSpec, grid: Grid, folder: Path) -> list[Path]:
    """Write one report's files into `folder` and return their paths."""
    if isinstance(spec, TableSpec):
        return render_table(spec, grid, folder)
    # matplotlib, which a dry run or a refused command should not cost
    from plots.render import render

    return render(spec, grid, folder)


def measured_on(plan: Plan, session: Session) -> dict[str, Any]:
    """What is kept of where a report was measured: the record of its cell that ran last;
    `machines`, every processor, torch, commit and digest of the code that decoded or timed one of
    its cells, with the number of cells; and `clock`, in milliseconds, what a token of plain
    decoding took in each measuring session."""
    both = [each for cell in plan.cells.values() for each in (cell, cell.baseline())]
    used = Counter[str]()
    clock: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in {cell.name: cell for cell in both}.values():
        folder = session.folder(cell)
        latest = folder.environment() or {"earlier": []}
        records = [record for record in (latest, *latest["earlier"]) if "cpu" in record]
        used.update({json.dumps(_machine(record)) for record in records})
        for row in folder.timed() if cell.is_autoregressive else ():
            token_ms = 1000 * row.own.decode_s / max(1, row.own.tokens)
            clock[f"{cell.pair.name}, {cell.task.name}"][row.started].append(token_ms)
    return {
        **latest_environment(map(session.folder, plan.cells.values())),
        "machines": [
            {**json.loads(machine), "cells": count} for machine, count in sorted(used.items())
        ],
        "clock": {
            name: {
                began: round(statistics.median(times), 3)
                for began, times in sorted(sessions.items())
            }
            for name, sessions in sorted(clock.items())
        },
    }


def _machine(record: Mapping[str, Any]) -> dict[str, Any]:
    cpu, git, accelerator = record["cpu"], record.get("git") or {}, record.get("accelerator")
    return {
        "cpu": f"{cpu['model']}, {cpu.get('family', 'microarchitecture unknown')}",
        "accelerator": accelerator and accelerator["name"],
        "torch": record["packages"].get("torch"),
        "commit": git.get("commit"),
        "dirty": git.get("dirty"),
        "code": record.get("code"),
    }


def latest_environment(folders: Iterable[CellFolder]) -> dict[str, Any]:
    """The environment record of the cell that ran last; empty if none ran."""
    recorded = (folder.environment() for folder in folders)
    records = [record for record in recorded if record is not None]
    latest = max(records, key=lambda record: str(record["since"]), default={})
    return {key: value for key, value in latest.items() if key != "earlier"}


@dataclass(frozen=True, slots=True)
class Stored:
    """A cell and its place in the store.

    cell      the cell; its name needs the models, which another machine may lack
    key       its folder
    baseline  the folder of its autoregressive baseline
    contents  digest of its task's files when it was measured; None where it was not recorded
    """

    cell: Cell
    key: str
    baseline: str
    contents: str | None


def groups_of(
    cells: Collection[Cell],
    store: Store,
    names: Mapping[str, str],
    rules: Collection[str] = (),
) -> list[Group]:
    """The groups of these cells and of their baselines; `names`: what a report calls cells;
    `rules`: those that the answers open on. Raises StoreError."""
    stored, shown = [], {}
    for cell in cells:
        baseline = cell if cell.is_autoregressive else cell.baseline()
        key = folder_of(baseline, store).key
        for each in (baseline, cell):
            folder = folder_of(each, store)
            contents = (folder.config() or {}).get("task_contents")
            stored.append(Stored(each, folder.key, key, contents))
            if each.name in names:
                shown[folder.key] = names[each.name]
    return groups_of_stored(stored, store, shown, rules)


def stored_cells(store: Store) -> list[Stored]:
    """Every cell of a store. One that is damaged, or whose configuration this version cannot read,
    is left out with a warning."""
    from bench.config.cell import Cell  # torch, which a refused command should not cost

    cells = []
    for folder in store.cells():
        try:
            config = folder.config() or {}
            cell = Cell.parsed({**config, "n": None, "timed": 0})
            folder.check()
            folder.samples(), folder.timed()
            if (traces := TraceFolder(folder)).exists():
                traces.frame()
        except (ConfigError, StoreError) as error:
            log.warning("%s is not shown: %s", folder.path, error)
            continue
        baseline = str(config.get("baseline", folder.key))
        cells.append(Stored(cell, folder.key, baseline, config.get("task_contents")))
    return cells


def groups_of_stored(
    cells: Iterable[Stored],
    store: Store,
    names: Mapping[str, str] = MappingProxyType({}),
    rules: Collection[str] = (),
) -> list[Group]:
    """The cells that have answers, by their baseline, which stands first. Raises StoreError."""
    groups: dict[str, dict[str, Stored]] = {}
    for stored in sorted(cells, key=lambda stored: not stored.cell.is_autoregressive):
        groups.setdefault(stored.baseline, {}).setdefault(stored.key, stored)
    made = [_group(list(members.values()), store, names, rules) for members in groups.values()]
    return [group for group in made if group.cells]


def _group(
    members: Sequence[Stored], store: Store, names: Mapping[str, str], rules: Collection[str]
) -> Group:
    cells = [member.cell for member in members]
    first = cells[0]
    changed = any(_has_changed(member) for member in members)
    prompts = {} if changed else {prompt.id: prompt for prompt in _prompts(cells)}
    viewed, answered = [], []
    for stored, name in zip(members, display_names(cells), strict=True):
        cell, folder = stored.cell, store.cell(stored.key)
        samples = [
            sample for sample in folder.good_samples() if sample.id in prompts or not prompts
        ]
        if samples:
            label = names.get(stored.key) or name.removeprefix(f"{cell.task.name} ")
            traces = TraceFolder(folder)
            viewed.append(Viewed(stored.key, label, cell.is_autoregressive, samples, traces))
            answered.append(cell)
    texts = first.texts
    messages = {name: _messages(prompt, texts) for name, prompt in prompts.items()}
    decoding = first.decoding
    about = [
        f"pair {first.pair.name}",
        f"T = {decoding.temperature:g}",
        *([f"top-p {decoding.top_p:g}"] if decoding.top_p < 1 else []),
        *([f"top-k {decoding.top_k}"] if decoding.top_k else []),
        *([f"min-p {decoding.min_p:g}"] if decoding.min_p else []),
        *(
            [f"repetition penalty {decoding.repetition_penalty:g}"]
            if decoding.repetition_penalty != 1
            else []
        ),
        f"seed {first.seed}",
        f"≤ {first.max_new_tokens} tokens",
        *(["texts only: its tokenizer is not on this machine"] if texts is None else []),
        *([WITHOUT[changed]] if not prompts else []),
    ]
    opens = opening(answered, rules)
    return Group(first.task.name, ", ".join(about), viewed, messages, texts, opens)


def opening(cells: Sequence[Cell], rules: Collection[str]) -> tuple[int, int]:
    """The two cells whose answers a page opens on: lossless decoding, and the first of `rules`, or
    of all rules that may change the text, on the same drafter where one is there."""
    drafted = [at for at, cell in enumerate(cells) if not cell.is_autoregressive]
    changing = [at for at in drafted if cells[at].rule.name not in KEEPING]
    asked = [at for at in changing if cells[at].rule.name in rules]
    right = (asked or changing or drafted or [len(cells) - 1])[0]
    lossless = [at for at in drafted if cells[at].rule.name in KEEPING and at != right]
    beside = [at for at in lossless if cells[at].drafter.name == cells[right].drafter.name]
    left = (beside or lossless or [0])[0]
    return left, right


def _has_changed(stored: Stored) -> bool:
    """Whether the files of the cell's task are known to be others than when it was measured."""
    try:
        return stored.contents not in (None, stored.cell.task_contents())
    # a file that was moved: the answers are shown without their prompts
    except (ConfigError, TaskError):
        return False


def _prompts(cells: Sequence[Cell]) -> list[Prompt]:
    """The prompts that any of the cells asks for; none where the task cannot give them any more."""
    try:
        return max(cells, key=prompts_asked).prompts()
    except TaskError:  # a file that was moved: the answers are shown without their prompts
        return []


def _messages(prompt: Prompt, texts: Texts | None) -> Messages:
    """(role, text) of what the target was given, the given history of earlier turns in its
    place."""
    if prompt.text is not None:
        return [("", prompt.text)]
    if prompt.input_ids is not None:
        if texts is None:
            return [("", " ".join(map(str, prompt.input_ids)))]
        return [("", "".join(texts(prompt.input_ids)))]
    system = [("system", redacted(prompt.system))] if prompt.system is not None else []
    return [*system, *prompt.prefix, *(("user", turn) for turn in prompt.turns)]
