"""The tokens of one answer as the viewer shows them: how each came, cycle by cycle, with the numbers of its trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from results.store.clauses import EMITTED, KEPT, Clause
from results.store.reasons import printable
from results.store.sample import Sample

CODES: Final[dict[str, str]] = {
    Clause.STRICT: "s", Clause.ARGMAX: "a", Clause.RELAXED: "r", Clause.DRAWN: "d", "kept": "k"}
"""Letter of each way a token can come; "kept": a draft token of an answer that was not traced."""
TOP = 5
NUMBERS = ("p0", "p1", "p", "q", "u", "score")
COLUMNS = ("prompt", "turn", "cycle", "node", "parent", "depth", "token", "clause", *NUMBERS, "top1", "top2", "p2",
           *(f"{name}{place}" for name in ("top", "p") for place in range(3, TOP + 1)),
           *(f"draft_{name}{place}" for name in ("top", "q") for place in range(1, TOP + 1)))
"""The columns of a trace that the viewer reads, where they exist."""
Texts = Callable[[Sequence[int]], list[str]]


def by_turn(trace: pd.DataFrame) -> dict[tuple[str, int], pd.DataFrame]:
    """(prompt, turn) -> its emitted and rejected positions, in the order of the answer; siblings in draft order."""
    shown = trace[trace["clause"].isin([*EMITTED, Clause.REJECTED])]
    order = shown["node"].where(shown["node"] >= 0, np.iinfo(np.int32).max)
    shown = shown.assign(order=order).sort_values(["prompt", "turn", "cycle", "depth", "order"], kind="stable")
    grouped: Any = shown.groupby(["prompt", "turn"], sort=False)
    return {(str(key[0]), int(key[1])): rows for key, rows in grouped}


def turns_of(sample: Sample, trace: Mapping[tuple[str, int], pd.DataFrame], texts: Texts) -> list[dict[str, Any]]:
    """One mapping per turn, plain data:

    t   the text of each token
    k   a letter of `CODES` for each token
    c   tokens committed in each cycle; the first token of a turn belongs to none
    m   one list per token of a traced turn: p(x), largest p, processed p, q, u, score; then the proposals that were
        rejected in its place, the likeliest tokens of the target and those of the draft, each [text, number, …]
    """
    turns, start, cycles = [], 0, iter(zip(sample.committed, sample.accepted, strict=True))
    for turn, length in enumerate(sample.turn_tokens):
        ids = sample.output_ids[start:start + length]
        committed, accepted = _cycles_of(length, cycles)
        rows, found = trace.get((sample.id, turn)), None
        if rows is not None:
            found = _traced(ids, rows, texts)
        kinds, numbers = found or (_untraced(committed, accepted, length), None)
        turns.append({"t": [printable(text) for text in texts(ids)], "k": kinds, "c": committed}
                     | ({} if numbers is None else {"m": numbers}))
        start += length
    return turns


def _cycles_of(length: int, cycles: Iterator[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The committed and accepted tokens of the cycles of one turn; its first token comes from the prefill."""
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
    return (drawn + "".join(kept * own + drawn * (all_ - own)
                            for all_, own in zip(committed, accepted, strict=True)))[:length]


def _traced(ids: Sequence[int], rows: pd.DataFrame, texts: Texts) -> tuple[str, list[list[Any]]] | None:
    """Letters and numbers of each token; None where the trace is of other tokens."""
    emitted = rows[rows["clause"] != Clause.REJECTED]
    if emitted["token"].tolist() != list(ids[1:]):
        return None
    rejected: dict[tuple[int, int], list[Any]] = {}
    for row in rows[rows["clause"] == Clause.REJECTED].to_dict("records"):
        here = rejected.setdefault((row["cycle"], row["parent"]), [])
        here += [printable(texts([row["token"]])[0]), _rounded(row["p0"]), _rounded(row["q"])]
    letters = CODES[Clause.DRAWN]
    numbers: list[list[Any]] = [[]]
    for row in emitted.to_dict("records"):
        letters += CODES[row["clause"]]
        refused = [] if row["clause"] in KEPT else rejected.get((row["cycle"], row["parent"]), [])
        numbers.append([*(_rounded(row.get(name)) for name in NUMBERS), refused,
                        _likeliest(row, "top", "p", texts), _likeliest(row, "draft_top", "draft_q", texts)])
    return letters, numbers


def _likeliest(row: Mapping[Any, Any], token: str, number: str, texts: Texts) -> list[Any]:
    """[text, probability, …] of the likeliest tokens that the trace holds."""
    found: list[Any] = []
    for place in range(1, TOP + 1):
        share = row.get(f"{number}{place}")
        if share is not None and math.isfinite(share):
            found += [printable(texts([int(row[f"{token}{place}"])])[0]), _rounded(share)]
    return found


def _rounded(value: float | None) -> float | None:
    """Three significant digits; None for what does not exist."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")
