"""How the answers to the embedded benchmarks are scored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tasks.base import Reference, Score
from tasks.scorers.rouge import rouge_l

CHAT_WORDS = frozenset(
    """
    amy anna apples bag baker bella ben berlin bill bird black blue book bread brown butter cake cara cards carl cat
    cheese clara coat coco cook corn cups dan david doctor dog driver dublin eggs ella emma eric eva farmer finn
    fred friday fruit gold grace green grey hana hat henry honey horse iris ivan jack jane kate key leo library lily
    london lucy luna madrid market max mia milk monday museum nina noah nurse nuts omar oranges oscar oslo painter
    paris park paul pens phone pie pilot pink plates purple rabbit red rex rice ring rome rosa ruth sailor salad sam
    sara saturday school singer soup stamps station sunday tea teacher theatre thursday toby tom tuesday vienna
    watch wednesday white writer yellow zoe
""".split()
)
"""What a fact of mini_chat can be, but numbers."""
NEWS_WORDS = frozenset(
    """
    amy anna bears ben berlin bill bird black blue brown cara carl cat clara coins dan dances david dog dublin
    eagles ella emma eric eva films finn fred friday gold grace green grey hana harbour henry horse iris ivan jack
    jane kate lake lamps leo library lily lions london lucy madrid market mia monday museum nina noah omar oscar
    oslo paris park paul phones pink plays pond puppets purple rabbit red rings river rome rosa ruth sam sara
    saturday school sharks stars station sunday theatre thursday tom tuesday vienna watches wednesday white wolves
    yellow zoe
""".split()
)
"""What a fact of mini_sum can be, but numbers."""


# --- mini_gsm

_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")
_MARKED = re.compile(r"####\s*(-?\$?\s*\d[\d,]*(?:\.\d+)?)")


def _plain(number: str) -> str:
    """ "1,000" -> "1000", "$18" -> "18", "18.0" -> "18"."""
    value = float(re.sub(r"[\s$,]", "", number))
    return str(int(value)) if value.is_integer() else str(value)


def gsm(reference: Reference, texts: Sequence[str]) -> Score:
    """1 when the number after the last `####` is the right one. details: "flexible" takes the last
    number instead."""
    text = texts[-1]
    marked = _MARKED.findall(text)
    numbers = _NUMBER.findall(text)
    strict = _plain(marked[-1]) if marked else None
    flexible = _plain(numbers[-1]) if numbers else None
    right = _plain(reference["answer"])
    return Score(float(strict == right), strict, {"flexible": float(flexible == right)})


# --- mini_code


def sandbox_fault() -> str | None:
    """Why programs cannot be isolated on this machine, in one line; None where they can."""
    from tasks.sandbox.run import bubblewrap_fault

    return bubblewrap_fault()


def code(reference: Reference, texts: Sequence[str], trusted: bool = False) -> Score:
    """1 when the written function passes all tests, else 0 with the first error. Programs of models
    that are `trusted` run as plain processes with limits where they cannot be isolated. Raises
    SandboxError."""
    from tasks.sandbox.run import SandboxJob, run_job

    job = SandboxJob(texts[0].strip(), "\n".join(reference["tests"]))
    error = run_job(job, isolated=not trusted or sandbox_fault() is None)
    return Score(float(error is None), error or "passed")


# --- mini_chat


def chat(reference: Reference, texts: Sequence[str]) -> Score:
    """1 where both turns name all needed facts and no other known value; `details` score each
    turn."""
    turns = [
        float(index < len(texts) and _fulfils(expected, texts[index]))
        for index, expected in enumerate(reference["turns"])
    ]
    return Score(
        min(turns),
        texts[-1].strip() or None if texts else None,
        {f"turn_{i}": v for i, v in enumerate(turns, 1)},
    )


def _fulfils(expected: Reference, text: str) -> bool:
    words = re.findall(r"[a-z]+|\d+", text.lower())
    allowed = {value.lower() for value in expected["allow"]}
    stray = any(word not in allowed and (word in CHAT_WORDS or word.isdigit()) for word in words)
    return not stray and all(
        _in_order([value.lower() for value in group], words) for group in expected["need"]
    )


def _in_order(values: Sequence[str], words: Sequence[str]) -> bool:
    rest = iter(words)
    return all(value in rest for value in values)


# --- mini_instruct

_CLOSERS = (
    ". That is all.",
    ". There it is.",
    ". That is it.",
    ". Here it is.",
    ". All done.",
    ". Ready.",
    ". Done.",
    ".",
)
"""Closing remarks, the longest first."""


def instruct(reference: Reference, texts: Sequence[str]) -> Score:
    """1 where the text after the last lead-in is the answer, exact in case and separator but for a
    closing remark."""
    line = " ".join(texts[0].rpartition(":")[2].split()) if texts else ""
    answer = line.removesuffix(next((closer for closer in _CLOSERS if line.endswith(closer)), ""))
    return Score(float(answer == reference["answer"]), answer or None)


# --- mini_sum


def news(reference: Reference, texts: Sequence[str]) -> Score:
    """ROUGE-L against the reference summary that is nearest. details: "facts" is 1 for any wording
    of the facts."""
    summaries = reference["summaries"]
    return replace(
        rouge_l(summaries, texts),
        details={"facts": float(bool(texts) and _true(summaries, texts[0]))},
    )


def _true(summaries: Sequence[str], text: str) -> bool:
    """Whether the text names each fact that all summaries name, and none that no summary names."""
    named = [_named(summary) for summary in summaries]
    return set.intersection(*named) <= _named(text) <= set.union(*named)


def _named(text: str) -> set[str]:
    return {
        word
        for word in re.findall(r"[a-z]+|\d+", text.lower())
        if word in NEWS_WORDS or word.isdigit()
    }


# --- mini_choice

_MARKED_LETTER = re.compile(r"\(([A-E])\)")
_CUED_LETTER = re.compile(r"\b(?:[Aa]nswer|[Oo]ption|[Cc]hoice)(?:\s+is|:)?\s+\(?([A-E])\b(?!')")
_BARE_LETTER = re.compile(r"\s*\(?([A-E])\)?\s*[.:]?\s*")


def _letters(text: str) -> set[str]:
    """Every letter that the text names as its answer: "(C)", "answer is C", or nothing but "C."."""
    bare = _BARE_LETTER.fullmatch(text)
    return {
        *_MARKED_LETTER.findall(text),
        *_CUED_LETTER.findall(text),
        *([bare[1]] if bare else []),
    }


def choice(reference: Reference, texts: Sequence[str]) -> Score:
    """1 when the text names the right letter and no other; no letter, or two different ones, is
    wrong."""
    letters = _letters(texts[-1])
    letter = letters.pop() if len(letters) == 1 else None
    return Score(float(letter == reference["answer"]), letter)
