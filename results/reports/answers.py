"""The answers of cells as data for a page: groups of cells that answer the same prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.metrics.summary import Summary
from results.reports.tokens import COLUMNS, Texts, TracedTurn, by_turn, turns_of
from results.store.errors import printable
from results.store.sample import Sample
from results.store.traces import TraceFolder

SHOWN = 32
"""Prompts of a group whose answers a page holds: the first of the task."""
Messages = Sequence[tuple[str, str]]
"""(role, text) of a prompt, in order; the role is empty for a raw prompt."""


@dataclass(frozen=True, slots=True)
class Viewed:
    """One cell.

    key       its name in the store
    name      short, distinct within its group
    baseline  whether it is the autoregressive baseline of the others of its group
    samples   its answers
    traces    its traces, if it has any
    summary   its metrics, if it is complete
    """

    key: str
    name: str
    baseline: bool
    samples: Sequence[Sample]
    traces: TraceFolder | None = None
    summary: Summary | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that answer the same prompts under the same settings, the baseline first.

    task     name of the task
    about    pair, temperature and seed, in words
    cells    the cells
    prompts  prompt id -> its messages
    texts    splits token ids into their texts; None where no tokenizer is at hand
    """

    task: str
    about: str
    cells: Sequence[Viewed]
    prompts: Mapping[str, Messages]
    texts: Texts | None = None

    @property
    def ids(self) -> list[str]:
        """The prompts that any of the cells answered, in the order of the task; unknown ones last."""
        answered = {sample.id for cell in self.cells for sample in cell.samples}
        known = [prompt for prompt in self.prompts if prompt in answered]
        return known + sorted(answered - set(known))


def parts_of(groups: Sequence[Group]) -> Iterator[tuple[str, Any]]:
    """(name, data) of each part of a page:

    index   the groups: title, [key, name, threshold] of each cell, [id, messages] of each prompt
    KEY     of each cell: its answer to each of these prompts, or null
    """
    shown = [(group, group.ids[:SHOWN]) for group in groups]
    yield "index", [{
        "title": printable(f"{group.task} · {group.about}"),
        "cells": [[cell.key, printable(cell.name), _threshold(cell)] for cell in group.cells],
        "prompts": [[printable(name), [[role, printable(text)] for role, text in group.prompts.get(name, ())]]
                    for name in ids]} for group, ids in shown]
    for group, ids in shown:
        for cell in group.cells:
            yield cell.key, _answers(cell, ids, group.texts)


def _threshold(cell: Viewed) -> str:
    """`theta > 0.5`: what a traced score is compared with; empty where nothing is."""
    held = cell.traces.threshold() if cell.traces is not None and cell.traces.exists() else None
    return "" if held is None else f"{held.name} {held.relation} {held.value:g}"


def _answers(cell: Viewed, ids: Sequence[str], texts: Texts | None) -> list[dict[str, Any] | None]:
    """Each answer as its turns, without a tokenizer as their texts alone, and a line on it."""
    traces: Mapping[tuple[str, int], TracedTurn] = {}
    if texts is not None and cell.traces is not None and cell.traces.exists():
        traces = by_turn(cell.traces.frame(COLUMNS), texts)
    samples = {sample.id: sample for sample in cell.samples}
    return [None if (sample := samples.get(name)) is None else {
        "turns": [{"text": printable(text)} for text in sample.texts] if texts is None
        else turns_of(sample, traces, texts), "line": printable(line_on(sample))} for name in ids]


def line_on(sample: Sample) -> str:
    """`right · answer 7 · 51 tokens · 8 cycles · 0.289 nats a token`."""
    tokens, score = len(sample.output_ids), sample.score
    verdict = "" if score is None else {0.0: "wrong", 1.0: "right"}.get(score, f"score {score:.3g}")
    parts = [verdict, "" if sample.answer is None else f"answer {sample.answer}", f"{tokens} tokens",
             f"{len(sample.committed)} cycles",
             "" if sample.nll is None or not tokens else f"{sample.nll / tokens:.3g} nats a token",
             "cut at the length limit" if "length" in sample.finish else ""]
    return " · ".join(filter(None, parts))
