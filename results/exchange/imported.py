"""The numbers of a Spec-Bench or EAGLE file with their intervals: of the whole file, and of each of its tasks.

They are written to <into>/imported-spec_bench-<hash>.json, which is no cell of a store: no run or report reads it.
τ is pooled over the prompts as everywhere in Leeway: tokens committed in cycles ÷ cycles. Speeds are pooled tokens ÷
wall time as the file has it, prefill included; a speedup covers the prompts that both files timed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from results.exchange.base import Exchanged, ExchangeError
from results.exchange.spec_bench import read, task
from results.metrics.delta import clocked_interval
from results.metrics.intervals import Interval, ratio_interval
from results.store.files import replace_text
from results.store.records import json_text

OVERALL = "overall"
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ImportedCell:
    """Numbers of one task of an imported file; None if the file lacks the data. `X_ci95`: the 95% interval of X, over
    prompts.

    task                   the task's name; `OVERALL` for the whole file
    n                      prompts with an answer
    cycles                 draft–verify cycles
    tau                    tokens committed in cycles ÷ cycles
    tokens_per_s           new tokens ÷ wall time
    baseline_tokens_per_s  the same of the baseline file, as it counts its tokens
    paired                 prompts that both files timed
    speedup                ratio of both on these prompts
    speed_script           what Spec-Bench's speed script computes, by name
    """

    task: str
    n: int
    cycles: int
    tau: float | None
    tau_ci95: Interval | None
    tokens_per_s: float | None
    tokens_per_s_ci95: Interval | None
    baseline_tokens_per_s: float | None
    baseline_tokens_per_s_ci95: Interval | None
    paired: int
    speedup: float | None
    speedup_ci95: Interval | None
    speed_script: dict[str, float]


def bring_in(into: Path, file: Path, baseline: Path | None = None,
             count: Count | None = None) -> tuple[Path, list[ImportedCell], int]:
    """Read a file and write its numbers into the folder `into`; a second import replaces the first. `baseline`: a file
    with the baseline's answers to the same prompts; `count`: tokens of a text, for the restated arithmetic of the speed
    script. Returns where the numbers are, the numbers, and how many answers Spec-Bench could not compute. Raises
    ExchangeError for a wrong file, of which nothing is kept; StoreError if it cannot be written."""
    base = None if baseline is None else _read(baseline, count)[0]
    own, failed = _read(file, None)
    tasks = list(dict.fromkeys(own.task))
    cells = [_cell(name, own if name == OVERALL else own[own.task == name],
                   base if base is None or name == OVERALL else base[base.task == name], count is not None)
             for name in (OVERALL, *(name for name in tasks if name and len(tasks) > 1))]
    with open(file, "rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    path = into / f"imported-spec_bench-{sha256[:12]}.json"
    plain = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "file": str(file), "sha256": sha256,
             "baseline": None if baseline is None else str(baseline), "failed": failed,
             "cells": [asdict(cell) for cell in cells]}
    replace_text(path, json_text(plain, indent=1) + "\n")
    return path, cells, failed


def _read(file: Path, count: Count | None) -> tuple[pd.DataFrame, int]:
    """A row for each answer, without its text, and how many answers failed. `recounted`: its tokens as the speed script
    counts the baseline's."""
    rows, failed = [], 0
    for answer in read(file):
        if answer is None:
            failed += 1
        else:
            rows.append(_row(answer, count))
    if not rows:
        raise ExchangeError(f"{file}: no answer to measure: "
                            + (f"{failed} × ERROR in place of a turn" if failed else "it is empty"))
    return pd.DataFrame(rows), failed


def _row(answer: Exchanged, count: Count | None) -> dict[str, object]:
    """Without accept lengths, τ is new tokens ÷ cycles."""
    tokens, seconds, steps = sum(answer.tokens or []), sum(answer.seconds or []), sum(answer.steps or [])
    exact = answer.committed is not None
    return {"category": answer.category or "", "id": answer.id, "task": task(answer.category) or "",
            "first": answer.choice == 0, "committed": sum(answer.committed or []) if exact else tokens,
            "cycles": len(answer.committed or []) if exact else steps, "counted": exact or steps > 0,
            "lengths": sum(answer.committed or []), "tokens": tokens, "seconds": seconds,
            "clocked": bool(answer.seconds),
            "recounted": 0 if count is None else sum(count(turn) - 1 for turn in answer.texts or [])}


def _by_prompt(answers: pd.DataFrame) -> pd.DataFrame:
    """The answers to each prompt summed; a prompt is counted or clocked where all of them are."""
    sums = dict.fromkeys(("committed", "cycles", "tokens", "seconds"), "sum")
    return answers.groupby(["category", "id"], sort=False).agg(sums | dict.fromkeys(("counted", "clocked"), "all"))


def _cell(name: str, answers: pd.DataFrame, baseline: pd.DataFrame | None, has_script: bool) -> ImportedCell:
    own = _by_prompt(answers)
    counted, timed = own[own.counted & (own.cycles > 0)], own[own.clocked & (own.seconds > 0)]
    base = own.iloc[:0] if baseline is None else _by_prompt(baseline)
    pairs = timed.join(base[base.clocked & (base.seconds > 0)], how="inner", rsuffix="_base")
    own_clock, base_clock = (pairs.tokens, pairs.seconds), (pairs.tokens_base, pairs.seconds_base)
    own_rate, base_rate = _pooled(*own_clock), _pooled(*base_clock)
    return ImportedCell(
        task=name, n=len(own), cycles=int(counted.cycles.sum()), tau=_pooled(counted.committed, counted.cycles),
        tau_ci95=ratio_interval(counted.committed, counted.cycles) if len(counted) else None,
        tokens_per_s=_pooled(timed.tokens, timed.seconds), tokens_per_s_ci95=_clocked(timed.tokens, timed.seconds),
        baseline_tokens_per_s=base_rate, baseline_tokens_per_s_ci95=_clocked(*base_clock), paired=len(pairs),
        speedup=own_rate / base_rate if own_rate is not None and base_rate else None,
        speedup_ci95=_clocked(*own_clock, *base_clock) if base_rate else None,
        speed_script=speed_script(answers, baseline) if has_script and baseline is not None else {})


def _clocked(*columns: pd.Series[float]) -> Interval | None:
    return clocked_interval(*columns) if len(columns[0]) else None


def _pooled(numerators: pd.Series[float], denominators: pd.Series[float]) -> float | None:
    total = denominators.sum()
    return float(numerators.sum() / total) if total > 0 else None


def speed_script(method: pd.DataFrame, baseline: pd.DataFrame) -> dict[str, float]:
    """The arithmetic of Spec-Bench's evaluation/speed.py, restated; empty if a side has no timed question.

    tokens_per_s           mean over questions of new tokens ÷ wall time
    baseline_tokens_per_s  the same for the baseline, whose tokens are counted again from its text
    speedup                ratio of the two means
    mean_accepted          mean of all accept lengths; missing for files without them

    The method's tokens are the file's counter, the baseline's are counted again: `count(turn) − 1` summed over its
    turns, with the special tokens that the tokenizer adds. Each side averages over all questions of its file; only the
    first choice counts."""
    own, base = (side[side["first"] & (side.seconds > 0)] for side in (method, baseline))
    if not len(own) or not len(base) or not base.recounted.sum():
        return {}
    rates = float((own.tokens / own.seconds).mean()), float((base.recounted / base.seconds).mean())
    first = method[method["first"] & (method.lengths > 0)]
    printed = {"tokens_per_s": rates[0], "baseline_tokens_per_s": rates[1], "speedup": rates[0] / rates[1]}
    return printed | ({"mean_accepted": float(first.lengths.sum() / first.cycles.sum())} if len(first) else {})
