"""What the file formats share: an answer in common terms, the cells of a store as such answers, and files of one JSON
object per line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
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
    """A file that does not follow its format, or a cell that a format cannot hold. The message is one line: file, line,
    field and what is wrong."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One answer to one prompt. None: the store or the file does not say.

    id         the prompt's id
    category   the part of its benchmark that the prompt belongs to
    choice     which of several answers to the prompt, from 0
    texts      the answer of each turn
    tokens     new tokens of each turn, or one number for all turns
    steps      draft–verify cycles of each turn, or one number for all turns
    seconds    wall time of each turn, prefill included, or one number for all turns
    committed  tokens committed in each cycle over all turns, the correction or bonus token included
    scores     name of a score -> its value
    answer     what the task extracted from the text
    """

    id: str
    category: str | None = None
    choice: int = 0
    texts: list[str] | None = None
    tokens: list[int] | None = None
    steps: list[int] | None = None
    seconds: list[float] | None = None
    committed: list[int] | None = None
    scores: dict[str, float] = field(default_factory=dict)
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A measured cell to be written.

    name      its key in its store; names the files
    task      the name of its task
    about     what ran: model, method, versions, as plain data
    answers   its answers; each call reads them again
    baseline  the baseline's answers to its timed prompts; each call reads them again
    folder    its folder in the store
    summary   its metrics; each call computes them
    """

    name: str
    task: str
    about: dict[str, Any]
    answers: Callable[[], Iterator[Exchanged]]
    baseline: Callable[[], Iterator[Exchanged]]
    folder: CellFolder
    summary: Callable[[], Summary]


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written: its path, the number of answers in it, and the number left out."""

    path: Path
    answers: int
    left_out: int = 0


def write_objects(path: Path, objects: Iterable[Mapping[str, Any] | None]) -> Written:
    """Write one object per line; None stands for an answer that the format cannot hold. Raises StoreError."""
    written = left_out = 0
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for one in objects:
            if one is None:
                left_out += 1
            else:
                file.write(json_text(one) + "\n")
                written += 1
    return Written(path, written, left_out)


def measured_sources(store: Store, prompts: Prompts,
                     score_of: Callable[[Mapping[str, Any]], tuple[str, bool]]) -> Iterator[Source]:
    """Every cell of a store that has answers, one after another. `prompts`: all answers, or only the timed ones of
    timed cells; `score_of`: a cell's configuration -> the name of its task's score, and whether that is 0 or 1. Raises
    StoreError."""
    for folder in store.cells():
        config = folder.config() or {}
        if not (folder.path / "samples.jsonl").exists():
            continue
        baseline = store.cell(str(config.get("baseline", folder.key)))
        metric, proportion = score_of(config)
        yield Source(folder.key, _name(config, "task"), about_of(folder, config),
                     partial(_answers, folder, prompts, metric), partial(_baseline, folder, baseline), folder,
                     partial(summary_of, folder, baseline, metric, proportion))


def about_of(folder: CellFolder, config: Mapping[str, Any]) -> dict[str, Any]:
    """What ran, without the paths of this machine."""
    environment = folder.environment() or {}
    return {
        "pair": _name(config, "pair"), "drafter": config.get("drafter"), "rule": config.get("rule"),
        "draft": config.get("draft"), "decoding": config.get("decoding"), "task": _name(config, "task"),
        "seed": config.get("seed"), "models": config.get("fingerprints"), "since": environment.get("since"),
        "commit": (environment.get("git") or {}).get("commit"), "packages": environment.get("packages"),
    }


def exchanged(sample: Sample, timed: Timed | None, metric: str) -> Exchanged:
    """A sample in common terms. `tokens` belongs to the measured time: if the timed run decoded another number than
    the quality pass, that number."""
    run = None if timed is None else timed.own
    parted = run is not None and run.tokens != len(sample.output_ids)
    return Exchanged(
        id=sample.id, texts=sample.texts, tokens=[run.tokens] if run is not None and parted else sample.turn_tokens,
        steps=cycles_of_turns(sample.turn_tokens, sample.committed) or [len(sample.committed)],
        seconds=None if run is None else [run.prefill_s + run.decode_s], committed=sample.committed,
        scores=sample.details if sample.score is None else {metric: sample.score, **sample.details},
        answer=sample.answer)


def cycles_of_turns(turn_tokens: list[int], committed: list[int]) -> list[int] | None:
    """Cycles of each turn: a turn's first token comes from the prefill, the others from its cycles. None if the numbers
    do not add up."""
    ends = list(accumulate(max(0, tokens - 1) for tokens in turn_tokens))
    totals = [0, *accumulate(committed)]
    if not ends or totals[-1] != ends[-1] or any(end not in totals for end in ends):
        return None
    places = [0, *(totals.index(end) for end in ends)]
    return [after - before for before, after in pairwise(places)]


def _answers(folder: CellFolder, prompts: Prompts, metric: str) -> Iterator[Exchanged]:
    timed = {row.id: row for row in folder.timed()}
    for sample in folder.good_samples():
        if prompts == "timed" and timed and sample.id not in timed:
            continue
        yield exchanged(sample, timed.get(sample.id), metric)


def _baseline(folder: CellFolder, baseline: CellFolder) -> Iterator[Exchanged]:
    """The autoregressive runs timed beside the cell's, with the baseline's texts. A prompt without such a text is
    left out."""
    samples = {sample.id: sample for sample in baseline.good_samples()}
    for timed in folder.timed():
        run, sample = timed.runs[1], samples.get(timed.id)
        if sample is not None:
            tokens = sample.turn_tokens if run.tokens == len(sample.output_ids) else [run.tokens]
            yield Exchanged(
                id=timed.id, texts=sample.texts, tokens=tokens,
                steps=cycles_of_turns(tokens, [1] * run.cycles) or [run.cycles],
                seconds=[run.prefill_s + run.decode_s], committed=[1] * run.cycles)


def _name(config: Mapping[str, Any], section: str) -> str:
    part = config.get(section)
    return str(part.get("name")) if isinstance(part, Mapping) else "?"
