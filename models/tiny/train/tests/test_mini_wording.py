"""The free wording of the embedded benchmarks: every wording scores 1, a wrong fact 0, prompts stay the same."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.tiny.train.texts import BENCHMARKS, EXERCISES, chat, choice, code, gsm, instruct, worded
from models.tiny.train.texts import sum as news
from models.tiny.train.texts.phrase import either, every_wording, plain, wording
from models.tiny.train.wording import freedom
from tasks.mini import scores

SEEDS = st.integers(0, 2**32)

DRAWN = {
    "mini_gsm": "5e8e7e326906", "mini_code": "b49c49290103", "mini_chat": "f49c110477ca",
    "mini_instruct": "df06a90dad09", "mini_sum": "aab172a072d2", "mini_choice": "319febdca179",
    "recall": "f9cd1725fd9b",
}  # fmt: skip
"""Digests of 300 examples of each generator, as before answers had free wording (mini_choice: in version 4)."""


def drawn(benchmark, seed: int):
    """An example (a question, where there are statements) and one wording of its answers."""
    rng = random.Random(seed)
    example = benchmark.draw(rng)
    while example.reference.get("kind") == "statement":
        example = benchmark.draw(rng)
    return example, [wording(phrase, rng).text for phrase in example.phrases]


# -- the grammar -----------------------------------------------------------------------------------------------------


def test_a_phrase_by_hand():
    phrase = "[So|Now|] he [has [two|2]|owns 2] hats[0]"
    assert plain(phrase) == "So he has two hats[0]"
    assert list(every_wording(phrase)) == [
        f"{start} he {owns} hats[0]" for start in ("So", "Now", "") for owns in ("has two", "has 2", "owns 2")]
    assert plain(either("b", ("a", "b", "c"))) == "b"
    assert list(every_wording(either("b", ("a", "b", "c")))) == ["b", "a", "c"]
    assert either("a", ("a",)) == "a"
    for wrong in ("[a|b", "a|b]", "[[a|b]"):
        with pytest.raises(ValueError, match="bracket"):
            plain(wrong)


@given(SEEDS)
def test_the_probability_of_a_wording_by_hand(seed):
    """[a|b [c|d]]: a half, b c and b d a quarter each."""
    text, log_probability = wording("[a|b [c|d]]", random.Random(seed))
    assert log_probability == pytest.approx(math.log({"a": 0.5, "b c": 0.25, "b d": 0.25}[text]))


def test_all_options_are_drawn_alike():
    rng = random.Random(0)
    counts = Counter(wording("[a|b|c [d|e]]", rng).text for _ in range(6000))
    assert set(counts) == {"a", "b", "c d", "c e"}
    assert counts["a"] == pytest.approx(2000, abs=150) and counts["c d"] == pytest.approx(1000, abs=120)


# -- the benchmarks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAWN)
def test_wording_changed_no_prompt_reference_or_plain_answer(name):
    rng, digest = random.Random(f"x{name}"), blake2b()
    for _ in range(300):
        example = {**BENCHMARKS, **EXERCISES}[name].draw(rng)
        digest.update(json.dumps([example.turns, example.answers, example.reference], sort_keys=True).encode())
        assert tuple(map(plain, example.phrases)) == example.answers
    assert digest.hexdigest()[:12] == DRAWN[name]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_an_example_has_one_wording_a_seed(name):
    example = BENCHMARKS[name].draw(random.Random(5))
    assert worded(example, 0) == worded(example, 0)
    assert len({worded(example, seed).answers for seed in range(20)}) > 3
    assert {worded(example, seed).turns for seed in range(20)} == {example.turns}


@pytest.mark.parametrize(("name", "nats"), [
    ("mini_gsm", 0.28), ("mini_chat", 0.3), ("mini_instruct", 0.3), ("mini_sum", 0.3), ("mini_choice", 0.3),
    ("mini_code", 0.08)])  # fmt: skip
def test_wording_is_free_enough_and_fits_a_row(name, nats):
    measured = freedom(name, 150)
    assert measured.nats >= nats
    assert measured.long < 0.02
    assert name == "mini_code" or measured.opening < 0.5  # code begins with `def`


@given(SEEDS)
@settings(max_examples=200, deadline=None)
def test_every_wording_of_a_word_problem_scores_one_and_another_number_zero(seed):
    example, [text] = drawn(gsm, seed)
    right = example.reference["answer"]
    assert scores.gsm(example.reference, [text]).value == 1
    assert scores.gsm(example.reference, [text.replace(f"#### {right}", f"#### {int(right) + 1}")]).value == 0
    for left, symbol, other, result in re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", text):
        a, b = int(left), int(other)
        assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[symbol] == int(result)
    assert "  " not in text and "[" not in text and all(part[0].isupper() for part in re.split(r"(?<=\.) ", text))


@given(SEEDS, st.sampled_from([0, 1]))
@settings(max_examples=300, deadline=None)
def test_every_wording_of_a_conversation_scores_one_and_another_fact_zero(seed, turn):
    example, texts = drawn(chat, seed)
    assert scores.chat(example.reference, texts).value == 1
    expected = example.reference["turns"][turn]
    value = random.Random(seed).choice([value for group in expected["need"] for value in group])
    texts[turn] = re.sub(rf"\b{value}\b", "", texts[turn])
    assert scores.chat(example.reference, texts).value == 0
    assert not any("  " in text or "[" in text or ". ." in text for text in worded(example, seed).answers)


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_every_wording_of_a_list_scores_one_and_another_list_zero(seed):
    example, [text] = drawn(instruct, seed)
    right = example.reference["answer"]
    assert scores.instruct(example.reference, [text]).value == 1
    head, found, tail = text.rpartition(right)
    assert found
    for wrong in ("frog", right + ", frog", f"{right}. frog", right + "x"):
        assert scores.instruct(example.reference, [head + wrong + tail]).value == 0


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_every_wording_of_a_choice_scores_one_and_another_letter_zero(seed):
    example, [text] = drawn(choice, seed)
    right = example.reference["answer"]
    assert scores.choice(example.reference, [text]).value == 1
    for letter in set(choice.LETTERS) - {right}:
        assert scores.choice(example.reference, [text.replace(f"({right})", f"({letter})")]).value == 0


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=100, deadline=None)
def test_every_wording_of_a_summary_has_its_facts_and_another_fact_has_not(seed):
    example, [text] = drawn(news, seed)
    score = scores.news(example.reference, [text])
    assert score.details == {"facts": 1} and score.value > 0.4
    number = random.Random(seed).choice(re.findall(r"\d+", text))
    for wrong in (re.sub(rf"\b{number}\b", f"{number}0", text), f"{text} Or 77.", f"{text} So says Berlin and London."):
        assert scores.news(example.reference, [wrong]).details == {"facts": 0}


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=200, deadline=None)
def test_every_wording_of_a_function_passes_its_tests(seed):
    example, [text] = drawn(code, seed)
    space: dict = {}
    exec(text, space)  # the generator's own program, not a model's
    for test in example.reference["tests"]:
        exec(test, space)
