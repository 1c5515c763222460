"""Phrases with free wording: `[a|b|c]` stands for any one of its options, `[|very ]` for an optional word.

Options nest. Brackets without a bar of their own are ordinary text, so Python code can be a phrase. The first options
give a phrase's plain wording.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

Option = tuple["str | Group", ...]


class Group(NamedTuple):
    """One choice: each option is a sequence of texts and further choices."""

    options: tuple[Option, ...]


class Wording(NamedTuple):
    """One wording of a phrase, and the log-probability (nats) of the choices that lead to it."""

    text: str
    log_probability: float


def _parse(phrase: str) -> Option:
    marks = [mark for mark in re.split(r"([\[\]|])", phrase) if mark]
    options, end = _sequence(marks, 0, nested=False)
    if end < len(marks):
        raise ValueError(f"phrase {phrase!r}: a closing bracket has no opening one")
    return options[0]


def _sequence(marks: Sequence[str], at: int, *, nested: bool) -> tuple[list[Option], int]:
    """The options from mark `at` on, and the place of the bracket that closes them."""
    options: list[list[str | Group]] = [[]]
    while at < len(marks) and marks[at] != "]":
        if marks[at] == "[":
            inner, end = _sequence(marks, at + 1, nested=True)
            if end == len(marks):
                raise ValueError(f"phrase {''.join(marks)!r}: an opening bracket has no closing one")
            options[-1] += [Group(tuple(inner))] if len(inner) > 1 else ["[", *inner[0], "]"]
            at = end
        elif nested and marks[at] == "|":
            options.append([])
        else:
            options[-1].append(marks[at])
        at += 1
    return [tuple(option) for option in options], at


def wording(phrase: str, rng: random.Random) -> Wording:
    """A wording with every choice drawn at random, all options alike. Raises ValueError for unbalanced brackets."""
    return _drawn(_parse(phrase), rng)


def _drawn(option: Option, rng: random.Random) -> Wording:
    texts, total = [], 0.0
    for part in option:
        if isinstance(part, Group):
            inner = _drawn(rng.choice(part.options), rng)
            texts.append(inner.text)
            total += inner.log_probability - math.log(len(part.options))
        else:
            texts.append(part)
    return Wording("".join(texts), total)


def plain(phrase: str) -> str:
    """The wording that takes every first option. Raises ValueError for unbalanced brackets."""
    return _plain(_parse(phrase))


def _plain(option: Option) -> str:
    return "".join(_plain(part.options[0]) if isinstance(part, Group) else part for part in option)


def every_wording(phrase: str) -> Iterator[str]:
    """All wordings of a short phrase, the plain one first. Raises ValueError for unbalanced brackets."""
    return _every(_parse(phrase))


def _every(option: Option) -> Iterator[str]:
    parts = [[text for choice in part.options for text in _every(choice)] if isinstance(part, Group) else [part]
             for part in option]
    return ("".join(texts) for texts in product(*parts))


def either(chosen: str, options: Sequence[str]) -> str:
    """A phrase of any of the options, whose plain wording is that of `chosen`, one of them."""
    rest = list(options)
    rest.remove(chosen)
    return f"[{'|'.join([chosen, *rest])}]" if rest else chosen
