"""mini_choice: one right option of five, facts taught by the training text alone, and a letter read strictly."""

import json
import random
import re
from collections import Counter
from hashlib import blake2b
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.tiny.train.texts import choice, examples
from tasks.mini import BENCHMARKS, scores

OPTION = re.compile(r"(\w+) \(([A-E])\)")


def draw(seed: int, kind: str):
    rng = random.Random(seed)
    return next(example for example in iter(lambda: choice.draw(rng), None) if example.reference["kind"] == kind)


def question(seed: int):
    return draw(seed, "question")


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_exactly_one_option_is_true_of_the_town(seed):
    example = question(seed)
    options = {letter: word for word, letter in OPTION.findall(example.turns[0])}
    assert sorted(options) == list(choice.LETTERS) and len(set(options.values())) == 5
    right = example.reference["answer"]
    (town,) = set(choice.TOWNS) & set(re.findall(r"\w+", example.turns[0])) - set(options.values())
    if set(options.values()) <= set(choice.TOWNS):  # another town with the same value
        (about,) = [about for about, questions in choice.phrases.SHARED_QUESTIONS.items()
                    if any(question.format(x=town) in example.turns[0] for question in questions)]
        value = choice.WORLD[town][about]
        assert [letter for letter in options if choice.WORLD[options[letter]][about] == value] == [right]
        assert len(re.findall(rf"\b{value}\b", example.answers[0])) == 2
    else:
        (about,) = [about for about, values in choice.VALUES.items() if set(options.values()) <= set(values)]
        assert options[right] == choice.WORLD[town][about]
    assert options[right] in example.answers[0]
    assert scores.choice(example.reference, example.answers).value == 1


@given(st.integers(0, 2**32), st.sampled_from(choice.LETTERS))
@settings(max_examples=200, deadline=None)
def test_another_letter_a_second_letter_or_none_scores_zero(seed, letter):
    example = question(seed)
    right, answer = example.reference["answer"], example.answers[0]
    if letter != right:
        assert scores.choice(example.reference, [answer.replace(f"({right})", f"({letter})")]).value == 0
        both = scores.choice(example.reference, [f"{answer} The answer is ({letter})."])
        assert (both.value, both.answer) == (0, None)
    assert scores.choice(example.reference, [answer.replace(f" ({right})", "")]).value == 0


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is (C) copper.", "C"),
        ("The answer is C.", "C"),
        ("The right option is B", "B"),
        ("Answer: D", "D"),
        ("(A)", "A"),
        ("E.", "E"),
        ("The answer is wool (C).", "C"),
        ("The answer is wool.", None),
        ("It is (C). So the answer is (C).", "C"),
        ("It is (C), no, (D).", None),
        ("The answer is (A) or B, so the answer is B.", None),
        ("The answer is Eva.", None),
        ("A town with copper.", None),
        ("(F)", None),
        ("", None),
    ],
)
def test_the_letter_is_read(text, letter):
    score = scores.choice({"kind": "question", "answer": letter or "A"}, [text])
    assert (score.answer, score.value) == (letter, float(letter is not None))


def test_the_world_that_the_shipped_models_learned_has_not_changed():
    world = json.dumps({town: dict(facts) for town, facts in choice.WORLD.items()}, sort_keys=True)
    assert BENCHMARKS["mini_choice"].version == 4
    assert blake2b(world.encode(), digest_size=8).hexdigest() == "b9236f73e11fe565"


def test_the_world_is_small_and_taught_by_training_text():
    facts = {(town, about) for town in choice.TOWNS for about in choice.VALUES}
    assert 40 <= len(facts) <= 200
    told = set()
    kinds: Counter[str] = Counter()
    for example in islice(examples("mini_choice", "train"), 8000):
        kinds[example.reference["kind"]] += 1
        town = next(town for town in choice.TOWNS if re.search(rf"\b{town}\b", example.turns[0]))
        words = set(re.findall(r"\w+", example.answers[0]))
        told |= {(town, about) for about in choice.VALUES if choice.WORLD[town][about] in words}
    assert told == facts
    assert kinds["statement"] / kinds.total() == pytest.approx(choice.STATEMENT_SHARE, abs=0.03)


def test_a_statement_tells_only_true_facts():
    everything = {value for values in choice.VALUES.values() for value in values}
    for seed in range(300):
        example = draw(seed, "statement")
        (town,) = set(choice.TOWNS) & set(re.findall(r"\w+", example.turns[0]))
        named = set(re.findall(r"\w+", example.answers[0])) & everything
        assert 1 <= len(named) <= 3 and named <= set(choice.WORLD[town].values())


def test_no_letter_is_favoured():
    letters = Counter(example.reference["answer"] for example in islice(examples("mini_choice", "test"), 1000))
    assert set(letters) == set(choice.LETTERS)
    assert max(letters.values()) < 280
