"""mini_chat: gold conversations score 1, any wrong or missing fact makes them wrong, and turn two needs turn one."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.tiny.train.texts import chat
from models.tiny.train.texts.scenes import DAYS, POOLS
from tasks.mini import scores

SEEDS = st.integers(0, 2**32)


def words_of(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]+|\d+", text)


def replaced(text: str, old: str, new: str) -> str:
    return re.sub(rf"\b{old}\b", new, text)


def value_of(example, first: str, second: str) -> float:
    return scores.chat(example.reference, [first, second]).value


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_gold_scores_one_and_says_so_for_each_turn(seed):
    example = chat.draw(random.Random(seed))
    score = scores.chat(example.reference, example.answers)
    assert score.value == 1.0
    assert score.details == {"turn_1": 1.0, "turn_2": 1.0}
    shouted = [f"\n{answer.upper()} " for answer in example.answers]
    assert scores.chat(example.reference, shouted).value == 1.0


@settings(max_examples=200, deadline=None)
@given(SEEDS, st.sampled_from([0, 1]))
def test_a_needed_fact_left_out_or_changed_is_wrong(seed, turn):
    rng = random.Random(seed)
    example = chat.draw(rng)
    expected = example.reference["turns"][turn]
    value = rng.choice([value for group in expected["need"] for value in group])
    pool = next(pool for pool in POOLS.values() if value in pool) if not value.isdigit() else tuple("123456789")
    other = rng.choice([item for item in pool if item not in expected["allow"]])
    for new in ("", other):
        answers = list(example.answers)
        answers[turn] = replaced(answers[turn], value, new)
        in_groups = sum(group.count(value) for group in expected["need"])
        assert words_of(answers[turn]).count(value) < in_groups
        score = scores.chat(example.reference, answers)
        assert score.value == 0.0
        assert score.details[f"turn_{turn + 1}"] == 0.0
        assert score.details[f"turn_{2 - turn}"] == 1.0


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_a_fact_that_nobody_gave_is_wrong(seed):
    rng = random.Random(seed)
    example = chat.draw(rng)
    first, second = example.answers
    allowed = example.reference["turns"][1]["allow"]
    stray = rng.choice([value for values in POOLS.values() for value in values if value not in allowed])
    assert value_of(example, first, f"{second} And {stray}.") == 0.0
    assert value_of(example, first, f"{second} Or 77?") == 0.0


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_mixing_up_two_facts_of_a_kind_is_wrong(seed):
    example = chat.draw(random.Random(seed))
    pairs = [group for group in example.reference["turns"][0]["need"] if len(set(group)) == 2]
    assume(pairs)
    first, second = example.answers
    one, two = pairs[0]
    swapped = replaced(replaced(replaced(first, one, "@"), two, one).replace("@", two), "@", two)
    assert value_of(example, swapped, second) == 0.0


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_the_second_answer_needs_something_its_question_does_not_say(seed):
    example = chat.draw(random.Random(seed))
    needed = {value for group in example.reference["turns"][1]["need"] for value in group}
    assert needed - set(words_of(example.turns[1]))


def test_small_hops_are_right():
    """Numbers, hours and days that follow from the told ones, worked out anew from the text."""
    rng, hops = random.Random(3), 0
    while hops < 200:
        example = chat.draw(rng)
        tell, question = example.turns
        answer = words_of(example.answers[1])
        told = [int(digit) for digit in re.findall(r"\d+", tell)]
        asked = [int(digit) for digit in re.findall(r"\d+", question)]
        day = next((DAYS.index(word) for word in words_of(tell) if word in DAYS), None)
        if "days" in question:
            expected = DAYS[(day + asked[0]) % 7]
        elif "one day later" in question or "day after" in question:
            expected = DAYS[(day + 1) % 7]
        elif "one day earlier" in question or "day before" in question:
            expected = DAYS[(day - 1) % 7]
        elif asked or "in all" in question or "together" in question:
            expected = str(told[0] + asked[0] if asked else sum(told))
            if asked and len(told) == 2 and told[0] != told[1]:
                ware = re.search(r"more (\w+)\.|add \d (\w+)", question)
                assert re.search(rf"{told[0]} {ware[1] or ware[2]}", tell)
        else:
            continue
        assert expected in answer, (example.turns, example.answers)
        hops += 1


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_same_seed_same_example_and_missing_text_scores_zero(seed):
    example = chat.draw(random.Random(seed))
    assert example == chat.draw(random.Random(seed))
    first, second = example.answers
    for texts in ([], ["", ""], [first], [first, ""], ["", second]):
        assert scores.chat(example.reference, texts).value == 0.0


@pytest.mark.slow
def test_two_thousand_stay_short():
    rng = random.Random(0)
    examples = [chat.draw(rng) for _ in range(2_000)]
    assert len({example.turns for example in examples}) > 1_900
    assert all(len(words_of(text)) <= 36 for example in examples for text in example.turns + example.answers)


def test_every_scene_and_question_is_drawn():
    rng = random.Random(1)
    kinds = {tuple(len(group) for group in chat.draw(rng).reference["turns"][0]["need"]) for _ in range(500)}
    assert len(chat.SCENES) == 7
    assert len(kinds) >= 4
