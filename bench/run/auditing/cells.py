"""Answers of `python -m bench`, of Leeway's own loop or of vLLM with its rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.run.answer import context
from bench.run.auditing.answers import Source
from bench.run.run import run
from bench.run.session import Session
from methods.audit import Text

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Settings
    from methods.engine.language_model import LanguageModel
    from results.store.sample import Sample


def texts_of(cell: Cell, samples: Sequence[Sample], target: LanguageModel) -> list[Text]:
    """The answers of the cell's samples, a text for each turn."""
    prompts = {prompt.id: prompt for prompt in cell.prompts()}
    texts = []
    for sample in samples:
        start = 0
        for turn, count in enumerate(sample.turn_tokens):
            ids = context(target, prompts[sample.id], sample.texts[:turn])
            texts.append(Text(sample.id, ids, sample.output_ids[start : start + count]))
            start += count
    return texts


def from_cells(cell: Cell, settings: Settings, samples: int, target: LanguageModel) -> Source:
    """The answers of a cell and of its next repetitions, decoded where the store lacks them. Raises
    StoreError."""
    session = Session(settings)
    cells = [cell.replace(repeat=cell.repeat + number) for number in range(samples)]
    session.check(cells)
    run(cells, session)
    failed = session.print_failures(cells)
    texts, exact = [], []
    for each in cells:
        texts += texts_of(each, session.folder(each).good_samples(), target)
        summary = session.compared(each)
        exact.append(None if summary is None else summary.value("distortion"))
    known = [value for value in exact if value is not None]
    mean = sum(known) / len(known) if len(known) == len(cells) else None
    notes = ["some prompts failed; they are left out"] if failed else []
    return Source(f"{cell.label}, engine={cell.engine.name}", texts, False, notes, mean)
