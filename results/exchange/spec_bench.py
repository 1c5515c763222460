"""Answer files of Spec-Bench and EAGLE, one question per line: read, with the numbers that Leeway
gives, and written.

    {"question_id": 81, "category": "writing", "answer_id": …, "model_id": …, "tstamp": …,
     "choices": [{"index": 0, "turns": ["…"], "decoding_steps": [40], "new_tokens": [131],
     "wall_time": [2.9],
                  "accept_lengths": [3, 4, …]}]}

Source: hemingkx/Spec-Bench, evaluation/eval.py and evaluation/speed.py (commits 70f8b28, 132ba4c);
SafeAILab/EAGLE, eagle/evaluation/gen_ea_answer_*.py (12c417d), whose choices hold `idxs`, the
0-based index of the last cycle, in place of `decoding_steps`, and no `accept_lengths`.
`accept_lengths` are the tokens committed in each cycle, of all turns in one list; `wall_time`
covers the prefill, not the tokenisation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from results.exchange.base import ExchangeError, Source, Written, cycles_of_turns, write_objects
from results.metrics.catalog import METRICS
from results.metrics.metric import Sums
from results.store.errors import StoreError, first_fault, one_line
from results.store.files import content_of
from results.store.records import from_json
from results.store.sample import Sample, Timed, TimedRun

MT_BENCH = frozenset(
    ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
)
"""Categories that speed.py reports as one task, mt_bench."""
ERROR = "ERROR"
"""What eval.py writes as the text of a turn that raised an error, with the numbers of the previous
turn."""
OVERALL = "overall"
MOST = 1 << 53
"""Largest count: up to it float64 holds every integer."""
Count = Annotated[int, Field(ge=0, le=MOST)]
Seconds = Annotated[float, Field(ge=0, le=MOST)]


class Fields(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class Choice(Fields):
    """One answer to a question; lists have one entry per turn, except `accept_lengths`."""

    index: Count = 0
    turns: list[str] = Field(min_length=1)
    decoding_steps: list[Count] | None = None
    idxs: list[Count] | None = None
    new_tokens: list[Count] = Field(min_length=1)
    wall_time: list[Seconds] | None = None
    accept_lengths: list[Count] | None = None


class Question(Fields):
    """One line of a file."""

    question_id: int | str
    category: str | None = None
    choices: list[Choice] = Field(min_length=1)


Task = dict[str, Any]
"""Numbers of one task of a file; None if the file lacks the data. `X_ci95`: the 95% interval of X
over prompts, made as that of the metric of the same name.

    task      the task's name; `OVERALL` for the whole file
    n         prompts with an answer
    cycles    draft–verify cycles
    paired    prompts that both files timed
    tau       tokens committed in cycles ÷ cycles, pooled; without accept lengths, new tokens ÷
              cycles
    tokens_per_s, baseline_tokens_per_s
              pooled tokens ÷ wall time as the file has it, prefill included; the baseline's on the
              paired prompts
    speedup   ratio of tokens/s to the baseline file's, on the paired prompts
"""


def read(file: Path, baseline: Path | None = None) -> tuple[list[Task], int]:
    """The numbers of a file, and how many answers Spec-Bench could not compute. `baseline`: a file
    with the baseline's answers to the same prompts. Raises ExchangeError, naming file, line and
    field."""
    base = None if baseline is None else _answers(baseline)[0]
    own, failed = _answers(file)
    names = [name for name in dict.fromkeys(own.task) if name]
    return [
        _numbers(
            name,
            own if name == OVERALL else own[own.task == name],
            base if base is None or name == OVERALL else base[base.task == name],
        )
        for name in (OVERALL, *(names if len(names) > 1 else ()))
    ], failed


def _answers(file: Path) -> tuple[pd.DataFrame, int]:
    """A row for each answer, and how many failed."""
    rows: list[dict[str, Any]] = []
    failed, seen = 0, dict[tuple[str, str | None, int], int]()
    try:
        lines = (content_of(file) or b"").splitlines()
    except StoreError as error:
        raise ExchangeError(str(error)) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            question = Question.model_validate(from_json(line))
        except ValueError as error:
            fault = (
                first_fault(error)
                if isinstance(error, ValidationError)
                else f"is not JSON ({one_line(error)})"
            )
            raise ExchangeError(f"{file} line {number}: {fault}") from error
        for choice in question.choices:
            name = str(question.question_id)
            if (
                earlier := seen.setdefault((name, question.category, choice.index), number)
            ) != number:
                raise ExchangeError(
                    f"{file} line {number}: repeats {name!r} of line {earlier}: remove one of them"
                )
            if ERROR in choice.turns:
                failed += 1
            else:
                rows.append(
                    {
                        "id": name,
                        "category": question.category or "",
                        **_row(choice),
                        "task": "mt_bench"
                        if question.category in MT_BENCH
                        else question.category or "",
                    }
                )
    if not rows:
        reason = (
            f"{failed} × ERROR in place of a turn"
            if failed
            else "it is empty, or there is no such file"
        )
        raise ExchangeError(f"{file}: no answer to measure: {reason}")
    return pd.DataFrame(rows), failed


def _row(choice: Choice) -> dict[str, Any]:
    """EAGLE's `idxs` count from 0."""
    steps = (
        choice.decoding_steps or [] if choice.idxs is None else [index + 1 for index in choice.idxs]
    )
    lengths, tokens = choice.accept_lengths, sum(choice.new_tokens)
    return {
        "committed": tokens if lengths is None else sum(lengths),
        "tokens": tokens,
        "cycles": sum(steps) if lengths is None else len(lengths),
        "seconds": sum(choice.wall_time or []),
    }


def _numbers(name: str, answers: pd.DataFrame, baseline: pd.DataFrame | None) -> Task:
    def by_prompt(rows: pd.DataFrame) -> pd.DataFrame:
        """The answers to each prompt summed: they depend on one another."""
        return rows.groupby(["category", "id"], sort=False)[
            ["committed", "cycles", "tokens", "seconds"]
        ].sum()

    own = by_prompt(answers)
    counted, timed = own[own.cycles > 0], own[own.seconds > 0]
    base = own.iloc[:0] if baseline is None else by_prompt(baseline)
    pairs = timed.join(base[base.seconds > 0], how="inner", rsuffix="_base")
    both = pairs[["tokens", "seconds", "tokens_base", "seconds_base"]]
    found: Task = {
        "task": name,
        "n": len(own),
        "cycles": int(counted.cycles.sum()),
        "paired": len(pairs),
    }
    for metric, rows in (
        ("tau", counted[["committed", "cycles"]]),
        ("tokens_per_s", timed[["tokens", "seconds"]]),
        ("baseline_tokens_per_s", both),
        ("speedup", both),
    ):
        names, how = list(map(str, rows.index)), METRICS[metric]
        sums = Sums(rows.to_numpy(float), names, names, [True] * len(names))
        found |= {
            metric: how.estimator.value(sums, how.statistic),
            f"{metric}_ci95": how.estimator.interval(sums, how.statistic),
        }
    return found


def write(sources: Iterable[Source], folder: Path) -> Iterator[Written]:
    """Write a file per cell into `folder`, and one of the baseline's answers where they were timed
    beside it. Raises StoreError."""
    for source in sources:
        line = partial(_line, source.name)
        yield write_objects(
            folder / f"{source.name}.jsonl",
            (
                line(sample, sample.committed, None if timed is None else timed.own)
                for sample, timed in source.answers()
            ),
        )
        if rows := source.folder.timed():
            yield write_objects(
                folder / f"{source.name}.baseline.jsonl", _baseline(line, rows, source)
            )


def _baseline(
    line: partial[dict[str, Any]], rows: list[Timed], source: Source
) -> Iterator[dict[str, Any] | None]:
    """The autoregressive runs timed beside the cell's; a prompt without the baseline's text is left
    out."""
    samples = {sample.id: sample for sample in source.baseline.good_samples()}
    for row in rows:
        run = row.runs[1]
        yield line(samples[row.id], [1] * run.cycles, run) if row.id in samples else None


def _line(model: str, sample: Sample, committed: list[int], run: TimedRun | None) -> dict[str, Any]:
    """The line of an answer. `new_tokens` belong to the measured time: if the timed run decoded
    another number than the quality pass, that number."""
    parted = run is not None and run.tokens != len(sample.output_ids)
    tokens = [run.tokens] if run is not None and parted else sample.turn_tokens
    clock = {} if run is None else {"wall_time": [run.prefill_s + run.decode_s]}
    number = sample.id.isdecimal() and str(int(sample.id)) == sample.id
    return {
        "question_id": int(sample.id) if number else sample.id,
        "model_id": model,
        "choices": [
            {
                "index": 0,
                "turns": sample.texts,
                "decoding_steps": cycles_of_turns(tokens, committed),
                "new_tokens": tokens,
                **clock,
                "accept_lengths": committed,
            }
        ],
    }
