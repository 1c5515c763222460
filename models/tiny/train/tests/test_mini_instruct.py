"""mini_instruct: gold answers hold under a second reading of the prompt, and every damaged answer is wrong."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.tiny.train.texts import instruct
from tasks.mini import scores

SEEDS = st.integers(0, 2**32)
COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5, "twice": 2}
ORDINALS = ("first", "second", "third", "fourth", "fifth")
GLUE = {"a dash": "-", "a plus sign": "+", "a slash": "/", 'the word "and"': " and ", 'the word "or"': " or "}
COUNT = "(twice|two times|three times)"


def _times(words, word, often):
    return [item for each in words for item in [each] * (COUNTS[often.split()[0]] if each == word else 1)]


# A second implementation of each step, read from the finished English sentence alone.
READINGS = [
    (r"reverse|turn the list around", lambda words: words[::-1]),
    (r"sort the|alphabetical order", lambda words: sorted(words)),
    (r"(?:drop|remove|leave out) the first word", lambda words: words[1:]),
    (r"(?:drop|remove|leave out) the last word", lambda words: words[:-1]),
    (r"(?:keep|take)(?: only)? the first (\w+) words", lambda words, n: words[: COUNTS[n]]),
    (r"(?:keep|take)(?: only)? the last (\w+) words", lambda words, n: words[len(words) - COUNTS[n] :]),
    (
        r"(?:remove the word|leave out the word|drop the word|take out) (\w+)",
        lambda words, x: [w for w in words if w != x],
    ),
    (
        r"(?:replace the word|replace|change) (\w+) (?:with|to) (\w+)",
        lambda words, x, y: [y if w == x else w for w in words],
    ),
    (r"(?:add|put)(?: the word)? (\w+) at the (?:start|front)", lambda words, x: [x, *words]),
    (r"(?:add|put)(?: the word)? (\w+) at the end", lambda words, x: [*words, x]),
    (r"start(?:ing)? with (\w)\b", lambda words, x: [w for w in words if w[0] == x]),
    (r"the letter (\w)\b", lambda words, x: [w for w in words if x in w]),
    (r"swap the first|change places", lambda words: words[-1:] + words[1:-1] + words[:1]),
    (rf"the list(?:, but)? with (?:the word )?(\w+) {COUNT} in a row", _times),
    (r"each word twice|every word two times", lambda words: [w for w in words for _ in "12"]),
    (r"capital letters", lambda words: ", ".join(w.upper() for w in words)),
    (
        r'(?:join|write) the words with (a [a-z ]+?|the word "\w+")(?: between|[.,:]|$)',
        lambda words, x: GLUE[x].join(words),
    ),
    (
        r"number the (?:words|list)|a number before",
        lambda words: " ".join(f"{i + 1}. {w}" for i, w in enumerate(words)),
    ),
    (r"count the words|how many words|number of words", lambda words: str(len(words))),
    (
        r"(?:give|write) only the (\w+) word\b|which word is (\w+)",
        lambda words, *x: words[ORDINALS.index(x[0] or x[1])],
    ),
]


def read(prompt: str) -> tuple[str, int]:
    """The answer to a prompt by the readings above, and the number of steps found."""
    listed = max(re.findall(r"\w+(?:, \w+)+", prompt), key=lambda found: len(found.split()))
    steps = prompt.replace(listed, "").lower()
    found = sorted(
        (match.start(), match.groups(), do) for pattern, do in READINGS for match in re.finditer(pattern, steps)
    )
    result = listed.split(", ")
    for _, groups, do in found:
        result = do(result, *groups)
    return (result if isinstance(result, str) else ", ".join(result)), len(found)


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_gold_answer_agrees_with_an_independent_reading(seed):
    example = instruct.draw(random.Random(seed))
    answer, steps = read(example.turns[0])
    assert 1 <= steps <= 2
    assert answer == example.reference["answer"]


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_gold_scores_one_with_and_without_lead_in_and_period(seed):
    example = instruct.draw(random.Random(seed))
    bare = example.reference["answer"]
    for text in (example.answers[0], bare, f"Result: {bare}. \n", f"Sure: Here you go: {bare}"):
        assert scores.instruct(example.reference, [text]).value == 1.0


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_every_damage_to_the_answer_is_wrong(seed):
    rng = random.Random(seed)
    example = instruct.draw(rng)
    words = re.findall(r"\w+|\W+", example.reference["answer"])
    places = [place for place, word in enumerate(words) if word.isalnum()]
    place = rng.choice(places)
    damaged = [
        words[:place] + words[place + 1 :],
        [*words[:place], "frog", *words[place + 1 :]],
        [*words[:place], words[place].swapcase() + ("" if words[place].isalpha() else "1"), *words[place + 1 :]],
        [*words, ", frog"],
    ]
    for text in damaged:
        assert scores.instruct(example.reference, ["".join(text)]).value == 0.0, text


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_wrong_order_and_wrong_separator_are_wrong(seed):
    example = instruct.draw(random.Random(seed))
    words = example.reference["answer"].split(", ")
    assume(len(words) > 1 and words != words[::-1])
    assert scores.instruct(example.reference, [", ".join(words[::-1])]).value == 0.0
    assert scores.instruct(example.reference, [" ".join(words)]).value == 0.0


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_same_seed_same_example_and_no_text_scores_zero(seed):
    example = instruct.draw(random.Random(seed))
    assert example == instruct.draw(random.Random(seed))
    assert scores.instruct(example.reference, [""]).value == scores.instruct(example.reference, []).value == 0.0


@pytest.mark.slow
def test_two_thousand_vary():
    rng = random.Random(0)
    examples = [instruct.draw(rng) for _ in range(2_000)]
    assert len({example.turns for example in examples}) > 1_980
    assert all(5 <= len(example.turns[0].split()) <= 36 for example in examples)


@pytest.mark.parametrize(
    "prompt, answer",
    [
        ("Take these words: bed, cat, pen. Reverse the list. Then drop the first word.", "cat, bed"),
        ("Sort the list from a to z and then number the words: pen, bed, cat", "1. bed 2. cat 3. pen"),
        ("First write each word twice. After that, join the words with a slash: a, b, c", "a/a/b/b/c/c"),
    ],
)  # fmt: skip
def test_the_reading_itself_on_hand_worked_prompts(prompt, answer):
    assert read(prompt) == (answer, 2)
