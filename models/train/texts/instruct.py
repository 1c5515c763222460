"""mini_instruct: apply one or two exact steps to a short list of words; only the wording around the results varies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from models.train.texts.example import Example
from models.train.texts.phrase import either, plain

WORDS = tuple(
    """apple bag ball bird boat book cake cat chair coin cup dog door egg eye farm fish flower garden gold hat hill
    honey horse jar key lake lamp map milk mouse nut oil owl paper pen rain ring road ship shoe snow song star sugar
    table tea tree wall wolf""".split()
)

OPENERS = (
    "{steps}: {words}",
    "{steps}. The words are {words}.",
    "{steps}. Here is the list: {words}.",
    "Here are some words: {words}. {steps}.",
    "Take these words: {words}. {steps}.",
    "The list is {words}. {steps}.",
    "I have a list of words: {words}. {steps}.",
    "{steps}, please. My list: {words}.",
)
LEAD_INS = ("", "", "Here you go: ", "Result: ", "Answer: ", "Here it is: ", "This is the result: ", "Sure: ")
MORE_LEAD_INS = (
    "[Here|This] is [the result|the answer|what you want|my answer]: ",
    "[The|My] [answer|result] [is|would be|becomes] this: ",
    "[Now|So|Then] [we have|it is|this is|it becomes]: ",
    "[After|With] [that|this], [we have|it is|you get]: ",
)
NEXT = (
    "{first} and then {second}",
    "{first}, then {second}",
    "First {first}. After that, {second}",
    "{first}. Then {second}",
)
WORKED = (
    "First step: {middle}. Second step: {end}",
    "Step one: {middle}. Step two: {end}",
    "First: {middle}. Then: {end}",
    "After the first step: {middle}. After the second: {end}",
)
MORE_WORKED = (
    "[First[| step]|Step one|[After|With] [the first step|step one][|, we have|, the list is|, it is]|The list [is now|"
    "becomes]|[Now|Then|So] [we have|the list is|it is]]: {middle}. [Then[| step two]|Second[| step]|Step two|[After|"
    "With] [the second step|step two|that][|, we have|, it is]|[Now|So|Finally] [we have|this is|it is]|[The|My] "
    "[result|answer] [is|becomes]]: {end}",
) * 4
"""A two-step answer shows the list between its steps; what counts is what stands after the last colon."""
CLOSERS = "[||.|. Done.|. Ready.|. That is [all|it].|. [Here|There] it is.|. All done.]"
ORDINALS = ("first", "second", "third", "fourth", "fifth")
JOINERS = {"a dash": "-", "a plus sign": "+", "a slash": "/", 'the word "and"': " and ", 'the word "or"': " or "}


@dataclass(frozen=True)
class Step:
    """One instruction in words, and what the list is after it: still a list, or a finished line of text."""

    phrase: str
    result: list[str] | str


def _reverse(rng: Random, words: list[str]) -> Step:
    phrases = (
        "reverse the list",
        "reverse the order of the words",
        "turn the list around",
        "write the words in reverse order",
    )
    return Step(rng.choice(phrases), words[::-1])


def _sort(rng: Random, words: list[str]) -> Step:
    phrases = (
        "sort the words",
        "sort the list from a to z",
        "put the words in alphabetical order",
        "sort the words by the alphabet",
    )
    return Step(rng.choice(phrases), sorted(words))


def _drop_end(rng: Random, words: list[str]) -> Step:
    verb, first = rng.choice(("drop", "remove", "leave out")), rng.random() < 0.5
    return Step(f"{verb} the {'first' if first else 'last'} word", words[1:] if first else words[:-1])


def _remove(rng: Random, words: list[str]) -> Step:
    gone = rng.choice(words)
    phrase = rng.choice(("remove the word {}", "leave out the word {}", "drop the word {}", "take out {}"))
    return Step(phrase.format(gone), [word for word in words if word != gone])


def _replace(rng: Random, words: list[str]) -> Step:
    old, new = rng.choice(words), _other(rng, words)
    phrase = rng.choice(("replace {} with {}", "change {} to {}", "replace the word {} with {}"))
    return Step(phrase.format(old, new), [new if word == old else word for word in words])


def _add(rng: Random, words: list[str]) -> Step:
    new, front = _other(rng, words), rng.random() < 0.5
    place = rng.choice(("at the start", "at the front")) if front else "at the end"
    phrase = rng.choice(("add {} {}", "put the word {} {}", "add the word {} {}"))
    return Step(phrase.format(new, place), [new, *words] if front else [*words, new])


def _swap(rng: Random, words: list[str]) -> Step | None:
    if len(words) < 3:
        return None
    phrase = rng.choice(("swap the first and the last word", "let the first and the last word change places"))
    return Step(phrase, [words[-1], *words[1:-1], words[0]])


def _double(rng: Random, words: list[str]) -> Step:
    phrase = rng.choice(("write each word twice", "write every word two times in a row"))
    return Step(phrase, [word for word in words for _ in range(2)])


def _capitals(rng: Random, words: list[str]) -> Step:
    phrase = rng.choice(("write the words in capital letters", "write every word in capital letters"))
    return Step(phrase, ", ".join(words).upper())


def _join(rng: Random, words: list[str]) -> Step:
    name = rng.choice(sorted(JOINERS))
    phrase = rng.choice(("join the words with {}", "write the words with {} between them"))
    return Step(phrase.format(name), JOINERS[name].join(words))


def _number(rng: Random, words: list[str]) -> Step:
    phrase = rng.choice(("number the words", "number the list", "put a number before each word"))
    return Step(phrase, " ".join(f"{place}. {word}" for place, word in enumerate(words, start=1)))


def _count(rng: Random, words: list[str]) -> Step:
    return Step(
        rng.choice(("count the words", "say how many words there are", "give the number of words")), str(len(words))
    )


def _pick(rng: Random, words: list[str]) -> Step:
    place = rng.randrange(min(len(words), len(ORDINALS)))
    phrase = rng.choice(("give only the {} word", "say which word is {}", "write only the {} word"))
    return Step(phrase.format(ORDINALS[place]), words[place])


def _other(rng: Random, words: list[str]) -> str:
    """A word that is not in the list."""
    while (word := rng.choice(WORDS)) in words:
        pass
    return word


Operation = Callable[[Random, list[str]], Step | None]
LISTS: tuple[Operation, ...] = (
    _reverse, _reverse, _sort, _drop_end, _drop_end, _remove, _replace, _add, _swap, _double,
)  # fmt: skip
LINES: tuple[Operation, ...] = (_capitals, _join, _number, _count, _pick)

# Sorting undoes what only moved words, and "the word" is not clear once it stands there more than once.
SENSELESS = {(_reverse, _sort), (_swap, _sort), (_double, _remove), (_double, _replace)}


def draw(rng: Random) -> Example:
    """One example: a single step or two, on 3 to 5 different words."""
    words = rng.sample(WORDS, rng.randint(3, 5))
    steps = _steps(rng, words)
    while steps is None:
        steps = _steps(rng, words)
    orders, results = steps
    prompt = rng.choice(OPENERS).format(steps=orders, words=", ".join(words))
    *middle, end = (result if isinstance(result, str) else ", ".join(result) for result in results)
    if middle:
        phrase = either(rng.choice(WORKED), WORKED + MORE_WORKED).format(middle=middle[0], end=end)
    else:
        phrase = either(rng.choice(LEAD_INS), LEAD_INS + MORE_LEAD_INS) + end
    phrase += CLOSERS
    prompt = ". ".join(part[:1].upper() + part[1:] for part in prompt.split(". "))
    return Example("", (prompt,), (plain(phrase),), {"answer": end}, (phrase,))


def _steps(rng: Random, words: list[str]) -> tuple[str, list[list[str] | str]] | None:
    """Phrase of one or two steps, and the result of each; None where the steps drawn make no sense together."""
    if rng.random() < 0.4:
        step = rng.choice(LISTS + LINES)(rng, words)
        return (step.phrase, [step.result]) if step else None
    first_of, second_of = rng.choice(LISTS), rng.choice(LISTS + LINES)
    if first_of is second_of or (first_of, second_of) in SENSELESS:
        return None
    first = first_of(rng, words)
    if first is None or len(first.result) < 2 or len(first.result) > 7:
        return None
    second = second_of(rng, list(first.result))
    if second is None:
        return None
    return rng.choice(NEXT).format(first=first.phrase, second=second.phrase), [first.result, second.result]
