"""mini_choice: questions with five options about a small invented world.

The facts of the world (five for each of its fifteen towns) are drawn once from a constant seed. They stand in the
training text only, either told outright or as the answer to a question; a test prompt never states them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tasks.base import Example, Score
from tasks.mini import choice_phrases as phrases
from tasks.mini.words import ANIMALS, COLOURS, FOODS, NAMES

METRIC = "accuracy"
PROPORTION = True
VERSION = 2

LETTERS = "ABCDE"
STATEMENT_SHARE = 0.25

TOWNS = (
    "Alder", "Belmont", "Carrow", "Dunmore", "Elston", "Fenwick", "Garth", "Halden", "Kelso", "Lorne", "Marlow", "Norby",
    "Oakham", "Pelham", "Selby",
)  # fmt: skip

VALUES = {
    "goods": ("copper", "silk", "glass", "paper", "salt", "wool", "iron", "wine", "rope", "soap", "oil", "leather"),
    "leader": NAMES[:16],
    "flag": tuple(colour for colour in COLOURS if colour != "orange"),
    "animal": ANIMALS,
    "dish": tuple(food for food in FOODS if food not in ("eggs", "milk", "tea")),
}


def _world() -> Mapping[str, Mapping[str, str]]:
    rng = random.Random("the invented world of mini_choice")
    return MappingProxyType(
        {town: MappingProxyType({about: rng.choice(values) for about, values in VALUES.items()}) for town in TOWNS}
    )


WORLD = _world()
"""town -> attribute -> the true value."""


def draw(rng: random.Random) -> Example:
    """A question (`reference` {"kind": "question", "answer": letter}) or, for training only, a statement of facts."""
    town = rng.choice(TOWNS)
    return _statement(rng, town) if rng.random() < STATEMENT_SHARE else _question(rng, town)


def _statement(rng: random.Random, town: str) -> Example:
    facts = rng.sample(sorted(VALUES), rng.choice((1, 2, 2, 3)))
    told = [rng.choice(phrases.FACTS[about]).format(x=town, v=WORLD[town][about]) for about in facts]
    request = rng.choice(phrases.REQUESTS[len(facts)]).format(x=town)
    return Example("", (request,), (" ".join(told),), {"kind": "statement"})


def _question(rng: random.Random, town: str) -> Example:
    about = rng.choice(sorted(VALUES))
    value = WORLD[town][about]
    options = rng.sample([other for other in VALUES[about] if other != value], len(LETTERS) - 1) + [value]
    rng.shuffle(options)
    letter = LETTERS[options.index(value)]
    asked = rng.choice(phrases.QUESTIONS[about]).format(x=town)
    listed = " ".join(f"({mark}) {option}" for mark, option in zip(LETTERS, options, strict=True))
    prompt = rng.choice(phrases.FRAMES).format(question=asked, options=listed)
    fact = rng.choice(phrases.FACTS[about]).format(x=town, v=value)
    answer = rng.choice(phrases.ANSWERS).format(fact=fact, clause=fact.rstrip("."), letter=letter, v=value)
    return Example("", (prompt,), (answer,), {"kind": "question", "answer": letter})


_MARKED = re.compile(r"\(([A-E])\)")
_CUED = re.compile(r"\b(?:[Aa]nswer|[Oo]ption|[Cc]hoice)(?:\s+is|:)?\s+\(?([A-E])\b(?!')")
_BARE = re.compile(r"\s*\(?([A-E])\)?\s*[.:]?\s*")


def _letters(text: str) -> set[str]:
    """Every letter that the text names as its answer: "(C)", "answer is C", or nothing but "C."."""
    bare = _BARE.fullmatch(text)
    return {*_MARKED.findall(text), *_CUED.findall(text), *([bare[1]] if bare else [])}


def score(reference: Mapping[str, str], texts: Sequence[str]) -> Score:
    """1 when the text names the right letter and no other; no letter, or two different ones, is wrong."""
    letters = _letters(texts[-1])
    letter = letters.pop() if len(letters) == 1 else None
    return Score(float(letter == reference["answer"]), letter)
