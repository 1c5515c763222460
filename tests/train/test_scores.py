"""How the embedded benchmarks are scored: every wording of the right answer scores 1, a wrong fact
0."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from models.train.texts import chat, choice, code, gsm, instruct, worded
from models.train.texts import sum as news
from models.train.texts.phrase import wording
from tasks.mini import scores

READ = yaml.safe_load(Path(__file__).with_name("read.yaml").read_text(encoding="utf-8"))
SEEDS = st.integers(0, 2**32)


def drawn(benchmark, seed: int):
    """An example (a question, where there are statements) and one wording of its answers."""
    rng = random.Random(seed)
    example = benchmark.draw(rng)
    while example.reference.get("kind") == "statement":
        example = benchmark.draw(rng)
    return example, [wording(phrase, rng) for phrase in example.phrases]


def another_number(example, texts, draw):
    right = example.reference["answer"]
    yield [texts[0].replace(f"#### {right}", f"#### {int(right) + 1}")]


def without_a_fact(example, texts, draw):
    """Of each turn; and answers that are missing."""
    for turn, expected in enumerate(example.reference["turns"]):
        value = draw.choice([value for group in expected["need"] for value in group])
        changed = list(texts)
        changed[turn] = re.sub(rf"\b{value}\b", "", texts[turn])
        yield changed
    first, second = texts
    yield from ([], ["", ""], [first], [first, ""], ["", second])


def other_words(example, texts, draw):
    right = example.reference["answer"]
    head, found, tail = texts[0].rpartition(right)
    assert found
    words = re.findall(r"\w+|\W+", right)
    place = draw.choice([place for place, word in enumerate(words) if word.isalnum()])
    other = words[place].swapcase() if words[place].isalpha() else f"{words[place]}1"
    damaged = [[], ["frog"], [other]]
    wrong = ["".join([*words[:place], *new, *words[place + 1 :]]) for new in damaged]
    for answer in (*wrong, "frog", f"{right}, frog", f"{right}. frog", f"{right}x"):
        yield [head + answer + tail]
    yield []


def other_letters(example, texts, draw):
    right = example.reference["answer"]
    for letter in set(choice.LETTERS) - {right}:
        yield [texts[0].replace(f"({right})", f"({letter})")]


@pytest.mark.parametrize(
    ("benchmark", "score", "damaged"),
    [
        (gsm, scores.gsm, another_number),
        (chat, scores.chat, without_a_fact),
        (instruct, scores.instruct, other_words),
        (choice, scores.choice, other_letters),
    ],
)
@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_every_wording_scores_one_and_every_damage_zero(benchmark, score, damaged, seed):
    example, texts = drawn(benchmark, seed)
    assert score(example.reference, texts).value == 1
    for wrong in damaged(example, texts, random.Random(seed)):
        assert score(example.reference, wrong).value == 0, wrong


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_worded_texts_read_well_and_reckon_rightly(seed):
    _, [text] = drawn(gsm, seed)
    for left, symbol, other, result in re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", text):
        a, b = int(left), int(other)
        assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[symbol] == int(result)
    assert all(part[0].isupper() for part in re.split(r"(?<=\.) ", text))
    talk, _ = drawn(chat, seed)
    for one in (text, *worded(talk, seed).answers):
        assert not re.search(r"  |\[|\. \.", one), one


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_what_stands_before_a_list_does_not_count(seed):
    example, [text] = drawn(instruct, seed)
    right = example.reference["answer"]
    tail = text.rpartition(right)[2]
    for lead in ("", "Result: ", "Sure: Here you go: "):
        assert scores.instruct(example.reference, [lead + right + tail]).value == 1


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_every_wording_of_a_summary_has_its_facts_and_another_fact_has_not(seed):
    example, [text] = drawn(news, seed)
    score = scores.news(example.reference, [text])
    assert score.details == {"facts": 1} and score.value > 0.4
    number = random.Random(seed).choice(re.findall(r"\d+", text))
    for wrong in (
        re.sub(rf"\b{number}\b", f"{number}0", text),
        f"{text} Or 77.",
        f"{text} So says Berlin and London.",
    ):
        assert scores.news(example.reference, [wrong]).details == {"facts": 0}


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_every_wording_of_a_function_passes_its_tests(seed):
    example, [text] = drawn(code, seed)
    space: dict = {}
    exec(text, space)  # the generator's own program, not a model's
    for test in example.reference["tests"]:
        exec(test, space)


@pytest.mark.parametrize(
    ("score", "reference", "text", "answer"),
    [
        *((scores.gsm, {"answer": "18"}, *row) for row in READ["marked numbers"]),
        *((scores.choice, {"kind": "question", "answer": "A"}, *row) for row in READ["letters"]),
    ],
)
def test_the_marked_answer_is_read(score, reference, text, answer):
    """The last number counts for itself where none is marked."""
    found = score(reference | {"answer": answer or reference["answer"]}, [text])
    assert (found.answer, found.value) == (answer, answer is not None)
    if score is scores.gsm:
        assert found.details["flexible"] == (text != "#### none")


def test_a_turn_has_a_score_of_its_own_and_a_summary_a_share():
    example, [first, second] = drawn(chat, 0)
    for end, right in (("", 1.0), (" Or 77?", 0.0)):
        score = scores.chat(example.reference, [first, second + end])
        assert score.details == {"turn_1": 1.0, "turn_2": right}
    for text, value in (("one two six nine", 0.6), ("Seven.", 1.0)):  # by hand: 3 of 4 and 6 words
        summaries = {"summaries": ["one two three four five six", "seven"]}
        assert scores.news(summaries, [text]).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda answer: "", "NameError"),
        (lambda answer: answer.split("\n")[0] + "\n    return None", "AssertionError"),
    ],
)
def test_a_spoiled_function_scores_zero(spoil, error):
    example = code.draw(random.Random(11))
    score = scores.code(example.reference, [spoil(example.answers[0])], trusted=True)
    assert score.value == 0.0
    assert error in score.answer and "\n" not in score.answer
