"""The answers of cells as data for a page: groups of cells that answer the same prompts; and the
tokens of an answer: how each came, cycle by cycle, with the numbers of its trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from results.store.errors import printable
from results.store.sample import Sample
from results.store.traces import EMITTED, KEPT, Clause, TraceFolder

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 32
"""Prompts of a group whose answers a page holds: the first of the task."""
Messages = Sequence[tuple[str, str]]
"""(role, text) of a prompt, in order; the role is empty for a raw prompt."""
CODES: Final[dict[str, str]] = {
    Clause.STRICT: "s",
    Clause.ARGMAX: "a",
    Clause.RELAXED: "r",
    Clause.DRAWN: "d",
    "kept": "k",
}
"""Letter of each way a token can come; "kept": a draft token of an answer that was not traced."""
TOP = 5
NUMBERS = ("p0", "p1", "p", "q", "u", "score")
COLUMNS = (
    "prompt",
    "turn",
    "cycle",
    "node",
    "parent",
    "depth",
    "token",
    "clause",
    *NUMBERS,
    "top1",
    "top2",
    "p2",
    *(f"{name}{place}" for name in ("top", "p") for place in range(3, TOP + 1)),
    *(f"draft_{name}{place}" for name in ("top", "q") for place in range(1, TOP + 1)),
)
"""The columns of a trace that are read, where they exist."""
_PLACE = ("prompt", "turn", "cycle", "parent")
Texts = Callable[[Sequence[int]], list[str]]
KINDS: Mapping[str, str] = {
    "s": "drafted, the lossless test keeps it",
    "a": "drafted, kept as the target's first choice",
    "r": "drafted, kept by the relaxation alone",
    "k": "drafted and kept, not traced",
    "d": "drawn by the target",
}
"""Letter of `CODES` -> what the page says of it."""


@dataclass(frozen=True, slots=True)
class Viewed:
    """One cell.

    key       its name in the store
    name      short, distinct within its group
    baseline  whether it is the autoregressive baseline of the others of its group
    samples   its answers
    traces    its traces, if it has any
    """

    key: str
    name: str
    baseline: bool
    samples: Sequence[Sample]
    traces: TraceFolder | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that answer the same prompts under the same settings, the baseline first.

    task     name of the task
    about    pair, temperature and seed, in words
    cells    the cells
    prompts  prompt id -> its messages
    texts    splits token ids into their texts; None where no tokenizer is at hand
    opens    the two cells that are shown first; None: the first and the last
    """

    task: str
    about: str
    cells: Sequence[Viewed]
    prompts: Mapping[str, Messages]
    texts: Texts | None = None
    opens: tuple[int, int] | None = None

    @property
    def ids(self) -> list[str]:
        """The prompts that any of the cells answered, in the order of the task; unknown ones
        last."""
        answered = {sample.id for cell in self.cells for sample in cell.samples}
        known = [prompt for prompt in self.prompts if prompt in answered]
        return known + sorted(answered - set(known))


def parts_of(groups: Sequence[Group]) -> Iterator[tuple[str, Any]]:
    """(name, data) of each part of a page:

    index   the groups: title, [key, name, threshold] of each cell, the two that are shown first,
            [id, messages] of each prompt
    KEY     of each cell: its answer to each of these prompts, or null
    """
    shown = [(group, group.ids[:SHOWN]) for group in groups]
    yield (
        "index",
        [
            {
                "title": printable(f"{group.task} · {group.about}"),
                "cells": [
                    [cell.key, printable(cell.name), _threshold(cell)] for cell in group.cells
                ],
                "opens": group.opens or (0, len(group.cells) - 1),
                "prompts": [
                    [
                        printable(name),
                        [[role, printable(text)] for role, text in group.prompts.get(name, ())],
                    ]
                    for name in ids
                ],
            }
            for group, ids in shown
        ],
    )
    for group, ids in shown:
        for cell in group.cells:
            yield cell.key, _answers(cell, ids, group.texts)


def _threshold(cell: Viewed) -> str:
    """`theta > 0.5`: what a traced score is compared with; empty where nothing is."""
    threshold = (
        cell.traces.threshold() if cell.traces is not None and cell.traces.exists() else None
    )
    return "" if threshold is None else f"{threshold.name} {threshold.relation} {threshold.value:g}"


def _answers(cell: Viewed, ids: Sequence[str], texts: Texts | None) -> list[dict[str, Any] | None]:
    """Each answer as its turns, without a tokenizer as their texts alone, and a line on it."""
    traces: Mapping[tuple[str, int], TracedTurn] = {}
    if texts is not None and cell.traces is not None and cell.traces.exists():
        traces = by_turn(cell.traces.frame(COLUMNS), texts)
    samples = {sample.id: sample for sample in cell.samples}
    return [
        None
        if (sample := samples.get(name)) is None
        else {
            "turns": [{"text": printable(text)} for text in sample.texts]
            if texts is None
            else turns_of(sample, traces, texts),
            "line": printable(line_on(sample)),
        }
        for name in ids
    ]


def line_on(sample: Sample) -> str:
    """`right · answer 7 · 51 tokens · 8 cycles · 0.289 nats per token`."""
    tokens, score = len(sample.output_ids), sample.score
    verdict = "" if score is None else {0.0: "wrong", 1.0: "right"}.get(score, f"score {score:.3g}")
    parts = [
        verdict,
        "" if sample.answer is None else f"answer {sample.answer}",
        f"{tokens} tokens",
        f"{len(sample.committed)} cycles",
        "" if sample.nll is None or not tokens else f"{sample.nll / tokens:.3g} nats per token",
        "cut at the length limit" if "length" in sample.finish else "",
    ]
    return " · ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class TracedTurn:
    """The emitted tokens of one turn as its trace holds them, the first one excepted, which no
    trace records.

    ids      of the tokens
    letters  a letter of `CODES` for each
    numbers  for each, what `turns_of` gives under `m`
    """

    ids: list[int]
    letters: str
    numbers: list[list[Any]]


def by_turn(trace: pd.DataFrame, texts: Texts) -> dict[tuple[str, int], TracedTurn]:
    """(prompt, turn) -> its emitted tokens, and with each the proposals rejected in its place, in
    draft order."""
    shown = trace[trace["clause"].isin([*EMITTED, Clause.REJECTED])]
    order = shown["node"].where(shown["node"] >= 0, np.iinfo(np.int32).max)
    shown = shown.assign(order=order).sort_values(
        ["prompt", "turn", "cycle", "depth", "order"], kind="stable"
    )
    refused = shown[shown["clause"] == Clause.REJECTED]
    rejected: dict[tuple[Any, ...], list[Any]] = {}
    for *place, text, p0, q in zip(
        *(refused[name] for name in _PLACE),
        _texts(refused["token"], texts),
        _rounded(refused["p0"]),
        _rounded(refused["q"]),
        strict=True,
    ):
        rejected.setdefault(tuple(place), []).extend((text, p0, q))
    emitted = shown[shown["clause"] != Clause.REJECTED]
    clauses, places = (
        emitted["clause"].tolist(),
        zip(*(emitted[name] for name in _PLACE), strict=True),
    )
    behind = [
        [] if clause in KEPT else rejected.get(place, [])
        for clause, place in zip(clauses, places, strict=True)
    ]
    columns = [
        _rounded(emitted[name]) if name in emitted else [None] * len(emitted) for name in NUMBERS
    ]
    likeliest = [
        _likeliest(emitted, token, number, texts)
        for token, number in (("top", "p"), ("draft_top", "draft_q"))
    ]
    numbers = [list(row) for row in zip(*columns, behind, *likeliest, strict=True)]
    ids, turns = emitted["token"].tolist(), dict[tuple[str, int], TracedTurn]()
    grouped: Any = emitted.groupby(["prompt", "turn"], sort=False)
    for (prompt, number), rows in grouped.indices.items():
        of_turn = slice(rows[0], rows[-1] + 1)  # sorted by prompt and turn
        letters = "".join(CODES[clause] for clause in clauses[of_turn])
        turns[str(prompt), int(number)] = TracedTurn(ids[of_turn], letters, numbers[of_turn])
    return turns


def _likeliest(rows: pd.DataFrame, token: str, number: str, texts: Texts) -> list[list[Any]]:
    """For each row [text, probability, …] of the likeliest tokens that the trace holds."""
    candidates: list[list[Any]] = [[] for _ in range(len(rows))]
    for place in range(1, TOP + 1):
        if f"{number}{place}" not in rows:
            continue
        shares = _rounded(rows[f"{number}{place}"])
        present = [at for at, share in enumerate(shares) if share is not None]
        for at, text in zip(
            present, _texts(rows[f"{token}{place}"].iloc[present], texts), strict=True
        ):
            candidates[at] += [text, shares[at]]
    return candidates


def _texts(tokens: pd.Series[Any], texts: Texts) -> list[str]:
    """The text of each token by itself."""
    single = {token: printable(texts([int(token)])[0]) for token in tokens.unique().tolist()}
    return [single[token] for token in tokens.tolist()]


def _rounded(values: pd.Series[Any]) -> list[float | None]:
    """Three significant digits; None for what does not exist."""
    return [
        float(f"{value:.3g}") if math.isfinite(value) else None
        for value in values.astype(float).tolist()
    ]


def turns_of(
    sample: Sample, trace: Mapping[tuple[str, int], TracedTurn], texts: Texts
) -> list[dict[str, Any]]:
    """One mapping per turn, plain data:

    t   the text of each token
    k   a letter of `CODES` for each token
    c   tokens committed in each cycle; the first token of a turn belongs to none
    m   one list per token of a traced turn: p(x), largest p, processed p, q, u, score; then the
        proposals that were rejected in its place, the likeliest tokens of the target and those of
        the draft, each [text, number, …]
    """
    turns, start, cycles = [], 0, iter(zip(sample.committed, sample.accepted, strict=True))
    for turn, length in enumerate(sample.turn_tokens):
        ids = sample.output_ids[start : start + length]
        committed, accepted = _cycles_of(length, cycles)
        shown = {"t": [printable(text) for text in texts(ids)], "c": committed}
        traced = trace.get((sample.id, turn))
        if traced is None or traced.ids != ids[1:]:  # the trace is of other tokens
            turns.append(shown | {"k": _untraced(committed, accepted, length)})
        else:
            turns.append(
                shown | {"k": CODES[Clause.DRAWN] + traced.letters, "m": [[], *traced.numbers]}
            )
        start += length
    return turns


def _cycles_of(length: int, cycles: Iterator[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The committed and accepted tokens of the cycles of one turn; its first token comes from the
    prefill."""
    committed: list[int] = []
    accepted: list[int] = []
    while 1 + sum(committed) < length:
        tokens, kept = next(cycles)
        committed.append(tokens)
        accepted.append(min(kept, tokens))
    return committed, accepted


def _untraced(committed: Sequence[int], accepted: Sequence[int], length: int) -> str:
    """Letters from the counts of each cycle alone: its draft tokens come first."""
    kept, drawn = CODES["kept"], CODES[Clause.DRAWN]
    cycles = zip(committed, accepted, strict=True)
    letters = (kept * drafted + drawn * (tokens - drafted) for tokens, drafted in cycles)
    return (drawn + "".join(letters))[:length]
