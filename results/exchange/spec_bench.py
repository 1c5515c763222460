"""Answer files of Spec-Bench and EAGLE: one question per line, and the arithmetic of their speed scripts.

    {"question_id": 81, "category": "writing", "answer_id": …, "model_id": …, "tstamp": …,
     "choices": [{"index": 0, "turns": ["…"], "decoding_steps": [40], "new_tokens": [131], "wall_time": [2.9],
                  "accept_lengths": [3, 4, …]}]}

Source: hemingkx/Spec-Bench, evaluation/eval.py and evaluation/speed.py (commits 70f8b28, 132ba4c); SafeAILab/EAGLE,
eagle/evaluation/gen_ea_answer_*.py (12c417d), whose choices hold `idxs`, the 0-based index of the last cycle, in place
of `decoding_steps`, and no `accept_lengths`. `accept_lengths` are the tokens committed in each cycle, of all turns in
one list; `wall_time` covers the prefill, not the tokenisation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, field_validator

from results.exchange.base import Exchanged, Failed, Read, Source
from results.exchange.lines import Fields, LineFormat, parsed

MT_BENCH = frozenset(("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"))
"""Categories that speed.py reports as one task, mt_bench."""
ERROR = "ERROR"
"""What eval.py writes as the text of a turn that raised an error, with the numbers of the previous turn."""


class Choice(Fields):
    """One answer to a question; lists have one entry per turn, except `accept_lengths`."""

    index: NonNegativeInt = 0
    turns: list[str] = Field(min_length=1)
    decoding_steps: list[NonNegativeInt] | None = None
    idxs: list[NonNegativeInt] | None = None
    new_tokens: list[NonNegativeInt] = Field(min_length=1)
    wall_time: list[NonNegativeFloat] | None = None
    accept_lengths: list[NonNegativeInt] | None = None


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


class SpecBench(LineFormat):
    about = "answer files of Spec-Bench and EAGLE (JSONL)"
    prompts = "timed"

    def parse(self, data: dict[str, Any]) -> Iterator[Read]:
        question = parsed(Question, data)
        name = str(question.question_id)
        given = {"question_id": question.question_id} if _id(name) != question.question_id else {}
        for choice in question.choices:
            if ERROR in choice.turns:
                yield Failed(name, "Spec-Bench wrote ERROR in place of a turn")
                continue
            extra = {**given, **(question.model_extra or {})}
            of_choice = {**({} if choice.idxs is None else {"idxs": choice.idxs}), **(choice.model_extra or {})}
            yield Exchanged(
                id=name, category=question.category, choice=choice.index, texts=choice.turns, tokens=choice.new_tokens,
                steps=_steps(choice), seconds=choice.wall_time, committed=choice.accept_lengths,
                extra={**({"question": extra} if extra else {}), **({"choice": of_choice} if of_choice else {})})

    def objects(self, source: Source, answers: Iterable[Exchanged]) -> Iterator[Mapping[str, Any] | None]:
        for name, choices in groupby(answers, key=lambda answer: answer.id):
            held = list(choices)
            if any(answer.texts is None or answer.tokens is None for answer in held):
                yield None
                continue
            category = {} if held[0].category is None else {"category": held[0].category}
            known = {} if source.format == "spec_bench" else {"model_id": source.name}
            yield {"question_id": _id(name), **category, **known, "choices": [_choice(answer) for answer in held],
                   **held[0].extra.get("question", {})}

    def task(self, category: str | None) -> str | None:
        return "mt_bench" if category in MT_BENCH else category

    def script(self, answers: Iterable[Exchanged], baseline: Iterable[Exchanged],
               count: Callable[[str], int]) -> dict[str, float]:
        printed = speed_script(answers, baseline, count)
        return {} if printed is None else {name: value for name, value in asdict(printed).items() if value is not None}

    def files(self, source: Source) -> Iterator[tuple[str, Iterator[Exchanged]]]:
        yield from super().files(source)
        if next(source.baseline(), None) is not None:
            yield f"{source.name}.baseline.jsonl", source.baseline()


def _choice(answer: Exchanged) -> dict[str, Any]:
    further = answer.extra.get("choice", {})
    steps = None if "idxs" in further else answer.steps
    lists = {"decoding_steps": steps, "new_tokens": answer.tokens, "wall_time": answer.seconds,
             "accept_lengths": answer.committed}
    known = {name: value for name, value in lists.items() if value is not None}
    return {"index": answer.choice, "turns": answer.texts, **known, **further}


def _id(name: str) -> int | str:
    """question_id as the benchmarks write it: an integer if the name is one."""
    return int(name) if name.isdecimal() and str(int(name)) == name else name


def _steps(choice: Choice) -> list[int] | None:
    """Cycles of each turn. EAGLE's `idxs` count from 0."""
    return choice.decoding_steps if choice.idxs is None else [index + 1 for index in choice.idxs]


@dataclass(frozen=True, slots=True)
class SpeedScript:
    """What Spec-Bench's speed.py prints for two files.

    tokens_per_s           mean over questions of new tokens ÷ wall time
    baseline_tokens_per_s  the same for the baseline, whose tokens are counted again from its text
    speedup                ratio of the two means
    mean_accepted          mean of all accept lengths; None for files without them
    """

    tokens_per_s: float
    baseline_tokens_per_s: float
    speedup: float
    mean_accepted: float | None


def speed_script(method: Iterable[Exchanged], baseline: Iterable[Exchanged],
                 count: Callable[[str], int]) -> SpeedScript | None:
    """The arithmetic of Spec-Bench's evaluation/speed.py, restated.

    count  tokens of a text, including special tokens that the tokenizer adds

    The method's tokens are the file's counter, the baseline's are counted again: `count(turn) − 1` summed over its
    turns. Each side is the mean rate over all questions of its file; only the first choice counts. None if a side has
    no timed question."""
    speeds, base_speeds, committed, cycles = [], [], 0, 0
    for answer in (one for one in method if one.choice == 0):
        committed, cycles = committed + sum(answer.committed or []), cycles + len(answer.committed or [])
        if answer.seconds and sum(answer.seconds) > 0:
            speeds.append(sum(answer.tokens or []) / sum(answer.seconds))
    for answer in (one for one in baseline if one.choice == 0):
        if answer.seconds and sum(answer.seconds) > 0:
            base_speeds.append(sum(count(turn) - 1 for turn in answer.texts or []) / sum(answer.seconds))
    if not speeds or not base_speeds or not np.mean(base_speeds):
        return None
    own, base = float(np.mean(speeds)), float(np.mean(base_speeds))
    return SpeedScript(own, base, own / base, committed / cycles if cycles else None)
