"""The answers of cells for the page's viewer: with their prompts, the texts of their tokens and their traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from bench.config.paths import TINY
from bench.run.progress import display_names
from methods.engine.source import ModelError
from methods.engine.token_texts import token_texts
from results.reports.viewer.cells import Group, Viewed
from results.store.traces import TraceFolder
from tasks.base import TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.reports.viewer.cells import Messages
    from results.reports.viewer.tokens import Texts
    from results.store.cells import Store
    from tasks.base import Prompt


def groups_of(cells: Iterable[Cell], store: Store, commands: Mapping[str, str] | None = None) -> list[Group]:
    """The cells that have answers, by their autoregressive twin, which stands first in its group whether or not it is
    among them. `commands`: name of a cell -> the command that measures it. Raises StoreError."""
    groups: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        twin = cell if cell.is_autoregressive else cell.baseline()
        groups.setdefault(twin.name, {twin.name: twin}).setdefault(cell.name, cell)
    made = [_group(list(members.values()), store, commands or {}) for members in groups.values()]
    return [group for group in made if group.cells]


def _group(cells: Sequence[Cell], store: Store, commands: Mapping[str, str]) -> Group:
    first = cells[0]
    prompts = {prompt.id: prompt for prompt in _prompts(cells)}
    names = display_names(cells)
    viewed = []
    for cell, name in zip(cells, names, strict=True):
        folder = store.cell(cell.name)
        samples = [sample for sample in folder.good_samples() if sample.id in prompts or not prompts]
        if samples:
            label, _, settings = name.removeprefix(f"{cell.task.name} ").partition(" ")
            viewed.append(Viewed(cell.name, f"{label} {settings}".strip(), "" if settings else _settings(cell),
                                 cell.is_lossless, cell.is_autoregressive, samples, folder.timed(),
                                 TraceFolder(folder), folder.summary(), commands.get(cell.name, "")))
    texts = _texts(first)
    messages = {name: _messages(prompt, texts) for name, prompt in prompts.items()}
    about = [f"pair {first.pair.name}", f"T = {first.decoding.temperature:g}", f"seed {first.seed}",
             *(["texts only: its tokenizer is not on this machine"] if texts is None else []),
             *(["without the prompts: the task cannot read them"] if not prompts else [])]
    return Group(first.name, first.task.name, ", ".join(about), viewed, messages, texts)


def _settings(cell: Cell) -> str:
    """`K = 7, θ = 0.9`, where the cell drafts and its rule has a θ."""
    theta = getattr(cell.rule.options, "theta", None)
    return ", ".join([*([] if cell.is_autoregressive else [f"K = {cell.draft.length}"]),
                      *([] if theta is None else [f"θ = {theta:g}"])])


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
    system = [("system", prompt.system)] if prompt.system is not None else []
    return [*system, *prompt.prefix, *(("user", turn) for turn in prompt.turns)]


def _texts(cell: Cell) -> Texts | None:
    """Splits answers of the cell's target into tokens; None where its tokenizer is not on this machine."""
    checkpoint = cell.pair.target
    try:
        return _tokenizer(checkpoint.source, checkpoint.revision)
    except ModelError:
        return None


@cache
def _tokenizer(source: str, revision: str | None) -> Callable[[Sequence[int]], list[str]]:
    return token_texts(source, revision, TINY / "target").of
