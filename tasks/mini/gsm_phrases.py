"""The wording of mini_gsm: equally good sentences for each fact, event, question and worked step.

Slots: a, b people; t, u things (plural) of a and of b; n, k numbers; times a factor;
eq an equation; now a time word or nothing.
"""

from __future__ import annotations

FRAMES = (
    "Some friends are talking at school.",
    "The children compare what they own.",
    "This is a story about some good friends.",
    "A few friends meet in the park.",
)

GIVEN = (
    "{a} has {n} {t}.",
    "{a} owns {n} {t}.",
)

RELATIONS = {
    "more": (
        "{a} has {k} more {t} than {b}.",
        "{a} owns {k} more {t} than {b} does.",
        "{a} has as many {t} as {b} and {k} more.",
    ),
    "fewer": (
        "{a} has {k} fewer {t} than {b}.",
        "{a} owns {k} fewer {t} than {b} does.",
    ),
    "twice": (
        "{a} has twice as many {t} as {b}.",
        "{a} owns twice as many {t} as {b} does.",
        "{a} has two times as many {t} as {b}.",
    ),
    "times": (
        "{a} has {times} times as many {t} as {b}.",
        "{a} owns {times} times as many {t} as {b} does.",
    ),
    "half": (
        "{a} has half as many {t} as {b}.",
        "{a} owns half as many {t} as {b} does.",
    ),
}

CROSS_RELATIONS = {
    "more": ("{a} has {k} more {t} than {u}.", "{a} owns {k} more {t} than {u}."),
    "fewer": ("{a} has {k} fewer {t} than {u}.", "{a} owns {k} fewer {t} than {u}."),
    "twice": ("{a} has twice as many {t} as {u}.", "{a} owns two times as many {t} as {u}."),
    "times": ("{a} has {times} times as many {t} as {u}.", "{a} owns {times} times as many {t} as {u}."),
    "half": ("{a} has half as many {t} as {u}.", "{a} owns half as many {t} as {u}."),
}

SYMBOLS = {"more": "+", "fewer": "-", "twice": "*", "times": "*", "half": "/"}

THEN = ("Then", "Later,", "The next day,", "One day,")

EVENTS = {
    "gain": ("{a} buys {k} more {t}.", "{a} finds {k} more {t}.", "{a} gets {k} new {t}."),
    "loss": ("{a} loses {k} {t}.", "{a} sells {k} {t}.", "{a} throws {k} {t} away."),
    "gift": ("{a} gives {k} {t} to {b}.", "{a} hands {k} {t} to {b}.", "{b} gets {k} {t} from {a}."),
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

_OPENING_STEP = (
    "{b} has {n} {u}, so {a} has {eq} {t}.",
    "As {b} has {n} {u}, {a} has {eq} {t}.",
    "{b} has {n} {u}, so for {a} this is {eq} {t}.",
)
"""Each step says again what it starts from: a small model finds a number more easily than it carries it."""

STEPS = {
    **dict.fromkeys(SYMBOLS, _OPENING_STEP),
    "gain": ("{a} had {n} {t} and now has {eq} {t}.", "{a} goes up from {n} {t} to {eq} {t}."),
    "loss": ("{a} had {n} {t} and now has {eq} {t}.", "{a} goes down from {n} {t} to {eq} {t}."),
    "total": (
        "In the end {a} has {n} {t} and {b} has {m}, so together they have {eq} {t}.",
        "{a} has {n} {t} and {b} has {m} in the end, and this makes {eq} {t} in all.",
    ),
    "difference": (
        "In the end {a} has {n} {t} and {b} has {m}, so the difference is {eq} {t}.",
        "{a} has {n} {t} and {b} has {m} in the end, and the gap is {eq} {t}.",
    ),
}

CONCLUSIONS = ("In the end {a} has {n} {t}.", "{a} has {n} {t} in the end.")

ENDS = ("The answer is {n}.", "So the answer is {n}.", "That is {n}.", "The result is {n}.")


def fill(template: str, **words: object) -> str:
    return template.format(**words)
