"""The cells of a page as data for its answer viewer: groups of cells that answer the same prompts, in named parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from results.metrics.pairwise import Answers, Comparison, Difference, compare_cells
from results.metrics.replay import COLUMNS as REPLAYED
from results.metrics.replay import default_values, replay
from results.metrics.summary import Summary
from results.reports.viewer.tokens import COLUMNS, Texts, TracedTurn, by_turn, turns_of
from results.store.reasons import printable
from results.store.sample import Sample
from results.store.timed import Timed
from results.store.traces import TraceFolder

CHUNK = 32
"""Answers a part: what the page loads to show one of them."""
Messages = Sequence[tuple[str, str]]
"""(role, text) of a prompt, in order; the role is empty for a raw prompt."""


@dataclass(frozen=True, slots=True)
class Viewed:
    """One cell.

    key       its name in the store
    method    short name, distinct within its group
    settings  what distinguishes it, in words
    lossless  whether it has exactly the target's distribution
    baseline  whether it is the autoregressive baseline of the others of its group
    samples   its answers
    timed     its timed prompts
    traces    its traces, if it has any
    summary   its metrics, if it is complete
    rule      name of its rule
    row       what the report that the page opens with calls its method
    """

    key: str
    method: str
    settings: str
    lossless: bool
    baseline: bool
    samples: Sequence[Sample]
    timed: Sequence[Timed]
    traces: TraceFolder | None = None
    summary: Summary | None = None
    rule: str = ""
    row: str = ""

    @property
    def label(self) -> str:
        """The method's name without its settings."""
        return self.method.split(" ")[0]

    @property
    def name(self) -> str:
        """What the report calls the method, else its settings."""
        return self.row or self.method

    @property
    def answers(self) -> Answers:
        return Answers({sample.id: sample for sample in self.samples}, {row.id: row for row in self.timed},
                       self.baseline)


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that answer the same prompts under the same settings, the baseline first.

    key      name of the baseline's cell
    task     name of the task
    about    pair, temperature and seed, in words
    cells    the cells
    prompts  prompt id -> its messages
    texts    splits token ids into their texts; None where no tokenizer is at hand
    """

    key: str
    task: str
    about: str
    cells: Sequence[Viewed]
    prompts: Mapping[str, Messages]
    texts: Texts | None = field(default=None)

    @property
    def ids(self) -> list[str]:
        """The prompts that any of the cells answered, in the order of the task; unknown ones last."""
        answered = {sample.id for cell in self.cells for sample in cell.samples}
        known = [prompt for prompt in self.prompts if prompt in answered]
        return known + sorted(answered - set(known))


def parts_of(groups: Sequence[Group]) -> dict[str, Any]:
    """Name -> data of each part:

    index           the groups and their cells
    rows:CELL       a list per prompt: score, tokens, cycles, seconds, nats a token, how it ended; null if not answered
    prompts:GROUP:I the messages of prompts I·32 …
    answers:CELL:I  the answers to them
    compare:GROUP   the comparisons of its cells
    """
    parts: dict[str, Any] = {"index": {"chunk": CHUNK, "groups": [_entry(group) for group in groups]}}
    for group in groups:
        ids = group.ids
        for number, chunk in enumerate(_chunks(ids)):
            parts[f"prompts:{group.key}:{number}"] = [
                [[role, printable(text)] for role, text in group.prompts.get(one, ())] for one in chunk]
        if len(group.cells) > 1:
            parts[f"compare:{group.key}"] = comparisons(group.cells)
        for cell in group.cells:
            parts.update(_cell_parts(cell, ids, group.texts))
    return parts


def _entry(group: Group) -> dict[str, Any]:
    cells = [{"key": cell.key, "method": printable(cell.method), "settings": printable(cell.settings),
              "lossless": cell.lossless, "baseline": cell.baseline, **_replay(cell)}
             for cell in group.cells]
    scores = {sample.score for cell in group.cells for sample in cell.samples}
    return {"key": group.key, "task": printable(group.task), "about": printable(group.about), "cells": cells,
            "ids": [printable(one) for one in group.ids], "binary": scores <= {0.0, 1.0}}


def _replay(cell: Viewed) -> dict[str, Any]:
    """Whether the cell is traced, and its acceptance at other thresholds where its rule has one."""
    if cell.traces is None or not cell.traces.exists():
        return {"traced": False}
    threshold = cell.traces.threshold()
    if threshold is None:
        return {"traced": True}
    trace = cell.traces.frame(REPLAYED)
    rows = replay(trace, threshold, default_values(trace, threshold)).astype(object)
    rows = rows.where(rows.notna(), None)
    return {"traced": True, "threshold": asdict(threshold), "replay": [
        [row["threshold"], row["accept_len"], row["acceptance"], row["acceptance_low"], row["acceptance_high"]]
        for row in rows.to_dict("records")]}


def _cell_parts(cell: Viewed, ids: Sequence[str], texts: Texts | None) -> Iterator[tuple[str, Any]]:
    """(name, data) of the cell's rows and answers."""
    samples, timed = cell.answers.samples, cell.answers.timed
    yield f"rows:{cell.key}", [None if (one := samples.get(i)) is None else _row(one, timed.get(i)) for i in ids]
    traces: Mapping[tuple[str, int], TracedTurn] = {}
    if texts is not None and cell.traces is not None and cell.traces.exists():
        traces = by_turn(cell.traces.frame(COLUMNS), texts)
    for number, chunk in enumerate(_chunks(ids)):
        yield f"answers:{cell.key}:{number}", [
            None if (one := samples.get(i)) is None else _answer(one, traces, texts) for i in chunk]


def _row(sample: Sample, timed: Timed | None) -> list[Any]:
    tokens = len(sample.output_ids)
    seconds = None if timed is None else round(timed.own.prefill_s + timed.own.decode_s, 4)
    nll = None if sample.nll is None or not tokens else round(sample.nll / tokens, 4)
    return [sample.score, tokens, len(sample.committed), seconds, nll, "length" in sample.finish]


def _answer(sample: Sample, traces: Mapping[tuple[str, int], TracedTurn], texts: Texts | None) -> dict[str, Any]:
    """The turns of an answer; without a tokenizer its texts alone."""
    turns = [{"text": printable(text)} for text in sample.texts] if texts is None else turns_of(sample, traces, texts)
    return {"turns": turns, "answer": None if sample.answer is None else printable(sample.answer)}


def comparisons(cells: Sequence[Viewed]) -> dict[str, list[Any]]:
    """`LEFT RIGHT` (their places) -> lost, won, McNemar's p, and [mean, low, high, n] of the paired differences of
    tokens, seconds and nats a token."""
    answers = [cell.answers for cell in cells]
    return {f"{i} {j}": _plain(compare_cells(answers[i], answers[j])) for i, j in combinations(range(len(cells)), 2)}


def _plain(found: Comparison) -> list[Any]:
    def numbers(one: Difference | None) -> list[Any] | None:
        return None if one is None else [one.mean, one.low, one.high, one.n]

    return [found.lost, found.won, found.p, numbers(found.tokens), numbers(found.seconds), numbers(found.nll)]


def _chunks(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start:start + CHUNK] for start in range(0, len(ids), CHUNK)]
