"""Whose grade KoMT-Bench takes the square root of."""

from __future__ import annotations

import pytest

from tasks.judge_prompts import Question, is_penalised

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
