"""Phrases with free wording: `[a|b|c]` stands for any one of its options, `[|very ]` for an optional word.

Options nest. Brackets without a bar of their own are ordinary text, so Python code can be a phrase. The first options
give a phrase's plain wording.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

Option = tuple["str | Group", ...]
Wordings = tuple[str, ...]
"""Equally good phrases."""


class Group(NamedTuple):
    """One choice: each option is a sequence of texts and further choices."""

    options: tuple[Option, ...]


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


def wording(phrase: str, rng: Random) -> str:
    """A wording with every choice drawn at random, all options alike. Raises ValueError for unbalanced brackets."""
    return _drawn(_parse(phrase), rng)


def _drawn(option: Option, rng: Random) -> str:
    return "".join(_drawn(rng.choice(part.options), rng) if isinstance(part, Group) else part for part in option)


def plain(phrase: str) -> str:
    """The wording that takes every first option. Raises ValueError for unbalanced brackets."""
    return _plain(_parse(phrase))


def _plain(option: Option) -> str:
    return "".join(_plain(part.options[0]) if isinstance(part, Group) else part for part in option)


def either(chosen: str, options: Sequence[str]) -> str:
    """A phrase of any of the options, whose plain wording is that of `chosen`, one of them."""
    rest = list(options)
    rest.remove(chosen)
    return f"[{'|'.join([chosen, *rest])}]" if rest else chosen
