"""Answers as Spec-Bench and EAGLE write them, one question a line.

    {"question_id": 81, "model_id": …, "choices": [{"index": 0, "turns": ["…"],
     "decoding_steps": [40], "new_tokens": [131], "wall_time": [2.9],
     "accept_lengths": [3, 4, …]}]}

`accept_lengths` are the tokens committed in each cycle, of all turns in one list. `wall_time` is
one number for all turns: the prefill and decoding of the timed run. If that run decoded other
tokens than the quality pass, `new_tokens` is its count. The token drawn from the prefill belongs
to no cycle: the sum of `accept_lengths` is `new_tokens` less one per turn; EAGLE counts it in the
first cycle.

Spec-Bench's `speed.py` prints other speedups for the same files: it counts the baseline's tokens
again, from texts that were stripped and cut at the first stop token, and averages tokens ÷ seconds
over questions instead of pooling them. Its mean accepted tokens are tau here.

Source: hemingkx/Spec-Bench, evaluation/eval.py and evaluation/speed.py (commits 70f8b28,
132ba4c)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from results.exchange.base import Source, Written
from results.store.files import replace_text
from results.store.records import json_text
from results.store.sample import Sample, TimedRun

Answer = tuple[Sample, list[int], TimedRun | None]
"""An answer, the tokens committed in each cycle, and what the clock said."""


def write(sources: Iterable[Source], folder: Path) -> Iterator[Written]:
    """Write CELL.jsonl for each cell into `folder` and, where it was timed, CELL.baseline.jsonl:
    the autoregressive runs timed beside it. Raises StoreError."""
    for source in sources:
        key = source.folder.key
        answers: list[Answer] = [
            (sample, sample.committed, None if timed is None else timed.own)
            for sample, timed in source.answers()
        ]
        yield _write(folder / f"{key}.jsonl", key, answers)
        plain = {row.id: row.runs[1] for row in source.folder.timed()}
        if plain:
            beside: list[Answer] = [
                (sample, [1] * plain[sample.id].cycles, plain[sample.id])
                for sample in source.baseline.good_samples()
                if sample.id in plain
            ]
            yield _write(folder / f"{key}.baseline.jsonl", key, beside)


def _write(path: Path, model: str, answers: list[Answer]) -> Written:
    lines = [json_text(_line(model, *answer)) + "\n" for answer in answers]
    replace_text(path, "".join(lines))
    return path, len(lines)


def _line(model: str, sample: Sample, committed: list[int], run: TimedRun | None) -> dict[str, Any]:
    """`new_tokens` belong to the measured time: those of the timed run, if it decoded another
    number than the quality pass."""
    tokens = sample.turn_tokens
    if run is not None and run.tokens != len(sample.output_ids):
        tokens = [run.tokens]
    choice = {
        "index": 0,
        "turns": sample.texts,
        "decoding_steps": cycles_of_turns(tokens, committed),
        "new_tokens": tokens,
        "accept_lengths": committed,
    }
    if run is not None:
        choice["wall_time"] = [run.prefill_s + run.decode_s]
    is_number = sample.id.isdecimal() and str(int(sample.id)) == sample.id
    question = int(sample.id) if is_number else sample.id
    return {"question_id": question, "model_id": model, "choices": [choice]}


def cycles_of_turns(turn_tokens: list[int], committed: list[int]) -> list[int]:
    """Cycles of each turn: a turn's first token comes from the prefill, the others from its cycles.
    One number for all turns if the numbers do not add up."""
    ends = [0, *accumulate(max(0, tokens - 1) for tokens in turn_tokens)]
    totals = [0, *accumulate(committed)]
    if totals[-1] != ends[-1] or not set(ends) <= set(totals):
        return [len(committed)]
    return [after - before for before, after in pairwise(map(totals.index, ends))]
