"""The answers of cells for a page: with their prompts, the texts of their tokens and their traces."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from bench.config.errors import ConfigError
from bench.run.console import display_names
from bench.run.texts import texts_of
from results.metrics.summary import summary_of
from results.reports.answers import Group, Viewed
from results.store.errors import StoreError, redacted
from results.store.traces import TraceFolder
from tasks.base import TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.reports.answers import Messages
    from results.reports.tokens import Texts
    from results.store.cells import Store
    from tasks.base import Prompt

log = logging.getLogger(__name__)
WITHOUT = {False: "without the prompts: the task cannot read them",
           True: "without the prompts: the files of the task have changed since"}


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


def groups_of(cells: Iterable[Cell], store: Store, names: Mapping[str, str]) -> list[Group]:
    """The groups of these cells and of their baselines; `names`: what a report calls cells. Raises StoreError."""
    baselines = {cell.name: cell if cell.is_autoregressive else cell.baseline() for cell in cells}
    both = [Stored(each, each.name, baseline.name, (store.cell(each.name).config() or {}).get("task_contents"))
            for cell in cells for baseline in [baselines[cell.name]] for each in (baseline, cell)]
    return groups_of_stored(both, store, names)


def stored_cells(store: Store) -> list[Stored]:
    """Every cell of a store. One that is damaged, or whose configuration this version cannot read, is left out with a
    warning."""
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
        cells.append(Stored(cell, folder.key, str(config.get("baseline", folder.key)), config.get("task_contents")))
    return cells


def groups_of_stored(cells: Iterable[Stored], store: Store, names: Mapping[str, str] = MappingProxyType({})
                     ) -> list[Group]:
    """The cells that have answers, by their baseline, which stands first. Raises StoreError."""
    groups: dict[str, dict[str, Stored]] = {}
    for stored in sorted(cells, key=lambda stored: not stored.cell.is_autoregressive):
        groups.setdefault(stored.baseline, {}).setdefault(stored.key, stored)
    made = [_group(key, list(members.values()), store, names) for key, members in groups.items()]
    return [group for group in made if group.cells]


def _group(key: str, members: Sequence[Stored], store: Store, names: Mapping[str, str]) -> Group:
    cells = [member.cell for member in members]
    first = cells[0]
    changed = any(_has_changed(member) for member in members)
    prompts = {} if changed else {prompt.id: prompt for prompt in _prompts(cells)}
    viewed = []
    task = first.load_task()
    for stored, name in zip(members, display_names(cells), strict=True):
        cell, folder = stored.cell, store.cell(stored.key)
        samples = [sample for sample in folder.good_samples() if sample.id in prompts or not prompts]
        if samples:
            known = names.get(stored.key) or name.removeprefix(f"{cell.task.name} ")
            viewed.append(Viewed(stored.key, known, cell.is_autoregressive, samples, TraceFolder(folder),
                                 summary_of(folder, store.cell(key), task.metric, task.proportion)))
    texts = texts_of(first)
    messages = {name: _messages(prompt, texts) for name, prompt in prompts.items()}
    decoding = first.decoding
    about = [f"pair {first.pair.name}", f"T = {decoding.temperature:g}",
             *([f"top-p {decoding.top_p:g}"] if decoding.top_p < 1 else []),
             *([f"top-k {decoding.top_k}"] if decoding.top_k else []),
             *([f"min-p {decoding.min_p:g}"] if decoding.min_p else []),
             f"seed {first.seed}", f"≤ {first.max_new_tokens} tokens",
             *(["texts only: its tokenizer is not on this machine"] if texts is None else []),
             *([WITHOUT[changed]] if not prompts else [])]
    return Group(first.task.name, ", ".join(about), viewed, messages, texts)


def _has_changed(stored: Stored) -> bool:
    """Whether the files of the cell's task are known to be others than when it was measured."""
    try:
        return stored.contents not in (None, stored.cell.task_contents())
    except (ConfigError, TaskError):  # a file that was moved: the answers are shown without their prompts
        return False


def _prompts(cells: Sequence[Cell]) -> list[Prompt]:
    """The prompts that any of the cells asks for; none where the task cannot give them any more."""
    numbers = [cell.n for cell in cells]
    most = None if None in numbers else max(number for number in numbers if number is not None)
    try:
        return cells[0].load_task().prompts(most, cells[0].seed)
    except TaskError:  # a file that was moved: the answers are shown without their prompts
        return []


def _messages(prompt: Prompt, texts: Texts | None) -> Messages:
    """(role, text) of what the target was given, the given history of earlier turns in its place."""
    if prompt.text is not None:
        return [("", prompt.text)]
    if prompt.input_ids is not None:
        return [("", " ".join(map(str, prompt.input_ids)) if texts is None else "".join(texts(prompt.input_ids)))]
    system = [("system", redacted(prompt.system))] if prompt.system is not None else []
    return [*system, *prompt.prefix, *(("user", turn) for turn in prompt.turns)]
