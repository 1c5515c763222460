"""How the embedded benchmarks are scored: every wording of the right answer scores 1, a wrong fact
0."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.train.texts import chat, choice, code, gsm, instruct, worded
from models.train.texts import sum as news
from models.train.texts.phrase import wording
from tasks.mini import scores

SEEDS = st.integers(0, 2**32)


def drawn(benchmark, seed: int):
    """An example (a question, where there are statements) and one wording of its answers."""
    rng = random.Random(seed)
    example = benchmark.draw(rng)
    while example.reference.get("kind") == "statement":
        example = benchmark.draw(rng)
    return example, [wording(phrase, rng) for phrase in example.phrases]


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_every_wording_of_a_word_problem_scores_one_and_another_number_zero(seed):
    example, [text] = drawn(gsm, seed)
    right = example.reference["answer"]
    assert scores.gsm(example.reference, [text]).value == 1
    assert (
        scores.gsm(
            example.reference, [text.replace(f"#### {right}", f"#### {int(right) + 1}")]
        ).value
        == 0
    )
    for left, symbol, other, result in re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", text):
        a, b = int(left), int(other)
        assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[symbol] == int(result)
    assert (
        "  " not in text
        and "[" not in text
        and all(part[0].isupper() for part in re.split(r"(?<=\.) ", text))
    )


@given(SEEDS, st.sampled_from([0, 1]))
@settings(max_examples=100, deadline=None)
def test_every_wording_of_a_conversation_scores_one_and_another_fact_zero(seed, turn):
    example, texts = drawn(chat, seed)
    assert scores.chat(example.reference, texts).value == 1
    expected = example.reference["turns"][turn]
    value = random.Random(seed).choice([value for group in expected["need"] for value in group])
    texts[turn] = re.sub(rf"\b{value}\b", "", texts[turn])
    assert scores.chat(example.reference, texts).value == 0
    assert not any(
        "  " in text or "[" in text or ". ." in text for text in worded(example, seed).answers
    )


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_every_wording_of_a_list_scores_one_and_every_damage_zero(seed):
    example, [text] = drawn(instruct, seed)
    right, rng = example.reference["answer"], random.Random(seed)
    head, found, tail = text.rpartition(right)
    assert found
    for lead in (head, "", "Result: ", "Sure: Here you go: "):
        assert scores.instruct(example.reference, [lead + right + tail]).value == 1
    words = re.findall(r"\w+|\W+", right)
    place = rng.choice([place for place, word in enumerate(words) if word.isalnum()])
    other = words[place].swapcase() if words[place].isalpha() else f"{words[place]}1"
    damaged = [[], ["frog"], [other]]
    wrong = ["".join([*words[:place], *new, *words[place + 1 :]]) for new in damaged]
    for answer in (*wrong, "frog", f"{right}, frog", f"{right}. frog", f"{right}x"):
        assert scores.instruct(example.reference, [head + answer + tail]).value == 0, answer


@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_every_wording_of_a_choice_scores_one_and_another_letter_zero(seed):
    example, [text] = drawn(choice, seed)
    right = example.reference["answer"]
    assert scores.choice(example.reference, [text]).value == 1
    for letter in set(choice.LETTERS) - {right}:
        assert (
            scores.choice(example.reference, [text.replace(f"({right})", f"({letter})")]).value == 0
        )


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
    ("text", "answer"),
    [
        ("#### 1,000", "1000"),
        ("#### $18.", "18"),
        ("####18.0", "18"),
        ("#### -$3", "-3"),
        ("#### 18.5", "18.5"),
        ("#### 7 #### 8", "8"),
        ("#### none", None),
        ("6 + 12 = 18. The answer is 18.", None),
    ],
)
def test_the_marked_number_is_read(text, answer):
    """The last number counts for itself where none is marked."""
    score = scores.gsm({"answer": answer or "18"}, [text])
    assert (score.answer, score.value) == (answer, answer is not None)
    assert score.details["flexible"] == (text != "#### none")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is (C) copper.", "C"),
        ("The right option is B", "B"),
        ("Answer: D", "D"),
        ("E.", "E"),
        ("The answer is wool (C).", "C"),
        ("It is (C). So the answer is (C).", "C"),
        ("It is (C), no, (D).", None),
        ("The answer is (A) or B, so the answer is B.", None),
        ("The answer is Eva.", None),
        ("A town with copper.", None),
        ("(F)", None),
    ],
)
def test_the_letter_is_read(text, letter):
    score = scores.choice({"kind": "question", "answer": letter or "A"}, [text])
    assert (score.answer, score.value) == (letter, float(letter is not None))


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_missing_answer_scores_zero_and_a_turn_has_a_score_of_its_own(seed):
    example, texts = drawn(chat, seed)
    assert scores.chat(example.reference, texts).details == {"turn_1": 1.0, "turn_2": 1.0}
    first, second = texts
    for missing in ([], ["", ""], [first], [first, ""], ["", second]):
        assert scores.chat(example.reference, missing).value == 0.0
    assert scores.chat(example.reference, [first, f"{second} Or 77?"]).details == {
        "turn_1": 1.0,
        "turn_2": 0.0,
    }
    assert scores.instruct({"answer": "a"}, []).value == 0.0
    for text, value in (("one two six nine", 0.6), ("Seven.", 1.0)):  # by hand: 3 of 4 and 6 words
        summaries = {"summaries": ["one two three four five six", "seven"]}
        assert scores.news(summaries, [text]).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda answer: "", "NameError"),
        (lambda answer: answer.split("\n")[0], "IndentationError"),
        (lambda answer: answer.replace("return", "retrun"), "Error"),
        (lambda answer: answer.split("\n")[0] + "\n    return None", "AssertionError"),
        (lambda answer: answer + "\nraise SystemExit(0)", "SystemExit"),
        (lambda answer: answer + "\nimport os\nos._exit(0)", "left before its last line"),
    ],
)
def test_a_spoiled_function_scores_zero(spoil, error):
    example = code.draw(random.Random(11))
    score = scores.code(example.reference, [spoil(example.answers[0])], trusted=True)
    assert score.value == 0.0
    assert error in score.answer and "\n" not in score.answer
