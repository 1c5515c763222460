"""mini_code: the docstring says what the tests check, gold code passes them, and nothing less does."""

import ast
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.tiny.train.texts import code
from models.tiny.train.texts.operations import GERUNDS, INTEGER, NUMBERS, TEXT, WORDS
from tasks.mini import scores

seeds = st.integers(0, 2**32)

ORDERS = {gerund: verb for verb, gerund in GERUNDS.items()}

# What the English means, written without the generator's tables: (pattern, meaning of (value, constant)).
NUMBER_STEPS = [
    (r"^(keep|take) .*\beven\b|^(drop|remove) .*\bodd\b", lambda v, k: [x for x in v if x % 2 == 0]),
    (r"^(keep|take) .*\bodd\b|^(drop|remove) .*\beven\b", lambda v, k: [x for x in v if x % 2]),
    (r"^(keep|take) .*(greater than|above|over) \d", lambda v, k: [x for x in v if x > k]),
    (r"^(keep|take) .*(less than|below|under) \d", lambda v, k: [x for x in v if x < k]),
    (r"positive|above zero", lambda v, k: [x for x in v if x > 0]),
    (r"multiples of|that \d divides", lambda v, k: [x for x in v if not x % k]),
    (r"^(add|increase|raise) ", lambda v, k: [x + k for x in v]),
    (r"^(subtract|decrease|lower) ", lambda v, k: [x - k for x in v]),
    (r"^multiply .* by \d", lambda v, k: [x * k for x in v]),
    (r"^double |twice", lambda v, k: [x * 2 for x in v]),
    (r"^triple ", lambda v, k: [x * 3 for x in v]),
    (r"^square |by itself", lambda v, k: [x**2 for x in v]),
    (r"^negate |^flip the sign", lambda v, k: [-x for x in v]),
    (r"absolute|^drop the sign", lambda v, k: [abs(x) for x in v]),
    (r"^cap |at most", lambda v, k: [x if x < k else k for x in v]),
    (r"at least", lambda v, k: [x if x > k else k for x in v]),
    (r"^sort the list$|small to large|^order the", lambda v, k: sorted(v)),
    (r"large to small|largest \w+ first", lambda v, k: sorted(v)[::-1]),
]
WORD_STEPS = [
    (r"longer than|over \d letters", lambda v, k: [w for w in v if len(w) > k]),
    (r"shorter than|under \d letters", lambda v, k: [w for w in v if len(w) < k]),
    (r"words with '|words that have '", lambda v, k: [w for w in v if k in w]),
    (r"capitals|upper case", lambda v, k: [w.upper() for w in v]),
    (r"^reverse each|backwards", lambda v, k: ["".join(reversed(w)) for w in v]),
    (r"^cut each|letters of each", lambda v, k: [w[:k] for w in v]),
    (r"^(add|append) '", lambda v, k: [w + k for w in v]),
    (r"^sort the words|in order$", lambda v, k: sorted(v)),
]
LIST_STEPS = [
    (r"^reverse the list|reverse order|turn the list around", lambda v, k: v[::-1]),
    (r"^(take|keep only) the first \d \w+$", lambda v, k: v[:k]),
    (r"^(skip|drop) the first \d", lambda v, k: v[k:]),
    (r"the last \d", lambda v, k: v[max(0, len(v) - k) :]),
]
TEXT_STEPS = [
    (r"capitals|upper case", lambda v, k: v.upper()),
    (r"^reverse it|backwards|^turn it around", lambda v, k: v[::-1]),
    (r"^remove the spaces|^drop every space", lambda v, k: "".join(v.split(" "))),
    (r"(each|every) space (by|to) ", lambda v, k: k.join(v.split(" "))),
    (r"^(take|keep only) the first", lambda v, k: v[:k]),
    (r"^(skip|drop) the first", lambda v, k: v[k:]),
    (r"times$", lambda v, k: "".join([v] * k)),
    (r"at the end|^append", lambda v, k: v + k),
    (r"at the start|in front", lambda v, k: k + v),
]
INTEGER_STEPS = [
    (r"^add |^increase ", lambda v, k: v + k),
    (r"^subtract |^decrease |^lower ", lambda v, k: v - k),
    (r"^multiply it by \d", lambda v, k: v * k),
    (r"^double|twice", lambda v, k: v + v),
    (r"^square|by itself", lambda v, k: v**2),
    (r"^negate|^flip its sign", lambda v, k: -v),
    (r"absolute|^drop its sign", lambda v, k: abs(v)),
    (r"^cap|at most", lambda v, k: v if v < k else k),
    (r"at least", lambda v, k: v if v > k else k),
    (r"round down$", lambda v, k: (v - v % k) // k),
    (r"^take the rest", lambda v, k: v - k * (v // k)),
]
ENDS = [
    (r"^the sum|^the total$", lambda v, k: sum(v)),
    (r"^the (largest|biggest) |maximum", lambda v, k: sorted(v)[-1]),
    (r"^the (smallest|lowest) |minimum", lambda v, k: sorted(v)[0]),
    (r"^the count$|are left$|^the number of", lambda v, k: len(v)),
    (r"joined with", lambda v, k: k.join(v)),
    (r"^the (total )?length$|^how many (letters|characters) there are$", lambda v, k: len("".join(v))),
    (r"^the count of '|^how often", lambda v, k: sum(c == k for c in v)),
    (r"^the result$|^\w+$", lambda v, k: v),
]


def steps_for(value):
    if isinstance(value, list):
        return LIST_STEPS + (NUMBER_STEPS if isinstance(value[0], int) else WORD_STEPS)
    return TEXT_STEPS if isinstance(value, str) else INTEGER_STEPS


def follow(phrase: str, table, value):
    constant = re.search(r"'(.)'|(\d+)", phrase)
    k = (constant[1] or int(constant[2])) if constant else None
    meanings = [meaning for pattern, meaning in table if re.search(pattern, phrase)]
    assert len(meanings) == 1, f"{phrase!r} is understood in {len(meanings)} ways"
    return meanings[0](value, k)


def clauses(docstring: str) -> tuple[list[str], str]:
    """The docstring taken apart: the orders in sequence, and what is to be returned."""
    if found := re.fullmatch(r"(?:For \w+, return|Return) (.+?)(?: of \w+)? after (.+)\.", docstring):
        wanted, told = found[1], found[2]
        told = re.sub(r"\b(\w+ing)\b", lambda m: ORDERS.get(m[1], m[1]), told).replace("and rounding", "and round")
    elif found := re.fullmatch(r"Take \w+ and (.+)\. Return (.+?)\.", docstring):
        told, wanted = found[1].replace(". Then ", ", then "), found[2]
    else:
        found = re.fullmatch(r"\w+ \w+, (.+)(?:, then| and) return (.+)\.", docstring)
        told, wanted = found[1], found[2]
    told = told.replace("and round down", "then_round down")
    orders = [part.replace("then_round", "and round") for part in re.split(r", then | and then |, | and ", told)]
    return orders, wanted


def cases(example) -> list[tuple[object, object]]:
    """(argument, result) of each test."""
    compared = [ast.parse(test).body[0].test for test in example.reference["tests"]]
    return [(ast.literal_eval(c.left.args[0]), ast.literal_eval(c.comparators[0])) for c in compared]


def passes(program: str, example) -> bool:
    """In this process: the programs of this file are the generator's own, not a model's."""
    space: dict = {}
    try:
        exec(program, space)
        for test in example.reference["tests"]:
            exec(test, space)
    except Exception:
        return False
    return True


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(seeds)
def test_tests_check_what_the_docstring_says(seed):
    example = code.draw(random.Random(seed))
    docstring = re.search('"""(.*)"""', example.turns[0])[1]
    orders, wanted = clauses(docstring)
    for value, result in cases(example):
        table = steps_for(value)
        for order in orders:
            value = follow(order, table, value)
        assert follow(wanted, ENDS, value) == result, docstring


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(seeds)
def test_gold_passes_and_no_line_of_it_can_be_left_out(seed):
    example = code.draw(random.Random(seed))
    [answer] = example.answers
    assert passes(answer, example)
    head, *body = answer.split("\n")
    assert 2 <= len(body) <= 6
    for left_out in range(len(body)):
        rest = body[:left_out] + body[left_out + 1 :]
        assert not passes("\n".join([head, *rest]), example), body[left_out]


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_signature_and_tests_agree_and_the_draw_is_pure(seed):
    example = code.draw(random.Random(seed))
    assert example == code.draw(random.Random(seed))
    signature = example.turns[0].split("\n")[1]
    assert example.answers[0].split("\n")[0] == signature
    name = re.fullmatch(r"def (\w+)\(\w+\):", signature)[1]
    assert example.reference["entry_point"] == name
    assert len(example.reference["tests"]) == code.TESTS
    assert all(test.startswith(f"assert {name}(") for test in example.reference["tests"])


def test_wrong_constants_are_found_out():
    rng = random.Random(3)
    found, changed = 0, 0
    while changed < 300:
        example = code.draw(rng)
        wrong = re.sub(r"(?<=[<>*+/%-] )(\d+)$", lambda m: str(int(m[1]) + 1), example.answers[0], flags=re.M)
        if wrong == example.answers[0]:
            continue
        changed += 1
        found += not passes(wrong, example)
    assert found / changed > 0.95


def test_the_same_function_is_written_in_several_ways():
    """Wording is free where the task leaves it open: loops and comprehensions, several names."""
    answers = [code.draw(random.Random(seed)).answers[0] for seed in range(600)]
    assert 0.1 < sum("append" in answer for answer in answers) / len(answers) < 0.5
    assert len({re.search(r"^    (\w+) = ", answer, re.M)[1] for answer in answers if " = " in answer}) >= 4


@pytest.mark.parametrize("family", [NUMBERS, WORDS, TEXT, INTEGER])
def test_each_phrase_starts_with_a_verb_that_has_a_gerund(family):
    verbs = {phrase.split()[0] for operation in family.steps for phrase in operation.phrases}
    assert verbs <= set(GERUNDS)


class TestScore:
    def test_gold_scores_one(self):
        for seed in range(6):
            example = code.draw(random.Random(seed))
            score = scores.code(example.reference, example.answers)
            assert (score.value, score.answer) == (1.0, "passed")

    @pytest.mark.parametrize(
        ("spoil", "error"),
        [
            (lambda answer: "", "NameError"),
            (lambda answer: answer.split("\n")[0], "IndentationError"),
            (lambda answer: answer.replace("return", "retrun"), "Error"),
            (lambda answer: answer.split("\n")[0] + "\n    return None", "AssertionError"),
            (lambda answer: answer + "\nraise SystemExit(0)", "SystemExit"),
            (lambda answer: answer + "\nimport os\nos._exit(0)", "left before its last line"),
        ],
    )
    def test_spoiled_gold_scores_zero(self, spoil, error):
        example = code.draw(random.Random(11))
        score = scores.code(example.reference, [spoil(example.answers[0])])
        assert score.value == 0.0
        assert error in score.answer and "\n" not in score.answer
