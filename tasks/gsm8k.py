"""gsm8k: grade-school word problems (Cobbe et al. 2021, arXiv:2110.14168), four worked examples before each question.

Two extractions are common and both are computed: `strict` takes the number of the first `#### n`, `flexible` the last
number of the text. Numbers are compared as numbers: "$1,000", "1000." and "\\boxed{1000}" are all 1000.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tasks.base import Prompt, Score, TaskError
from tasks.jsonl import read_rows

Filter = Literal["strict", "flexible"]

HUB = ("openai/gsm8k", "main", "test")
SHOTS = Path(__file__).parent / "data" / "gsm8k_4shot.jsonl"

_INTEGER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_NUMBER = rf"(?:(?<![\w)])[-\u2212])?\$?(?:{_INTEGER}(?:\.[0-9]+)?|\.[0-9]+)"
_STRICT = re.compile(rf"####\s*({_NUMBER})")
_FLEXIBLE = re.compile(_NUMBER)
_LATEX_GAPS = re.compile(r"\{,\}|\\[,!]|\\(?=\$)")


class Gsm8kOptions(BaseModel):
    """path: a local JSONL file with the fields question and answer; None loads the test split from the hub.
    chat: examples as earlier turns of a conversation, else one text of "Question: … Answer: …" blocks.
    filter: the extraction that counts as the score. max_new_tokens: where decoding.max_new_tokens is null."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | None = None
    chat: bool = True
    filter: Filter = "flexible"
    max_new_tokens: int = Field(400, ge=1)


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    question: str = Field(min_length=1)
    answer: str

    @field_validator("answer")
    @classmethod
    def _ends_with_number(cls, answer: str) -> str:
        if extract(answer, "strict") is None:
            raise ValueError("has no final number; it must end with a line `#### NUMBER`")
        return answer


class Gsm8k:
    """GSM8K as a `Task`; the score is exact match of the final number."""

    name = "gsm8k"
    version = 1
    metric = "exact_match"
    proportion = True

    def __init__(self, options: Gsm8kOptions) -> None:
        self._options = options
        self.stop: tuple[str, ...] = () if options.chat else ("Question:",)

    def prompts(self, n: int | None = None, seed: int = 0) -> list[Prompt]:
        """The first `n` problems (all when None) in the order of the source. Raises TaskError."""
        path = self._options.path
        rows = [row for _, row in read_rows(path, _Row)] if path else _from_hub()
        shots = [row for _, row in read_rows(SHOTS, _Row)]
        return [self._prompt(index, row, shots) for index, row in enumerate(rows[:n])]

    def _prompt(self, index: int, row: _Row, shots: Sequence[_Row]) -> Prompt:
        name, reference = f"gsm8k-{index:04d}", {"answer": extract(row.answer, "strict")}
        if self._options.chat:
            prefix = tuple(said for shot in shots for said in (("user", shot.question), ("assistant", shot.answer)))
            return Prompt(name, turns=(row.question,), prefix=prefix, reference=reference)
        examples = "".join(f"Question: {shot.question}\nAnswer: {shot.answer}\n\n" for shot in shots)
        return Prompt(name, text=f"{examples}Question: {row.question}\nAnswer:", reference=reference)

    def score(self, prompt: Prompt, texts: Sequence[str]) -> Score:
        """1 when the number extracted by the chosen filter is the right one; both filters are in the details."""
        found: dict[Filter, str | None] = {name: extract(texts[0], name) for name in ("strict", "flexible")}
        right = {name: float(number == prompt.reference["answer"]) for name, number in found.items()}
        return Score(right[self._options.filter], found[self._options.filter], right)


def extract(text: str, filter: Filter) -> str | None:
    """The final number of a text in its plain form ("-1000", "2.5"); None where there is none."""
    numbers = (_STRICT if filter == "strict" else _FLEXIBLE).findall(_LATEX_GAPS.sub("", text))
    if not numbers:
        return None
    number = numbers[0 if filter == "strict" else -1]
    value = Decimal(number.replace(",", "").replace("$", "").replace("\u2212", "-"))
    plain = f"{value or 0:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _from_hub() -> list[_Row]:
    import datasets

    source, configuration, split = HUB
    try:
        rows = datasets.load_dataset(source, configuration, split=split)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise TaskError(
            f"gsm8k: {source} cannot be loaded from the hub ({reason[:200]}); give task.path=FILE.jsonl with the "
            "fields question and answer"
        ) from error
    return [_Row.model_validate(row) for row in rows]
