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
    "{a} has exactly {n} {t}.",
    "We know that {a} has {n} {t}.",
)

RELATIONS = {
    "more": (
        "{a} has {k} more {t} than {b}.",
        "{a} owns {k} more {t} than {b} does.",
        "{a} has as many {t} as {b} and {k} more.",
        "Compared with {b}, {a} has {k} more {t}.",
    ),
    "fewer": (
        "{a} has {k} fewer {t} than {b}.",
        "{a} owns {k} fewer {t} than {b} does.",
        "Compared with {b}, {a} has {k} fewer {t}.",
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
LATER = ("After that,", "Some time later,", "Next,")

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

# A plan names amounts from the asked one back to a given one: opening, then `link` for each further amount.
PLANS = (
    ("To find {x} we need {y}", ", and for those {y}"),
    ("{x} depend on {y}", ", which depend on {y}"),
    ("For {x} look at {y}", ", and before at {y}"),
)

NOTHING_TO_PLAN = ("{x} are given.", "We are told {x}.")

STAGES = {"only": "", "first": " at first", "middle": " in between", "last": " at the end"}

_OPENING_STEP = (
    "{b} has {n} {u}, so {a} has {eq} {t}.",
    "as {b} has {n} {u}, {a} has {eq} {t}.",
    "since {b} has {n} {u}, {a} must have {eq} {t}.",
    "{b} has {n} {u}, and {a} has {eq} {t}.",
)
"""Each step says again what it starts from: a small model finds a number more easily than it carries it."""

STEPS = {
    **dict.fromkeys(SYMBOLS, _OPENING_STEP),
    "gain": (
        "{a} had {n} {t} and now has {eq} {t}.",
        "{a} goes up from {n} {t} to {eq} {t}.",
        "{a} had {n} {t}, and this brings {a} to {eq} {t}.",
    ),
    "loss": (
        "{a} had {n} {t} and now has {eq} {t}.",
        "{a} had {n} {t} and has {eq} {t} left.",
        "{a} had {n} {t}, and this leaves {a} with {eq} {t}.",
    ),
    "total": (
        "{a} has {n} {t} and {b} has {m}, so together they have {eq} {t}.",
        "{a} has {n} {t} and {b} has {m}, and this makes {eq} {t} in all.",
        "with {n} {t} of {a} and {m} of {b} the total is {eq} {t}.",
    ),
    "difference": (
        "{a} has {n} {t} and {b} has {m}, so the difference is {eq} {t}.",
        "{a} has {n} {t} and {b} has {m}, and the gap is {eq} {t}.",
        "with {n} {t} of {a} and {m} of {b} the difference is {eq} {t}.",
    ),
}

FIRST_LEADS = ("", "", "first, ", "to begin, ")
NEXT_LEADS = ("", "", "so ", "then ", "next, ")
LAST_LEADS = ("", "so ", "finally, ", "then ")

ENDS = ("The answer is {n}.", "So the answer is {n}.", "That is {n}.", "The result is {n}.")


def fill(template: str, **words: object) -> str:
    return template.format(**words)


def capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
