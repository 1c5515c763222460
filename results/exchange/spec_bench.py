"""Answer files of Spec-Bench and EAGLE: one question per line.

    {"question_id": 81, "category": "writing", "answer_id": …, "model_id": …, "tstamp": …,
     "choices": [{"index": 0, "turns": ["…"], "decoding_steps": [40], "new_tokens": [131], "wall_time": [2.9],
                  "accept_lengths": [3, 4, …]}]}

Source: hemingkx/Spec-Bench, evaluation/eval.py and evaluation/speed.py (commits 70f8b28, 132ba4c); SafeAILab/EAGLE,
eagle/evaluation/gen_ea_answer_*.py (12c417d), whose choices hold `idxs`, the 0-based index of the last cycle, in place
of `decoding_steps`, and no `accept_lengths`. `accept_lengths` are the tokens committed in each cycle, of all turns in
one list; `wall_time` covers the prefill, not the tokenisation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from results.exchange.base import Exchanged, ExchangeError, Source, Written, write_objects
from results.store.errors import first_fault, one_line
from results.store.records import from_json

MT_BENCH = frozenset(("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"))
"""Categories that speed.py reports as one task, mt_bench."""
ERROR = "ERROR"
"""What eval.py writes as the text of a turn that raised an error, with the numbers of the previous turn."""
LINE_BYTES = 16 << 20
"""A longer line is refused: no answer is that long."""
LONGEST_CYCLE = 4097
"""Tokens that one cycle can commit: a draft of 4096 and the bonus."""
MOST = 1 << 53
"""Largest count: up to it float64 holds every integer."""
Count = Annotated[int, Field(ge=0, le=MOST)]


class Fields(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class Choice(Fields):
    """One answer to a question; lists have one entry per turn, except `accept_lengths`."""

    index: Count = 0
    turns: list[str] = Field(min_length=1)
    decoding_steps: list[Count] | None = None
    idxs: list[Count] | None = None
    new_tokens: list[Count] = Field(min_length=1)
    wall_time: list[Annotated[float, Field(ge=0, le=MOST)]] | None = None
    accept_lengths: list[Annotated[int, Field(ge=0, le=LONGEST_CYCLE)]] | None = None

    @property
    def steps(self) -> list[int] | None:
        """Cycles of each turn. EAGLE's `idxs` count from 0."""
        return self.decoding_steps if self.idxs is None else [index + 1 for index in self.idxs]


class Question(Fields):
    """One line of a file."""

    question_id: int | str
    category: str | None = None
    choices: list[Choice] = Field(min_length=1)

    @field_validator("choices")
    @classmethod
    def _distinct(cls, choices: list[Choice]) -> list[Choice]:
        if len({choice.index for choice in choices}) < len(choices):
            raise ValueError("index: two choices have the same")
        return choices


# --- reading

def read(file: Path) -> Iterator[Exchanged | None]:
    """The answers of a file, one after another; None for one that Spec-Bench could not compute. Raises ExchangeError,
    naming file, line and field, for a wrong line and for a repeated question."""
    first: dict[tuple[str, str | None, int], int] = {}
    for number, line in _lines(file):
        try:
            data = from_json(line)
        except ValueError as error:
            raise ExchangeError(f"{file} line {number}: is not JSON ({one_line(error)})") from error
        if not isinstance(data, dict):
            raise ExchangeError(f"{file} line {number}: is not a JSON object but {type(data).__name__}")
        try:
            question = Question.model_validate(data)
            answers = [_exchanged(question, choice) for choice in question.choices]
        except ValueError as error:
            fault = first_fault(error) if isinstance(error, ValidationError) else one_line(error)
            raise ExchangeError(f"{file} line {number}: {fault}") from error
        for answer in answers:
            if answer is not None:
                earlier = first.setdefault((answer.id, answer.category, answer.choice), number)
                if earlier != number:
                    raise ExchangeError(f"{file} line {number}: repeats {answer.id!r} of line {earlier}: "
                                        "remove one of them")
            yield answer


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """(number, line) of each line that is not blank."""
    try:
        with open(file, "rb") as lines:
            number = 0
            while line := lines.readline(LINE_BYTES + 1):
                number += 1
                if len(line) > LINE_BYTES:
                    raise ExchangeError(f"{file} line {number}: longer than {LINE_BYTES >> 20} MiB, the limit")
                if line.strip():
                    yield number, line
    except OSError as error:
        raise ExchangeError(f"{file}: cannot be read: {error.strerror or error}") from error


def _exchanged(question: Question, choice: Choice) -> Exchanged | None:
    """Raises ValueError for counts that contradict each other."""
    if ERROR in choice.turns:
        return None
    _check_cycles(choice)
    return Exchanged(
        id=str(question.question_id), category=question.category, choice=choice.index, texts=choice.turns,
        tokens=choice.new_tokens, steps=choice.steps, seconds=choice.wall_time, committed=choice.accept_lengths)


def _check_cycles(choice: Choice) -> None:
    """Raise ValueError for counts that no decoding can have given.

    Tokens may exceed what the cycles committed by one a turn, which the prefill emits; the cycles may have committed
    more by one cycle a turn, which an end or a limit cut."""
    turns, tokens = max(len(choice.turns), len(choice.new_tokens)), sum(choice.new_tokens)
    steps = None if choice.steps is None else sum(choice.steps)
    if steps is not None and not steps - turns <= tokens <= turns + LONGEST_CYCLE * steps:
        raise ValueError(f"new_tokens: {tokens} in {steps} cycles; each commits 1 to {LONGEST_CYCLE}")
    if (cycles := choice.accept_lengths) is None:
        return
    if steps is not None and abs(len(cycles) - steps) > turns:
        raise ValueError(f"accept_lengths: {len(cycles)} cycles, but the answer has {steps}")
    committed, cut = sum(cycles), turns * max(cycles, default=0)
    if not committed - cut <= tokens <= committed + turns:
        raise ValueError(f"accept_lengths: {committed} tokens in all cycles, but the answer has {tokens}")


def task(category: str | None) -> str | None:
    """The task that a category belongs to, as speed.py reports it."""
    return "mt_bench" if category in MT_BENCH else category


# --- writing

def write(sources: Iterable[Source], folder: Path) -> Iterator[Written]:
    """Write a file per cell into `folder`, and one of the baseline's answers where they were timed beside it. Raises
    StoreError."""
    for source in sources:
        line = partial(_line, source.name)
        yield write_objects(folder / f"{source.name}.jsonl", map(line, source.answers()))
        if next(source.baseline(), None) is not None:
            yield write_objects(folder / f"{source.name}.baseline.jsonl", map(line, source.baseline()))


def _line(model: str, answer: Exchanged) -> dict[str, Any] | None:
    """The line of an answer; None for one without text or tokens."""
    if answer.texts is None or answer.tokens is None:
        return None
    lists = {"decoding_steps": answer.steps, "new_tokens": answer.tokens, "wall_time": answer.seconds,
             "accept_lengths": answer.committed}
    known = {name: value for name, value in lists.items() if value is not None}
    number = answer.id.isdecimal() and str(int(answer.id)) == answer.id
    return {"question_id": int(answer.id) if number else answer.id, "model_id": model,
            "choices": [{"index": 0, "turns": answer.texts, **known}]}
