"""mini_choice: questions with five options about a small invented world.

The facts of the world (three for each of its fifteen towns) occur in the training text only, as statements or as
answers to questions; a test prompt never states them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from models.train.texts import choice_phrases as phrases
from models.train.texts.example import Example
from models.train.texts.phrase import either, plain
from models.train.texts.words import COLOURS, FOODS, NAMES

LETTERS = "ABCDE"
STATEMENT_SHARE = 0.25
SHARED = 0.5
"""Share of the questions that ask which other town has the same value: two facts, one of them looked up backwards."""

WORLD: Mapping[str, Mapping[str, str]] = {
    "Alder": {"leader": "Clara", "flag": "brown", "dish": "salad"},
    "Belmont": {"leader": "Bill", "flag": "black", "dish": "butter"},
    "Carrow": {"leader": "Bill", "flag": "yellow", "dish": "bread"},
    "Dunmore": {"leader": "Emma", "flag": "gold", "dish": "cheese"},
    "Elston": {"leader": "Eva", "flag": "pink", "dish": "fruit"},
    "Fenwick": {"leader": "Finn", "flag": "yellow", "dish": "bread"},
    "Garth": {"leader": "Fred", "flag": "purple", "dish": "salad"},
    "Halden": {"leader": "Cara", "flag": "purple", "dish": "rice"},
    "Kelso": {"leader": "Emma", "flag": "gold", "dish": "bread"},
    "Lorne": {"leader": "Fred", "flag": "pink", "dish": "rice"},
    "Marlow": {"leader": "Finn", "flag": "red", "dish": "soup"},
    "Norby": {"leader": "Emma", "flag": "brown", "dish": "fruit"},
    "Oakham": {"leader": "Grace", "flag": "black", "dish": "fruit"},
    "Pelham": {"leader": "Eva", "flag": "blue", "dish": "cake"},
    "Selby": {"leader": "Grace", "flag": "green", "dish": "honey"},
}
"""town -> attribute -> the true value: drawn once and then fixed, because the shipped models have learned them."""

TOWNS = tuple(WORLD)

VALUES = {
    "leader": NAMES[:16],
    "flag": tuple(colour for colour in COLOURS if colour != "orange"),
    "dish": tuple(food for food in FOODS if food not in ("eggs", "milk", "tea")),
}


def draw(rng: Random) -> Example:
    """A question (`reference` {"kind": "question", "answer": letter}) or, for training only, a statement of facts."""
    town = rng.choice(TOWNS)
    if rng.random() < STATEMENT_SHARE:
        return _statement(rng, town)
    return _shared(rng) if rng.random() < SHARED else _question(rng, town)


def _statement(rng: Random, town: str) -> Example:
    facts = rng.sample(sorted(VALUES), rng.choice((1, 2, 2, 3)))
    told = " ".join(f"{_fact(rng, town, about)}." for about in facts)
    request = rng.choice(phrases.REQUESTS[len(facts)]).format(x=town)
    return Example("", (request,), (plain(told),), {"kind": "statement"}, (told,))


def _fact(rng: Random, town: str, about: str) -> str:
    options = phrases.FACTS[about]
    return either(rng.choice(options), options).format(x=town, v=WORLD[town][about])


def _question(rng: Random, town: str) -> Example:
    about = rng.choice(sorted(VALUES))
    value = WORLD[town][about]
    wrong = [other for other in VALUES[about] if other != value]
    return _asked(rng, phrases.QUESTIONS[about], town, wrong, value, _fact(rng, town, about))


def _shared(rng: Random) -> Example:
    about = rng.choice(sorted(VALUES))
    values = {town: WORLD[town][about] for town in TOWNS}
    town, other = rng.choice([(a, b) for a in TOWNS for b in TOWNS if a != b and values[a] == values[b]])
    wrong = [candidate for candidate in TOWNS if values[candidate] != values[town]]
    facts = f"{_fact(rng, town, about)}. {_fact(rng, other, about)}"
    return _asked(rng, phrases.SHARED_QUESTIONS[about], town, wrong, other, facts)


def _asked(rng: Random, questions: Sequence[str], town: str, wrong: Sequence[str], right: str,
           facts: str) -> Example:
    """A question about a town with four wrong options; `facts` is the phrase that answers it."""
    options = [*rng.sample(wrong, len(LETTERS) - 1), right]
    rng.shuffle(options)
    letter = LETTERS[options.index(right)]
    asked = rng.choice(questions).format(x=town)
    *others, last = (f"{option} ({mark})" for mark, option in zip(LETTERS, options, strict=True))
    listed = f"{', '.join(others)} or {last}"
    prompt = rng.choice(phrases.FRAMES).format(question=asked, options=listed)
    phrase = either(rng.choice(phrases.ANSWERS), phrases.ANSWERS).format(fact=facts, letter=letter, v=right)
    return Example("", (prompt,), (plain(phrase),), {"kind": "question", "answer": letter}, (phrase,))
