"""The exercises in looking up: every answer stands in its question."""

from __future__ import annotations

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from models.tiny.train.texts import BENCHMARKS, EXERCISES, corpus, recall


@given(st.integers(0, 2**32))
def test_the_answer_says_what_the_question_says(seed):
    example = recall.draw(random.Random(seed))
    [question], [answer] = example.turns, example.answers
    if question.startswith("Say it again: "):
        assert answer == question.removeprefix("Say it again: ")
    elif "(A)" in question:
        assert sorted(question.split(", ")) == sorted(answer.split(", "))
    elif question.endswith("?"):
        facts, _, asked = question.rpartition(". ")
        quoted = re.sub(r" So \w+ has . \d\.", "", answer)
        assert sorted(re.findall(r"[^.]+\.", f" {facts}.")) == sorted(re.findall(r"[^.]+\.", f" {quoted}"))
        assert [fact.split()[0] for fact in quoted.split(". ")] == asked.removesuffix("?").split(", ")
    else:
        assert sorted(re.findall(r"\w+ has \w+\.", answer)) == sorted(re.findall(r"\w+ has \w+\.", question))


def test_exercises_are_no_benchmark_but_may_be_streamed():
    assert not set(EXERCISES) & set(BENCHMARKS)
    names = {name for (name, _), _ in zip(corpus(0, {"mini_gsm": 0.5, "recall": 0.5}), range(40), strict=False)}
    assert names == {"mini_gsm", "recall"}
