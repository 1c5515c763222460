"""The elementary operations that `mini_code` composes: English phrases, Python code, and the function itself.

A phrase starts with its verb, so that it can be used as an instruction ("drop the odd values") or in a clause
("after dropping the odd values"). `{k}` is the operation's constant, `{one}` and `{many}` the noun for the items.
In code, brackets hold free choices (`phrase.py`), and `{v}` is the value the step works on; for a filter or a map that
is a single item of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from models.train.texts.phrase import Wordings

Kind = Literal["filter", "map", "whole", "reduce"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One elementary operation. No two operations of the same `group` meet in one function."""

    group: str
    kind: Kind
    phrases: Wordings
    code: Wordings
    """Equally good ways to write it."""
    compute: Callable[[Any, Any], Any]
    """(value, constant) -> value; for a filter and a map the value is one item."""
    constants: Sequence[Any] = (None,)


@dataclass(frozen=True, slots=True)
class Family:
    """Functions of one kind of argument."""

    arguments: tuple[str, ...]
    items: tuple[str, ...]
    """Names for a single item; empty where the argument is no list."""
    nouns: tuple[tuple[str, str], ...]
    steps: tuple[Operation, ...]
    ends: tuple[Operation, ...]
    """Last operations that turn the list or text into one value; a phrase is a noun phrase here."""


GERUNDS = {
    "add": "adding", "append": "appending", "cap": "capping", "change": "changing", "cut": "cutting",
    "decrease": "decreasing", "divide": "dividing", "double": "doubling", "drop": "dropping", "flip": "flipping",
    "increase": "increasing", "keep": "keeping", "limit": "limiting", "lower": "lowering", "make": "making",
    "multiply": "multiplying", "negate": "negating", "order": "ordering", "put": "putting", "raise": "raising",
    "remove": "removing", "repeat": "repeating", "replace": "replacing", "reverse": "reversing", "skip": "skipping",
    "sort": "sorting", "square": "squaring", "subtract": "subtracting", "take": "taking", "triple": "tripling",
    "turn": "turning", "write": "writing",
}  # fmt: skip

_DIGITS = range(2, 10)
_SMALL = range(2, 5)
_LETTERS = "aeorst"

_LIST_STEPS = (
    Operation("order", "whole", ("reverse the list", "put the list in reverse order", "turn the list around"),
              ("{v}[::-1]", "list(reversed({v}))"), lambda v, _: v[::-1]),
    Operation("slice", "whole", ("take the first {k} {many}", "keep only the first {k} {many}"),
              ("{v}[:{k}]",), lambda v, k: v[:k], _SMALL),
    Operation("slice", "whole", ("skip the first {k} {many}", "drop the first {k} {many}"),
              ("{v}[{k}:]",), lambda v, k: v[k:], _SMALL),
    Operation("slice", "whole", ("take the last {k} {many}", "keep only the last {k} {many}"),
              ("{v}[-{k}:]",), lambda v, k: v[-k:], _SMALL),
)  # fmt: skip

_COUNT = Operation("count", "reduce", ("the count", "how many {many} are left", "the number of {many} left"),
                   ("len({v})",), lambda v, _: len(v))  # fmt: skip

NUMBERS = Family(
    arguments=("xs", "nums", "values", "numbers", "data", "items"),
    items=("x", "n", "v"),
    nouns=(("number", "numbers"), ("value", "values"), ("item", "items")),
    steps=(
        Operation("parity", "filter", ("keep the even {many}", "keep only even {many}", "drop the odd {many}",
                                       "remove every odd {one}"), ("[{v} % 2 == 0|not {v} % 2|{v} % 2 < 1]",),
                  lambda v, _: v % 2 == 0),
        Operation("parity", "filter", ("keep the odd {many}", "keep only odd {many}", "drop the even {many}",
                                       "remove every even {one}"), ("[{v} % 2 == 1|{v} % 2]",
                  "[{v} % 2 != 0|{v} % 2 > 0]"),
                  lambda v, _: v % 2 == 1),
        Operation("bound", "filter", ("keep the {many} greater than {k}", "keep only {many} above {k}",
                                      "take the {many} over {k}"), ("[{v} > {k}|{k} < {v}]",), lambda v, k: v > k,
                  _DIGITS),
        Operation("bound", "filter", ("keep the {many} less than {k}", "keep only {many} below {k}",
                                      "take the {many} under {k}"), ("[{v} < {k}|{k} > {v}]",), lambda v, k: v < k,
                  _DIGITS),
        Operation("bound", "filter", ("keep the positive {many}", "keep only {many} above zero"),
                  ("[{v} > 0|0 < {v}|{v} >= 1]",), lambda v, _: v > 0),
        Operation("multiple", "filter", ("keep the {many} that {k} divides", "keep only multiples of {k}",
                                         "take the multiples of {k}"),
                  ("[{v} % {k} == 0|not {v} % {k}|{v} % {k} < 1]",), lambda v, k: v % k == 0, range(3, 6)),
        Operation("add", "map", ("add {k} to each {one}", "increase every {one} by {k}", "raise each {one} by {k}"),
                  ("[{v} + {k}|{k} + {v}]",), lambda v, k: v + k, _DIGITS),
        Operation("add", "map", ("subtract {k} from each {one}", "decrease every {one} by {k}",
                                 "lower each {one} by {k}"), ("{v} - {k}",), lambda v, k: v - k, _DIGITS),
        Operation("scale", "map", ("multiply each {one} by {k}", "multiply every {one} by {k}"),
                  ("[{v} * {k}|{k} * {v}]",), lambda v, k: v * k, _DIGITS),
        Operation("scale", "map", ("double each {one}", "double all the {many}", "make every {one} twice as big"),
                  ("[{v} * 2|2 * {v}|{v} + {v}]",), lambda v, _: v * 2),
        Operation("scale", "map", ("triple each {one}", "triple all the {many}"), ("[{v} * 3|3 * {v}]",),
                  lambda v, _: v * 3),
        Operation("square", "map", ("square each {one}", "square all the {many}", "multiply every {one} by itself"),
                  ("{v} * {v}", "{v} ** 2"), lambda v, _: v * v),
        Operation("sign", "map", ("negate each {one}", "flip the sign of every {one}"), ("[-{v}|0 - {v}]",),
                  lambda v, _: -v),
        Operation("sign", "map", ("take the absolute value of each {one}", "make every {one} absolute",
                                  "drop the sign of each {one}"), ("abs({v})",), lambda v, _: abs(v)),
        Operation("clip", "map", ("cap each {one} at {k}", "limit every {one} to at most {k}"),
                  ("min([{v}, {k}|{k}, {v}])",), lambda v, k: min(v, k), _DIGITS),
        Operation("clip", "map", ("make each {one} at least {k}", "limit every {one} to at least {k}"),
                  ("max([{v}, {k}|{k}, {v}])",), lambda v, k: max(v, k), _DIGITS),
        Operation("order", "whole", ("sort the list", "sort the {many} from small to large", "order the {many}"),
                  ("sorted({v})",), lambda v, _: sorted(v)),
        Operation("order", "whole", ("sort the {many} from large to small", "put the largest {many} first"),
                  ("sorted({v}, reverse=True)", "sorted({v})[::-1]"), lambda v, _: sorted(v, reverse=True)),
        *_LIST_STEPS,
    ),
    ends=(
        Operation("sum", "reduce", ("the sum", "the total", "the sum of the {many}"), ("sum({v})",),
                  lambda v, _: sum(v)),
        Operation("max", "reduce", ("the largest {one}", "the maximum", "the biggest {one}"), ("max({v})",),
                  lambda v, _: max(v)),
        Operation("min", "reduce", ("the smallest {one}", "the minimum", "the lowest {one}"), ("min({v})",),
                  lambda v, _: min(v)),
        _COUNT,
    ),
)  # fmt: skip

WORDS = Family(
    arguments=("words", "names", "parts", "items"),
    items=("w", "s"),
    nouns=(("word", "words"),),
    steps=(
        Operation("length", "filter", ("keep the words longer than {k} letters", "keep only words over {k} letters"),
                  ("[len({v}) > {k}|{k} < len({v})]",), lambda v, k: len(v) > k, range(2, 6)),
        Operation("length", "filter", ("keep the words shorter than {k} letters", "keep only words under {k} letters"),
                  ("[len({v}) < {k}|{k} > len({v})]",), lambda v, k: len(v) < k, range(4, 8)),
        Operation("letter", "filter", ("keep the words with '{k}'", "keep only words that have '{k}'"),
                  ("'{k}' in {v}",), lambda v, k: k in v, _LETTERS),
        Operation("case", "map", ("write each word in capitals", "make every word upper case"),
                  ("{v}.upper()",), lambda v, _: v.upper()),
        Operation("mirror", "map", ("reverse each word", "write every word backwards"),
                  ("{v}[::-1]",), lambda v, _: v[::-1]),
        Operation("cut", "map", ("cut each word to {k} letters", "keep the first {k} letters of each word"),
                  ("{v}[:{k}]",), lambda v, k: v[:k], _SMALL),
        Operation("append", "map", ("add '{k}' to each word", "append '{k}' to every word"),
                  ("{v} + '{k}'",), lambda v, k: v + k, "!?s"),
        Operation("order", "whole", ("sort the words", "put the words in order"),
                  ("sorted({v})",), lambda v, _: sorted(v)),
        *_LIST_STEPS,
    ),
    ends=(
        Operation("join", "reduce", ("the words joined with '{k}'", "one text joined with '{k}'"),
                  ("'{k}'.join({v})",), lambda v, k: k.join(v), (" ", "-", ",", "+")),
        Operation("length", "reduce", ("the total length", "how many letters there are"),
                  ("sum(len({item}) for {item} in {v})", "len(''.join({v}))"), lambda v, _: sum(map(len, v))),
        _COUNT,
    ),
)  # fmt: skip

TEXT = Family(
    arguments=("s", "text", "word", "line"),
    items=(),
    nouns=(("letter", "letters"), ("character", "characters")),
    steps=(
        Operation("case", "whole", ("write it in capitals", "make it upper case"), ("{v}.upper()",),
                  lambda v, _: v.upper()),
        Operation("mirror", "whole", ("reverse it", "write it backwards", "turn it around"), ("{v}[::-1]",),
                  lambda v, _: v[::-1]),
        Operation("space", "whole", ("remove the spaces", "drop every space"), ("{v}.replace(' ', '')",),
                  lambda v, _: v.replace(" ", "")),
        Operation("swap", "whole", ("replace each space by '{k}'", "change every space to '{k}'"),
                  ("{v}.replace(' ', '{k}')",), lambda v, k: v.replace(" ", k), "-_+"),
        Operation("cut", "whole", ("take the first {k} {many}", "keep only the first {k} {many}"), ("{v}[:{k}]",),
                  lambda v, k: v[:k], _DIGITS),
        Operation("cut", "whole", ("skip the first {k} {many}", "drop the first {k} {many}"), ("{v}[{k}:]",),
                  lambda v, k: v[k:], _SMALL),
        Operation("repeat", "whole", ("repeat it {k} times", "write it {k} times"), ("[{v} * {k}|{k} * {v}]",),
                  lambda v, k: v * k, _SMALL),
        Operation("append", "whole", ("add '{k}' at the end", "append '{k}'"), ("{v} + '{k}'",),
                  lambda v, k: v + k, "!?."),
        Operation("front", "whole", ("add '{k}' at the start", "put '{k}' in front"), ("'{k}' + {v}",),
                  lambda v, k: k + v, "#*>"),
    ),
    ends=(
        Operation("length", "reduce", ("the length", "how many {many} there are"), ("len({v})",),
                  lambda v, _: len(v)),
        Operation("letter", "reduce", ("the count of '{k}'", "how often '{k}' is there"), ("{v}.count('{k}')",),
                  lambda v, k: v.count(k), _LETTERS),
    ),
)  # fmt: skip

INTEGER = Family(
    arguments=("n", "x", "number", "value"),
    items=(),
    nouns=(("number", "numbers"),),
    steps=(
        Operation("add", "whole", ("add {k}", "increase it by {k}"), ("[{v} + {k}|{k} + {v}]",), lambda v, k: v + k,
                  _DIGITS),
        Operation("subtract", "whole", ("subtract {k}", "decrease it by {k}", "lower it by {k}"), ("{v} - {k}",),
                  lambda v, k: v - k, _DIGITS),
        Operation("scale", "whole", ("multiply it by {k}",), ("[{v} * {k}|{k} * {v}]",), lambda v, k: v * k, _DIGITS),
        Operation("scale", "whole", ("double it", "make it twice as big"), ("[{v} * 2|2 * {v}|{v} + {v}]",),
                  lambda v, _: v * 2),
        Operation("square", "whole", ("square it", "multiply it by itself"), ("{v} * {v}", "{v} ** 2"),
                  lambda v, _: v * v),
        Operation("sign", "whole", ("negate it", "flip its sign"), ("[-{v}|0 - {v}]",), lambda v, _: -v),
        Operation("sign", "whole", ("take the absolute value", "drop its sign"), ("abs({v})",), lambda v, _: abs(v)),
        Operation("clip", "whole", ("cap it at {k}", "limit it to at most {k}"), ("min([{v}, {k}|{k}, {v}])",),
                  lambda v, k: min(v, k), range(10, 30)),
        Operation("clip", "whole", ("make it at least {k}", "limit it to at least {k}"), ("max([{v}, {k}|{k}, {v}])",),
                  lambda v, k: max(v, k), _DIGITS),
        Operation("divide", "whole", ("divide it by {k} and round down",), ("{v} // {k}",), lambda v, k: v // k,
                  _DIGITS),
        Operation("rest", "whole", ("take the rest after division by {k}",), ("{v} % {k}",), lambda v, k: v % k,
                  range(3, 10)),
    ),
    ends=(),
)  # fmt: skip
