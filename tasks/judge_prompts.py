"""Questions to an LLM judge about an answer, and how to read its replies.

The prompts are the published ones, read from their own files: FastChat's `judge_prompts.jsonl` for
MT-Bench (Zheng et al. 2023, arXiv:2306.05685) and KoMT-Bench's translation of it, AlpacaEval's chat
template for the win rate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.error import URLError
from urllib.request import urlopen

from tasks.base import Prompt, TaskError
from tasks.sources import DATA, parse_json

MT_BENCH = DATA / "mt_bench"
"""Questions, GPT-4's reference answers and judge prompts, as FastChat publishes them."""
KOMT = (
    "https://raw.githubusercontent.com/LG-AI-EXAONE/KoMT-Bench/main/FastChat/fastchat/llm_judge/data/"
    "judge_prompts_ko.jsonl"
)
ALPACA = (
    "https://raw.githubusercontent.com/tatsu-lab/alpaca_eval/main/src/alpaca_eval/evaluators_configs/"
    "alpaca_eval_clf_gpt4_turbo/alpaca_eval_clf.txt"
)
SOURCES = {
    "mt_bench": str(MT_BENCH / "judge_prompts.jsonl"),
    "komt_bench": KOMT,
    "alpaca_eval": ALPACA,
}
MODES: Mapping[str, Literal["single", "pairwise"]] = {
    "mt_bench": "single",
    "komt_bench": "single",
    "alpaca_eval": "pairwise",
}
NEED_REFERENCE = ("math", "reasoning", "coding")
"""Categories whose answers FastChat shows to the judge together with a reference answer."""
KOREAN = ("komt_bench",)
"""Styles that expect Korean: the grade of an answer in another language is replaced by its square
root."""
ANY_LANGUAGE = ("138", "140")
"""Questions of KoMT-Bench that ask for CSV or JSON, possibly all English: never penalised."""

# the second where the first is not
_RATINGS = (re.compile(r"\[\[(\d+\.?\d*)\]\]"), re.compile(r"\[(\d+\.?\d*)\]"))
_CHOICE = re.compile(r"(?<!\w)(?<!\w['’])[mM](?!\w)")  # not the m of "I'm"
_CONTROL = re.compile(
    r"<\|[^<>|\s]{1,40}\|>|<｜[^<>｜\s]{1,40}｜>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|"
    r"<(?:bos|eos)>"
)
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_MESSAGE = re.compile(r"<\|im_start\|>(\w+)\n(.*?)\n?<\|im_end\|>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Question:
    """One question to the judge.

    id        of the prompt.
    turn      the graded turn, from 0.
    swapped   whether the other answer comes first (pairwise).
    messages  (role, content) to send.
    answer    the graded text.
    """

    id: str
    turn: int
    swapped: bool
    messages: tuple[tuple[str, str], ...]
    answer: str = ""


class JudgePrompts:
    """The templates of one file: `messages` of AlpacaEval's, which compares, or else the
    `templates` of FastChat's, which grade."""

    def __init__(self, source: str) -> None:
        self.source = source
        text = _text(source)
        self.messages = tuple(_MESSAGE.findall(text))
        self.templates = {} if self.messages else _templates(source, text)

    def single(
        self, prompt: Prompt, texts: Sequence[str], reference: Sequence[str] | None
    ) -> list[Question]:
        """One rating per turn. Raises TaskError for AlpacaEval's template, and where the category
        needs a reference answer and there is none."""
        if self.messages:
            raise TaskError(
                f"judge.prompts={self.source}: compares two answers, and this task's are graded; "
                "give FastChat's judge_prompts.jsonl"
            )
        checked = prompt.reference.get("category") in NEED_REFERENCE
        if checked and len(reference or ()) < len(texts):
            raise TaskError(
                f"question {prompt.id} ({prompt.reference['category']}) is judged against a "
                "reference answer and there is none; give judge.references=FILE.jsonl in "
                "FastChat's answer format"
            )
        questions = []
        for turn in range(len(texts)):
            name = f"single{'-math' if checked else ''}-v1{'-multi-turn' if turn else ''}"
            fields = {
                **_numbered("question", prompt.turns),
                **_numbered("answer", texts),
                **_numbered("ref_answer", reference or ()),
                "question": prompt.turns[turn],
                "answer": texts[turn],
            }
            questions.append(
                Question(prompt.id, turn, False, self._filled(name, fields), texts[turn])
            )
        return questions

    def pairwise(
        self, prompt: Prompt, texts: Sequence[str], other: Sequence[str]
    ) -> list[Question]:
        """The first turn's answers in both orders, because judges favour the first. Raises
        TaskError for FastChat's prompts."""
        if not self.messages:
            raise TaskError(
                f"judge.prompts={self.source}: grades an answer, and this task's are compared; "
                "give AlpacaEval's template"
            )
        questions = []
        for swapped in (False, True):
            first, second = (other[0], texts[0]) if swapped else (texts[0], other[0])
            fields = {"instruction": prompt.turns[0], "output_1": first, "output_2": second}
            messages = tuple((role, _fill(text, fields)) for role, text in self.messages)
            questions.append(Question(prompt.id, 0, swapped, messages))
        return questions

    def rating(self, reply: str) -> float | None:
        """The grade in a reply, at most 10, None if there is none. As in FastChat, [[9]] takes
        precedence over [9]."""
        rating = next(filter(None, (pattern.search(reply) for pattern in _RATINGS)), None)
        value = None if rating is None else float(rating.group(1))
        return value if value is not None and 0 <= value <= 10 else None

    def choice(self, reply: str, swapped: bool) -> float | None:
        """1 where the judged method's answer won, 0 where it lost; None where the reply does not
        say."""
        # asked for one letter: what follows the first explains it
        if (letter := _CHOICE.search(reply)) is None:
            return None
        return float((letter.group() == "m") != swapped)

    def _filled(self, name: str, fields: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        if name not in self.templates:
            raise TaskError(
                f"judge.prompts={self.source}: has no prompt {name}; give FastChat's "
                "judge_prompts.jsonl"
            )
        system, template = self.templates[name]
        return (("system", system), ("user", _fill(template, fields)))


def shipped_references(path: Path | None) -> Path | None:
    """The reference answers that belong to the questions in `path`; None where these are not the
    shipped ones."""
    return (
        MT_BENCH / "reference_answer_gpt-4.jsonl.gz"
        if path == MT_BENCH / "question.jsonl.gz"
        else None
    )


def is_penalised(question: Question) -> bool:
    """Whether KoMT-Bench takes the square root of this answer's grade: it should be in Korean and
    is not.

    Source: README.md and detector.py of LG-AI-EXAONE/KoMT-Bench. langdetect stands in for its
    MediaPipe model and takes a Korean explanation of code for English, so code blocks count only
    where there is no other text. A text without words is in no language, hence not in Korean."""
    import langdetect  # not needed where nothing is judged in Korean

    if question.id.partition("/")[0] in ANY_LANGUAGE:  # sample 0 of question 138 is 138/sample-0
        return False
    langdetect.DetectorFactory.seed = 0  # it draws samples of a text
    prose = _CODE.sub(" ", question.answer)
    try:
        return langdetect.detect(prose if prose.strip() else question.answer) != "ko"
    except langdetect.LangDetectException:
        return True


def refuse_control_tokens(questions: Sequence[Question]) -> None:
    """Raises TaskError for a question with a string that common chat templates use as a control
    token: the judge's server may read what an answer says as a message of its own."""
    for question in questions:
        if token := next(
            filter(None, (_CONTROL.search(text) for _, text in question.messages)), None
        ):
            raise TaskError(
                f"prompt {question.id}: it or its answer holds {token[0]!r}, a control token of "
                "chat templates: give judge.control_tokens=text to break it by a zero-width "
                "space, or parse to send it as it is"
            )


def as_text(text: str) -> str:
    """A text whose control tokens are broken by a zero-width space, so that no tokenizer reads them
    as such."""
    return _CONTROL.sub(lambda match: f"{match[0][0]}\u200b{match[0][1:]}", text)


def is_remote(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def _fill(template: str, fields: Mapping[str, str]) -> str:
    """Replace each `{name}` in a single pass, so that braces inside an answer are left alone."""
    return re.sub(
        "|".join(re.escape(f"{{{name}}}") for name in fields),
        lambda m: fields[m.group()[1:-1]],
        template,
    )


def _numbered(name: str, texts: Sequence[str]) -> dict[str, str]:
    return {f"{name}_{number}": text for number, text in enumerate(texts, start=1)}


def _text(source: str) -> str:
    try:
        if is_remote(source):
            with urlopen(source, timeout=60) as answer:
                return answer.read().decode()
        if (path := Path(source).expanduser()).exists() and not path.is_file():
            raise OSError("no regular file")
        return path.read_text(encoding="utf-8")
    except (OSError, URLError, UnicodeDecodeError) as error:
        raise TaskError(
            f"judge.prompts={source}: cannot be read ({error}); give a local copy of the file"
        ) from error


def _templates(source: str, text: str) -> dict[str, tuple[str, str]]:
    templates: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            row: Any = parse_json(line, lambda _: "")
            name, system, template = row["name"], row["system_prompt"], row["prompt_template"]
            if not all(isinstance(part, str) for part in (name, system, template)):
                raise TypeError("a part that is no text")
            templates[name] = (system, template)
        except (TaskError, KeyError, TypeError) as error:
            raise TaskError(
                f"judge.prompts={source}, line {number}: not a judge prompt; a line of "
                "FastChat's file has the texts name, system_prompt and prompt_template"
            ) from error
    if not templates:
        raise TaskError(f"judge.prompts={source}: holds no prompts")
    return templates
