"""mini_code: complete a small Python function from its signature and docstring; unit tests decide.

A function composes two or three elementary operations (`operations.py`). Its behaviour is fixed, its wording is not: a
loop or a comprehension, one name or another. The answer is the whole function as plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from models.train.texts.example import Example
from models.train.texts.operations import (
    GERUNDS,
    INTEGER,
    NUMBERS,
    TEXT,
    WORDS,
    Family,
    Operation,
)
from models.train.texts.phrase import either, plain

TESTS = 5
_ATTEMPTS = 12

_FAMILIES = (NUMBERS, WORDS, TEXT, INTEGER)
_FAMILY_WEIGHTS = (55, 18, 14, 13)
_NAMES = ("solve", "compute", "process", "convert", "handle", "work", "run", "build", "make", "get")
_KEPT = ("out", "result", "res", "kept")
_TEST_WORDS = ("tree", "rose", "a", "stone", "boat", "art", "tea", "road", "planet", "so", "garden", "east", "letter")
_REQUESTS = (
    "Complete the function.",
    "Complete this function.",
    "Finish the function.",
    "Write this function.",
    "Fill in the function.",
    "Write the Python code for this function.",
)

_ORDER_FREE = {"sum", "max", "min", "count", "length"}
"""Last operations for which the order of the list does not matter."""


class Step(NamedTuple):
    """An operation with its constant."""

    operation: Operation
    constant: Any


class Names(NamedTuple):
    """The names used in one function: of itself, its argument, the running result, a list item."""

    function: str
    argument: str
    result: str
    item: str


def draw(rng: Random) -> Example:
    """One function to write, with its unit tests. Pure in `rng`."""
    while True:
        family = rng.choices(_FAMILIES, _FAMILY_WEIGHTS)[0]
        steps = _chain(family, rng)
        cases = _cases(family, steps, rng)
        if cases is not None:
            break
    argument = rng.choice(family.arguments)
    names = Names(rng.choice(_NAMES), argument, rng.choice(_KEPT), rng.choice(family.items) if family.items else "")
    free = names._replace(result="@result", item="@item")  # filled in below: every choice of names is as good
    prompt = (
        f"{rng.choice(_REQUESTS)}\ndef {names.function}({argument}):\n"
        f'    """{_describe(family, steps, argument, rng)}"""'
    )
    tests = [f"assert {names.function}({value!r}) == {result!r}" for value, result in cases]
    body = _write(steps, free, rng)
    bodies = [
        body.replace("@result", result).replace("@item", item) for result in _KEPT for item in family.items or ("",)
    ]
    chosen = body.replace("@result", names.result).replace("@item", names.item)
    phrase = either(chosen, list(dict.fromkeys(bodies)))
    return Example("", (prompt,), (plain(phrase),), {"entry_point": names.function, "tests": tests}, (phrase,))


# -- what to compute -------------------------------------------------------------------------------------------------


def _chain(family: Family, rng: Random) -> list[Step]:
    """Two or three operations that may follow one another."""
    end = rng.choice(family.ends) if family.ends and rng.random() < 0.65 else None
    length = 1 + (rng.random() < 0.6) if end else 2 + (rng.random() < 0.35)
    operations: list[Operation] = []
    taken: set[str] = {end.group} if end else set()
    if end and end.group in _ORDER_FREE:
        taken.add("order")
    while len(operations) < length:
        operation = rng.choice(family.steps)
        if operation.group not in taken:
            taken.add(operation.group)
            operations.append(operation)
    if end:
        operations.append(end)
    return [Step(operation, rng.choice(operation.constants)) for operation in operations]


def _evaluate(steps: Sequence[Step], value: Any) -> Any:
    """What the function returns for `value`; None where a list runs empty on the way (such inputs are poor tests)."""
    for operation, constant in steps:
        compute = operation.compute
        if operation.kind == "filter":
            value = [item for item in value if compute(item, constant)]
        elif operation.kind == "map":
            value = [compute(item, constant) for item in value]
        else:
            value = compute(value, constant)
        if value == [] or value == "":
            return None
    return value


def _cases(family: Family, steps: list[Step], rng: Random) -> list[tuple[Any, Any]] | None:
    """(argument, result) of each test; leaving out any one operation fails at least one. None if none were found."""
    cases: list[tuple[Any, Any]] = []
    for _ in range(_ATTEMPTS):
        value = _argument(family, rng)
        if (result := _evaluate(steps, value)) is not None:
            cases.append((value, result))
        if len(cases) == TESTS:
            break
    else:
        return None
    for left_out in range(len(steps)):
        shorter = steps[:left_out] + steps[left_out + 1 :]
        if all(_evaluate(shorter, value) == expected for value, expected in cases):
            return None
    return cases


def _argument(family: Family, rng: Random) -> Any:
    if family is NUMBERS:
        return rng.choices(range(-9, 21), k=rng.choice((6, 7, 8)))
    if family is WORDS:
        return rng.choices(_TEST_WORDS, k=rng.choice((5, 6, 7)))
    if family is TEXT:
        return " ".join(rng.choices(_TEST_WORDS, k=3))
    return rng.choice(range(-20, 40))


# -- docstrings ------------------------------------------------------------------------------------------------------


def _describe(family: Family, steps: list[Step], argument: str, rng: Random) -> str:
    """The docstring: the same composition in one of several orders and wordings."""
    single, many = rng.choice(family.nouns)

    def said(step: Step) -> str:
        return rng.choice(step.operation.phrases).format(k=step.constant, one=single, many=many)

    last = steps[-1]
    orders = [said(step) for step in steps if step.operation.kind != "reduce"]
    wanted = said(last) if last.operation.kind == "reduce" else rng.choice(("the result", argument))
    if rng.random() < 0.4:
        circumstances = rng.choice((" and then ", ", then ", " and ")).join(_gerund(order) for order in orders)
        if last.operation.kind != "reduce":
            return f"Return {argument} after {circumstances}."
        if wanted.startswith("how ") or rng.random() < 0.5:
            return f"For {argument}, return {wanted} after {circumstances}."
        return f"Return {wanted} of {argument} after {circumstances}."
    if rng.random() < 0.3:
        first, *rest = orders
        sentences = [f"Take {argument} and {first}."] + [f"Then {order}." for order in rest]
        return " ".join([*sentences, f"Return {wanted}."])
    opening = rng.choice(("Given", "From", "For", "With"))
    joined = rng.choice((", ", ", then ", " and ")).join(orders)
    return f"{opening} {argument}, {joined}{rng.choice((', then', ' and'))} return {wanted}."


def _gerund(order: str) -> str:
    """"drop the odd values" -> "dropping the odd values"."""
    verb, _, rest = order.partition(" ")
    return f"{GERUNDS[verb]} {rest}".replace(" and round ", " and rounding ").rstrip()


# -- code ------------------------------------------------------------------------------------------------------------


def _write(steps: list[Step], names: Names, rng: Random) -> str:
    """The phrase of the function: its head, then 2 to 6 lines of body."""
    last = steps[-1]
    looped = rng.random() < 0.35 and steps[0].operation.kind in ("filter", "map")
    body: list[str] = []
    value = names.argument
    rest = steps
    if looped:
        run = 2 if steps[1].operation.kind in ("filter", "map") else 1
        body, rest, value = _loop(steps[:run], names, rng), steps[run:], names.result
    direct = looped or last.operation.kind == "reduce" or rng.random() < 0.5
    for step in rest[:-1] if direct else rest:
        body.append(f"{names.result} = {_expression(step, value, names, rng)}")
        value = names.result
    body.append(f"return {_expression(rest[-1], value, names, rng) if direct and rest else value}")
    return f"def {names.function}({names.argument}):\n" + "\n".join(f"    {line}" for line in body)


def _loop(run: Sequence[Step], names: Names, rng: Random) -> list[str]:
    """One loop over the argument that does all steps of `run`, item by item."""
    lines = [f"{names.result} = []", f"for {names.item} in {names.argument}:"]
    indent, item = "    ", names.item
    for place, step in enumerate(run):
        code = _code(step, item, names, rng)
        if step.operation.kind == "filter":
            lines.append(f"{indent}if {code}:")
            indent += "    "
        elif place == len(run) - 1:
            item = code
        else:
            lines.append(f"{indent}{names.item} = {code}")
    return [*lines, f"{indent}{names.result}.append({item})"]


def _expression(step: Step, value: str, names: Names, rng: Random) -> str:
    """The Python expression that applies one step to the whole `value`."""
    if step.operation.kind == "filter":
        return f"[{names.item} for {names.item} in {value} if {_code(step, names.item, names, rng)}]"
    if step.operation.kind == "map":
        return f"[{_code(step, names.item, names, rng)} for {names.item} in {value}]"
    return _code(step, value, names, rng)


def _code(step: Step, value: str, names: Names, rng: Random) -> str:
    return rng.choice(step.operation.code).format(v=value, k=step.constant, item=names.item)
