"""The wording of mini_gsm: equally good sentences for each fact, event, question and worked step.

A question takes the plain wording (phrase.py) of a fact, an answer any. Slots: a, b people; t, u things
(plural) of a and of b; n, k numbers; times a factor; eq an equation; now a time word or nothing.
"""

from __future__ import annotations

FRAMES = (
    "Some friends are talking at school.",
    "The children compare what they own.",
    "This is a story about some good friends.",
    "A few friends meet in the park.",
)

GIVEN = (
    "{a} {has} {n} {t}.",
    "{a} {owns} {n} {t}.",
)

RELATIONS = {
    "more": (
        "{a} {has} {k} more {t} than {b}[| does].",
        "{a} {owns} {k} more {t} than {b}[ does|].",
        "{a} {has} as many {t} as {b} and {k} more.",
    ),
    "fewer": (
        "{a} {has} {k} fewer {t} than {b}[| does].",
        "{a} {owns} {k} fewer {t} than {b}[ does|].",
    ),
    "twice": (
        "{a} {has} twice as many {t} as {b}[| does].",
        "{a} {owns} twice as many {t} as {b}[ does|].",
        "{a} {has} two times as many {t} as {b}[| does].",
    ),
    "times": (
        "{a} {has} {times} times as many {t} as {b}[| does].",
        "{a} {owns} {times} times as many {t} as {b}[ does|].",
    ),
    "half": (
        "{a} {has} half as many {t} as {b}[| does].",
        "{a} {owns} half as many {t} as {b}[ does|].",
    ),
}

CROSS_RELATIONS = {
    "more": ("{a} {has} {k} more {t} than {u}.", "{a} {owns} {k} more {t} than {u}."),
    "fewer": ("{a} {has} {k} fewer {t} than {u}.", "{a} {owns} {k} fewer {t} than {u}."),
    "twice": ("{a} {has} twice as many {t} as {u}.", "{a} {owns} two times as many {t} as {u}."),
    "times": ("{a} {has} {times} times as many {t} as {u}.", "{a} {owns} {times} times as many {t} as {u}."),
    "half": ("{a} {has} half as many {t} as {u}.", "{a} {owns} half as many {t} as {u}."),
}

SYMBOLS = {"more": "+", "fewer": "-", "twice": "*", "times": "*", "half": "/"}

THEN = ("Then", "Later,", "The next day,", "One day,")

EVENTS = {
    "gain": (
        "{a} [buys|gets] {k} [more|new] {t}.",
        "{a} [finds|gets] {k} [more|new] {t}.",
        "{a} [gets|receives] {k} [new|more] {t}.",
    ),
    "loss": ("{a} loses {k} {t}.", "{a} sells {k} {t}.", "{a} throws {k} {t} [away|out]."),
    "gift": (
        "{a} [gives|hands|passes] {k} {t} to {b}.",
        "{a} [hands|gives|passes] {k} {t} to {b}.",
        "{b} [gets|takes|receives] {k} {t} from {a}.",
    ),
}

NOW = (" now", " in the end", " after all this")

QUESTIONS = {
    "one": (
        "How many {t} does {a} have{now}?",
        "What is the number of {t} that {a} has{now}?",
        "Find how many {t} {a} has{now}.",
    ),
    "total": (
        "How many {t} do {a} and {b} have together{now}?",
        "What is the total number of {t} that {a} and {b} have{now}?",
        "Find how many {t} {a} and {b} have together{now}.",
    ),
    "difference": (
        "How many more {t} does {a} have than {b}{now}?",
        "How many fewer {t} does {b} have than {a}{now}?",
        "Find how many more {t} {a} has than {b}{now}.",
    ),
}

START = "[|So |Now |Next, |Then |Here ]"
"""What may stand before a sentence of an answer."""

_OPENING_STEP = (
    "{start}{b} {has} {n} {u}{so} {a} {has} {eq} {t}.",
    "[As|Since|When|If|Because] {b} {has} {n} {u}, {a} {has} {eq} {t}.",
    "{start}{b} {has} {n} {u}{so} for {a} [this|that|it|the result] [is|makes|gives|means] {eq} {t}.",
)
"""Each step says again what it starts from: a small model finds a number more easily than it carries it."""

STEPS = {
    **dict.fromkeys(SYMBOLS, _OPENING_STEP),
    "gain": (
        "{start}{a} {had} {n} {t} and [now|then|so|after that] {has} {eq} {t}.",
        "{start}{a} [goes|moves|gets|climbs] [up |]from {n} {t} [to|up to|on to] {eq} {t}.",
    ),
    "loss": (
        "{start}{a} {had} {n} {t} and [now|then|so|after that] {has} {eq} {t}.",
        "{start}{a} [goes|moves|gets|falls] [down |]from {n} {t} [to|down to] {eq} {t}.",
    ),
    "total": (
        "{end} {a} {has} {n} {t} and {b} {has} {m}{so} [together|in all|in total|now] they [have|own|hold|keep] "
        "{eq} {t}.",
        "{start}{a} {has} {n} {t} and {b} {has} {m} [in the end|at last|now|by now], and [this|that|it] "
        "[makes|is|gives|means] {eq} {t} [in all|together|in total|all in all].",
    ),
    "difference": (
        "{end} {a} {has} {n} {t} and {b} {has} {m}{so} the [difference|gap] is {eq} {t}.",
        "{start}{a} {has} {n} {t} and {b} {has} {m} [in the end|at last|now|by now], and the [gap|difference] is "
        "{eq} {t}.",
    ),
}

CONCLUSIONS = (
    "{end} {a} {has} {n} {t}.",
    "{start}{a} {has} {n} {t} [in the end|at last|now|by now].",
)

ENDS = (
    "[The|So the|Now the|Then the] [answer|result|number] is {n}.",
    "[So|Now|Then|Here] the [answer|result|number] is {n}.",
    "[That|This|It] is {n}.",
    "[The|So the|Now the|Then the] [result|answer|number] is {n}.",
)

_FREE = {
    "start": START,
    "end": "[In the end|At last|Finally,|At the end|Now|By now]",
    "has": "[has|owns|keeps|holds]",
    "owns": "[owns|has|keeps|holds]",
    "had": "[had|owned|kept|held]",
    "so": "[, so|; so|, and so|; then|, then]",
}
"""Slots that every phrase may use: words of free choice."""


def fill(template: str, **words: object) -> str:
    """The phrase with its slots filled; its free wording stays open."""
    return template.format(**words, **_FREE)
