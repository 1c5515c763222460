"""How alike answers are, by models that compare meanings (`similarity`): those of DropMatch's heads (Figure 3), and
what would have followed a rejected draft token (ARC-Decode, Figure 2).
Each cell's numbers are a record in its folder: what was compared, and measure -> series -> numbers. What was compared
before is not compared again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.reports.plan import AGREEMENT, Plan, models_of
from bench.run.answer import context, limits_of, stream_name
from methods.decode import Request, generate
from results.store.errors import one_line
from results.store.traces import EMITTED, Clause, TraceFolder

if TYPE_CHECKING:
    import pandas as pd

    from bench.config.cell import Cell
    from bench.config.settings import Similarity
    from bench.run.session import Session
    from methods.engine.sentences import SentenceModel
    from methods.method import Method
    from results.store.sample import Sample
    from tasks.base import Prompt

REJECTED, AGAIN = "rejected token", "same token, other random numbers"
COLUMNS = ["prompt", "turn", "cycle", "depth", "clause", "token"]
BATCH = 16


class Models:
    """The models of `similarity`, each loaded when it is first needed; `measures`: those that the figure shows."""

    def __init__(self, options: Similarity, device: str, measures: tuple[str, ...]) -> None:
        self.options, self.device, self.measures = options, device, measures
        self._loaded = cache(self._load)

    def score(self, measure: str, label: str, first: Sequence[str], second: Sequence[str]) -> list[float]:
        """One number for each pair of texts; `label`: whose probability "entailment" stands for. Raises ModelError."""
        from methods.engine import sentences

        model = self._loaded(measure)
        if measure == "sentence":
            return sentences.cosines(model, first, second)
        if measure == "entailment":
            return sentences.label_probabilities(model, label, first, second)
        return sentences.bert_scores(model, first, second, self.options.bertscore_layer)

    def about(self, cell: Cell) -> dict[str, Any]:
        """What decides the numbers of a record, beside the answers: prompts and models."""
        layer = {"bertscore_layer": self.options.bertscore_layer} if "bertscore" in self.measures else {}
        return {"asked": cell.n, "models": self.options.models(self.measures), **layer}

    def _load(self, measure: str) -> SentenceModel:
        from methods.engine.sentences import SentenceModel

        return SentenceModel(getattr(self.options, measure), self.device, classifies=measure == "entailment")


def compare_meanings(plan: Plan, session: Session) -> int:
    """Compare the answers of a figure that shows how alike they are. Returns 1 where that failed, with a line on the
    error stream, else 0."""
    measures = models_of(plan.spec)
    if not measures:
        return 0
    series = plan.spec.figure.series  # type: ignore[union-attr]  # only figures have measures
    models = cache(lambda device: Models(session.settings.similarity, device, measures))
    measured = {cell.name for cell in plan.cells.values() if session.compared(cell) is not None}
    groups = plan.groups(series) if series else [[cell] for cell in plan.cells.values()]
    work, status = compare_paths if series else continue_rejected, 0
    for group in groups:
        try:
            if cells := [cell for cell in group if cell.name in measured]:
                work(cells, session, models(cells[0].engine.device))
        except ValueError as error:  # a model that cannot be used, a record that cannot be read
            print(f"failed: {one_line(error)}", file=sys.stderr)
            status = 1
    return status


def compare_paths(cells: Sequence[Cell], session: Session, models: Models) -> None:
    """Compare the answers of every two of these cells, prompt by prompt; a series is another cell. Raises ModelError,
    StoreError."""
    texts = {cell.name: {sample.id: "\n\n".join(sample.texts) for sample in session.folder(cell).good_samples()}
             for cell in cells}
    common = sorted(set.intersection(*(set(of_cell) for of_cell in texts.values())))
    for cell in cells if common else ():
        folder = session.folder(cell)
        about = models.about(cell) | {"cells": list(texts), "prompts": len(common)}
        if (folder.record(AGREEMENT) or {}).get("about") == about:
            continue
        own = [texts[cell.name][prompt] for prompt in common]
        values = {measure: {name: models.score(measure, "entailment", own, [of_cell[prompt] for prompt in common])
                            for name, of_cell in texts.items()} for measure in about["models"]}
        with folder.lock(wait=True):
            folder.write_record(AGREEMENT, {"about": about, "values": values})


@dataclass(frozen=True, slots=True)
class Fork:
    """A place where an answer is continued once more.

    series   REJECTED or AGAIN.
    start    tokens before the continuation: context and answer up to the fork, and the token that is forced.
    key      name of the random stream.
    room     tokens left until the answer's length limit.
    own      the answer's own tokens from the fork on.
    """

    series: str
    start: tuple[int, ...]
    key: str
    room: int
    own: tuple[int, ...]


def continue_rejected(cells: Sequence[Cell], session: Session, models: Models) -> None:
    """Force rejected tokens of a traced cell, continue its answers under the same settings, and compare with their own
    continuations. At temperature above 0 two continuations of one token differ too: the emitted token, continued once
    more with other random numbers, is the reference. Raises ModelError, StoreError."""
    [cell] = cells
    folder, pool = session.folder(cell), session.engines.lab
    about = models.about(cell) | {"positions": models.options.positions}
    traces = TraceFolder(folder, folder.ids)
    if not traces.exists() or (folder.record(AGREEMENT) or {}).get("about") == about:
        return
    pool.keep_only([cell])
    method, frame = pool.load(cell).method, traces.frame(COLUMNS)
    prompts = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    forks = [fork for sample in folder.good_samples()
             for fork in forks_of(cell, method, prompts[sample.id], sample, frame[frame["prompt"] == sample.id],
                                  models.options.positions)]
    continued = continuations(cell, method, forks)
    own = [method.target.decode(list(fork.own)) for fork in forks]
    values: dict[str, dict[str, list[float]]] = {}
    for measure in about["models"]:
        scores = models.score(measure, "contradiction", own, continued) if forks else []
        values[measure] = {series: [score for fork, score in zip(forks, scores, strict=True) if fork.series == series]
                           for series in (REJECTED, AGAIN)}
    with folder.lock(wait=True):
        folder.write_record(AGREEMENT, {"about": about, "values": values})


def forks_of(cell: Cell, method: Method, prompt: Prompt, sample: Sample, frame: pd.DataFrame,
             positions: int) -> Iterator[Fork]:
    """The forks of one answer: at `positions` evenly spread places of each turn where tokens were rejected, one for
    each rejected token and one for the emitted token. `frame`: the trace of the prompt."""
    task, start = cell.load_task(), 0
    for turn, tokens in enumerate(sample.turn_tokens):
        answer, start = sample.output_ids[start:start + tokens], start + tokens
        ids = context(method.target, prompt, sample.texts[:turn])
        stream = stream_name(cell, task, prompt, turn)
        rejected = rejections(frame[frame["turn"] == turn], tokens)
        chosen = np.linspace(0, len(rejected) - 1, min(positions, len(rejected))).round().astype(int)
        for at in np.array(sorted(rejected), int)[chosen].tolist():
            seeds = [(AGAIN, answer[at]), *((REJECTED, token) for token in rejected[at] if token != answer[at])]
            for series, token in seeds:
                yield Fork(series, (*ids, *answer[:at], token), f"{stream}/{at}/{token}", cell.max_new_tokens - at - 1,
                           tuple(answer[at:]))


def rejections(frame: pd.DataFrame, tokens: int) -> dict[int, list[int]]:
    """Position in an answer of so many tokens -> the draft tokens that were rejected there. `frame`: the trace of the
    turn; position 0 comes from the prefill."""
    path = frame[frame["clause"].isin(EMITTED)].sort_values(["cycle", "depth"], kind="stable").head(tokens - 1)
    places = {place: at for at, place in enumerate(zip(path["cycle"], path["depth"], strict=True), start=1)}
    found: dict[int, list[int]] = {}
    rejected = frame[frame["clause"] == Clause.REJECTED]
    for cycle, depth, token in zip(rejected["cycle"], rejected["depth"], rejected["token"], strict=True):
        if (cycle, depth) in places:  # not beyond the end of the answer
            found.setdefault(places[cycle, depth], []).append(int(token))
    return found


def continuations(cell: Cell, method: Method, forks: Sequence[Fork]) -> list[str]:
    """The text that each fork leads to, the forced token included."""
    limits, texts = limits_of(cell, method.target, cell.load_task()), []
    for batch in (forks[i:i + BATCH] for i in range(0, len(forks), BATCH)):
        open_forks = [fork for fork in batch if fork.room > 0 and fork.start[-1] not in limits.eos_ids]
        runs = generate(method, [Request(list(fork.start), fork.key) for fork in open_forks], limits) \
            if open_forks else []
        ends = {fork: run.output_ids for fork, run in zip(open_forks, runs, strict=True)}
        texts += [method.target.decode([fork.start[-1], *ends.get(fork, [])[:max(fork.room, 0)]]) for fork in batch]
    return texts
