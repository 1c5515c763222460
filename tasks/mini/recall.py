"""Exercises in looking things up: not a benchmark, only part of the training stream.

A small model learns to find "the number that stands after Tom" slowly from word problems, where one answer in many needs
it, and quickly from lists where every answer is nothing else. Three kinds: say a list again, say what belongs to a name,
say which letter an option has. Every answer stands in the question.
"""

from __future__ import annotations

import random

from tasks.base import Example
from tasks.mini.words import COLOURS, FOODS, JOBS, NAMES, PLURALS

_THINGS = (*PLURALS.values(), *COLOURS, *JOBS, *FOODS)


def draw(rng: random.Random) -> Example:
    """One exercise; `reference` is empty, nothing scores it."""
    question, answer = rng.choice((_again, _belongs, _belongs, _letters))(rng)
    return Example("", (question,), (answer,), {})


def _again(rng: random.Random) -> tuple[str, str]:
    words = rng.sample((*NAMES, *_THINGS), rng.randint(5, 9))
    words.insert(rng.randrange(len(words)), str(rng.randint(2, 99)))
    said = " ".join(words)
    return f"Say it again: {said}", said


def _belongs(rng: random.Random) -> tuple[str, str]:
    people = rng.sample(NAMES, rng.randint(4, 6))
    kind = rng.randrange(3)
    values = [str(rng.randint(2, 99)) if kind == 0 else rng.choice(people) if kind == 1 else rng.choice(_THINGS) for _ in people]
    facts = " ".join(f"{person} has {value}." for person, value in zip(people, values, strict=True))
    asked = rng.sample(list(zip(people, values, strict=True)), len(people))
    return facts, " ".join(f"{person} has {value}." for person, value in asked)


def _letters(rng: random.Random) -> tuple[str, str]:
    options = rng.sample(_THINGS, 5)
    listed = list(zip("ABCDE", options, strict=True))
    question = " ".join(f"({letter}) {option}" for letter, option in listed)
    asked = rng.sample(listed, len(listed))
    return question, " ".join(f"{option} is ({letter})." for letter, option in asked)
