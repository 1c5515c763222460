"""Recall exercises: part of the training stream, not a benchmark.

A small model learns to find "the number after Tom" slowly from word problems, where few tokens need it, and quickly
from lists where every answer token does. Four kinds: repeat a list, give the value for a name, give the letter of an
option, quote the facts of a word problem. Every answer occurs in the question.
"""

from __future__ import annotations

from random import Random

from models.train.texts import gsm_phrases as phrases
from models.train.texts.example import Example
from models.train.texts.phrase import plain
from models.train.texts.words import ANIMALS, COLOURS, FOODS, JOBS, NAMES, NUMBERS, PLURALS

_THINGS = (*PLURALS.values(), *COLOURS, *JOBS, *FOODS, *ANIMALS)


def draw(rng: Random) -> Example:
    """One exercise; `reference` is empty, nothing scores it. Only quoted facts have a free wording."""
    question, answer = rng.choice((_again, _belongs, _letters, _letters, _relations, _relations))(rng)
    return Example("", (question,), (plain(answer),), {}, (answer,))


def _again(rng: Random) -> tuple[str, str]:
    words = rng.sample((*NAMES, *_THINGS), rng.randint(5, 9))
    words.insert(rng.randrange(len(words)), str(rng.randint(2, 99)))
    said = " ".join(words)
    return f"Say it again: {said}", said


def _belongs(rng: Random) -> tuple[str, str]:
    people = rng.sample(NAMES, rng.randint(4, 6))
    kind = rng.randrange(3)
    kinds = (lambda: str(rng.randint(2, 99)), lambda: rng.choice(people), lambda: rng.choice(_THINGS))
    values = [kinds[kind]() for _ in people]
    facts = " ".join(f"{person} has {value}." for person, value in zip(people, values, strict=True))
    asked = rng.sample(list(zip(people, values, strict=True)), len(people))
    return facts, " ".join(f"{person} has {value}." for person, value in asked)


def _letters(rng: Random) -> tuple[str, str]:
    options = rng.sample(_THINGS, 5)
    listed = list(zip("ABCDE", options, strict=True))
    question = ", ".join(f"{option} ({letter})" for letter, option in listed)
    asked = rng.sample(listed, len(listed))
    return question, ", ".join(f"{option} ({letter})" for letter, option in asked)


def _relations(rng: Random) -> tuple[str, str]:
    people, thing = rng.sample(NAMES, rng.randint(3, 4)), rng.choice(sorted(PLURALS.values()))
    facts = []
    for index, person in enumerate(people):
        if index == 0 or rng.random() < 0.2:
            fact = phrases.fill(rng.choice(phrases.GIVEN), a=person, n=rng.randint(4, 40), t=thing)
            facts.append((person, fact, fact))
            continue
        change = rng.choice(sorted(phrases.RELATIONS))
        number = {"twice": 2, "half": 2, "times": rng.choice((3, 4))}.get(change, rng.randint(2, 9))
        times = rng.choice((str(number), NUMBERS[number])) if change == "times" else ""
        words = {"a": person, "b": rng.choice(people[:index]), "t": thing, "k": number, "times": times}
        fact = phrases.fill(rng.choice(phrases.RELATIONS[change]), **words)
        facts.append((person, fact, f"{fact} So {person} has {phrases.SYMBOLS[change]} {number}."))
    rng.shuffle(facts)
    told = plain(" ".join(fact for _, fact, _ in facts))
    asked = rng.sample(facts, len(facts))
    return f"{told} {', '.join(person for person, _, _ in asked)}?", " ".join(quoted for _, _, quoted in asked)
