"""What the file formats share: the cells of a store as they are written, and files of one JSON
object per line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal

from results.metrics.summary import Summary, summary_of
from results.store.cells import CellFolder, Store
from results.store.files import replacing
from results.store.records import json_text
from results.store.sample import Sample, Timed

Prompts = Literal["all", "timed"]


class ExchangeError(ValueError):
    """A file that does not follow its format, or a cell that a format cannot hold. The message is
    one line: file, line, field and what is wrong."""


@dataclass(frozen=True, slots=True)
class Source:
    """A measured cell to be written.

    folder      the cell's
    baseline    that of its baseline
    config      its configuration
    metric      the name of its score
    proportion  whether the score is 0 or 1
    prompts     all answers are written, or only the timed ones of a timed cell
    """

    folder: CellFolder
    baseline: CellFolder
    config: Mapping[str, Any]
    metric: str
    proportion: bool
    prompts: Prompts

    @property
    def name(self) -> str:
        """The cell's key, which names the files."""
        return self.folder.key

    def part(self, section: str) -> str:
        """The name of the cell's pair, task, drafter or rule."""
        return str((self.config.get(section) or {}).get("name", "?"))

    def answers(self) -> Iterator[tuple[Sample, Timed | None]]:
        """The answers, with their times where they were timed. Raises StoreError."""
        timed = {row.id: row for row in self.folder.timed()}
        for sample in self.folder.good_samples():
            if self.prompts == "all" or not timed or sample.id in timed:
                yield sample, timed.get(sample.id)

    def summary(self) -> Summary:
        """The metrics of the cell. Raises StoreError."""
        return summary_of(self.folder, self.baseline, self.metric, self.proportion)


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written: its path, the number of answers in it, and the number left out."""

    path: Path
    answers: int
    left_out: int = 0


def write_objects(path: Path, objects: Iterable[Mapping[str, Any] | None]) -> Written:
    """Write one object per line; None stands for an answer that the format cannot hold. Raises
    StoreError."""
    written = left_out = 0
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for row in objects:
            if row is None:
                left_out += 1
            else:
                file.write(json_text(row) + "\n")
                written += 1
    return Written(path, written, left_out)


def measured_sources(
    store: Store, prompts: Prompts, score_of: Callable[[Mapping[str, Any]], tuple[str, bool]]
) -> Iterator[Source]:
    """Every cell of a store that has answers. `score_of`: a cell's configuration -> the name of its
    task's score, and whether that is 0 or 1. Raises StoreError."""
    for folder in store.cells():
        config = folder.config() or {}
        if (folder.path / "samples.jsonl").exists():
            baseline = store.cell(str(config.get("baseline", folder.key)))
            yield Source(folder, baseline, config, *score_of(config), prompts)


def cycles_of_turns(turn_tokens: list[int], committed: list[int]) -> list[int]:
    """Cycles of each turn: a turn's first token comes from the prefill, the others from its cycles.
    One number for all turns if the numbers do not add up."""
    ends = list(accumulate(max(0, tokens - 1) for tokens in turn_tokens))
    totals = [0, *accumulate(committed)]
    if not ends or totals[-1] != ends[-1] or any(end not in totals for end in ends):
        return [len(committed)]
    places = [0, *(totals.index(end) for end in ends)]
    return [after - before for before, after in pairwise(places)]
