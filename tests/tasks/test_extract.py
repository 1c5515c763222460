"""The program in an answer, and the language of a judged answer."""

from __future__ import annotations

import importlib.util
import random

import pytest

from bench.rehearsal.rows import FUNCTIONS, PROBLEMS
from tasks.judge_prompts import Question, is_penalised
from tasks.scorers.code import solution
from tasks.scorers.extract import longest_program

SHAPES = """import math


class Shape:
    def __init__(self, r):
        self.r = r

    @property
    def area(self):
        # no square
        return math.pi * self.r ** 2


def f(r):
    '''The area.

    It's a circle.
    '''
    try:
        return Shape(r).area
    except TypeError:
        return None
"""
PROGRAMS = [SHAPES, *(row["prompt"] + "    return x + 1" for row in FUNCTIONS), *(row["code"] for row in PROBLEMS)]
PIECES = ["```python", "```", "Sure, here's the code:", "It doesn't work.", "x = (", '"""', "try:", "    pass", "@a",
          "if x:", "else:", "  y = 1", "x \\", "", " ", "# note", "return 1", "def f(x):", "    return x", "x", "a b",
          "[1,", ")", "'''", "1. **One**: x", "f(1) = 2", "finally:", "match x:", "  case 1:", "\t", "print('a'"]


@pytest.fixture(scope="module")
def evalplus():
    """The module as it is installed, in a copy of its own."""
    spec = importlib.util.find_spec("evalplus.sanitize")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(number: int) -> list[str]:
    draw, texts = random.Random(7), ["", "x", "x\ny", "a b\nc d", "\n\n", "x = 1 \\\n\n"]
    for _ in range(number):
        lines = draw.choice(PROGRAMS).split("\n") if draw.random() < 0.6 else []
        for _ in range(draw.randrange(1, 9)):
            lines.insert(draw.randrange(len(lines) + 1), draw.choice(PIECES))
        texts.append("\n".join(lines))
    return texts


def test_the_program_is_that_of_evalplus(evalplus):
    for text in answers(100):
        assert longest_program(text) == evalplus.code_extract(text), text
        assert solution(text, None, "f") == evalplus.sanitize(text, "f"), text


@pytest.mark.parametrize(("text", "found"), [
    ("x\n" * 2000, "\n".join(["x"] * 2000)),
    ("x\n" * 300 + "a b\n" + "x\n" * 301, "\n".join(["x"] * 301)),
    ("Some words.\n" * 500 + "def f(x):\n    return x", "def f(x):\n    return x"),
    ("@a\n" * 1000, "@a"),
    ("a + \\\n" * 1000, "a + \\"),
    ("f(\n" * 1000, "f("),
    ('"""\nfoo\n' * 1000, ('"""\nfoo\n' * 1000).rstrip()),
])
def test_answers_that_repeat_a_line_take_bounded_work(text, found):
    """Every run of lines would be parsed for hours; the bound on the lines parsed ends it within seconds."""
    assert longest_program(text) == found


KOREAN = "네, 아래는 두 수를 더하는 함수입니다."
CODE = "```python\ndef add(first, second):\n    return first + second  # the sum of both numbers\n```"


@pytest.mark.parametrize(("answer", "penalised"), [
    (KOREAN, False), ("답은 12입니다.", False), (f"{KOREAN}\n\n{CODE * 5}", False),
    (f"{KOREAN}\n\n{CODE.removesuffix('```')}", False), ("The Rhine flows north, through Germany.", True),
    (CODE, True), (f"Here is a function that adds two numbers.\n{CODE}", True), ("12345", True), ("", True)])
def test_only_korean_goes_unpenalised(answer: str, penalised: bool) -> None:
    question = Question("137", 0, False, (), answer)
    assert {is_penalised(question) for _ in range(5)} == {penalised}


def test_two_questions_may_be_answered_in_any_language() -> None:
    names = ("138", "140", "138/sample-1", "139", "1380")
    assert [is_penalised(Question(name, 0, False, (), "Month,High\nJanuary,157")) for name in names] == [
        False, False, False, True, True]
