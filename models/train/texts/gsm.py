"""mini_gsm: word problems of two to four easy steps; the difficulty is finding the right operands.

Several people own one or two kinds of things. Some amounts are given, others depend on them ("three times as many as"),
in any order; then things change hands. Not every fact matters for the question. An answer covers all facts: it orders
them so that each can be computed, quotes each one, computes it, and concludes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from models.train.texts import gsm_phrases as phrases
from models.train.texts.example import Example
from models.train.texts.phrase import either, plain
from models.train.texts.words import NAMES, NUMBERS, PLURALS

STEPS = {2: 0.4, 3: 0.4, 4: 0.2}
"""Number of equations of an answer -> how often."""

LARGEST = 60
LARGEST_TOTAL = 99
LARGEST_STEP = 9
QUESTION_WORDS = range(20, 76)
ANSWER_WORDS = range(20, 111)
SHUFFLED = 0.35
"""Share of the problems that state the first amounts in random order instead of one in which they can be computed."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How many of a thing somebody has at some moment, the phrase that tells it, and the one step that leads there
    from an earlier amount. `told` is empty where it has already been told with the amount before (a gift)."""

    owner: str
    thing: str
    value: int
    told: str
    change: str = "given"
    source: int | None = None
    equation: str = ""


@dataclass(slots=True)
class Story:
    """The facts told so far: `opening` holds at the start, in any order; `events` follow one after the other."""

    rng: Random
    amounts: list[Amount] = field(default_factory=list)
    latest: dict[tuple[str, str], int] = field(default_factory=dict)
    opening: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def record(self, amount: Amount) -> None:
        self.latest[amount.owner, amount.thing] = len(self.amounts)
        self.amounts.append(amount)

    def tell(self, choices: Sequence[str], **words: object) -> str:
        return phrases.fill(self.rng.choice(choices), **words)

    def write(self, choices: Sequence[str], **words: object) -> str:
        """Any of the sentences, for an answer; `tell` fixes which one, for a question."""
        return phrases.fill(either(self.rng.choice(choices), choices), **words)

    def equations(self) -> int:
        return sum(amount.source is not None for amount in self.amounts)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question about the end of the story: one amount, or the total or the difference of two."""

    kind: str
    parts: tuple[int, ...]


def draw(rng: Random) -> Example:
    """One problem with its worked answer; `reference` is {"answer": the number as a string}."""
    steps = rng.choices(list(STEPS), weights=list(STEPS.values()))[0]
    while True:
        story = _invent(rng)
        asks = [ask for ask in _possible_asks(story) if story.equations() + (ask.kind != "one") == steps]
        if not asks:
            continue
        kind = rng.choice(sorted({ask.kind for ask in asks}))
        ask = rng.choice([ask for ask in asks if ask.kind == kind])
        question = _question(story, ask)
        phrase, result = _answer(story, ask)
        answer = plain(phrase)
        if len(question.split()) in QUESTION_WORDS and len(answer.split()) in ANSWER_WORDS:
            return Example("", (question,), (answer,), {"answer": str(result)}, (phrase,))


def _invent(rng: Random) -> Story:
    story = Story(rng)
    people = rng.sample(NAMES, 3)
    things = rng.sample(list(PLURALS.values()), rng.choice((1, 1, 1, 2)))
    cells = [(person, things[0]) for person in people]
    if len(things) == 2:
        cells += [(person, things[1]) for person in rng.sample(people, 1)]
    for owner, thing in cells:
        _open(story, owner, thing)
    if rng.choice((0, 0, 0, 1, 1)):
        _happen(story, things[0])
    return story


def _open(story: Story, owner: str, thing: str) -> None:
    """Tell a first amount of (owner, thing): given, or related to an amount told before."""
    rng = story.rng
    sources = [i for i, a in enumerate(story.amounts) if a.thing == thing or a.owner == owner]
    if not sources or rng.random() < 0.2:
        value = rng.randint(4, 20)
        told = story.tell(phrases.GIVEN, a=owner, n=value, t=thing)
        story.opening.append(plain(told))
        story.record(Amount(owner, thing, value, told))
        return
    source = sources[-1] if rng.random() < 0.6 else rng.choice(sources)
    base = story.amounts[source]
    change, number, value = _relation(rng, base.value)
    symbol = phrases.SYMBOLS[change]
    times = rng.choice((str(number), NUMBERS[number])) if change == "times" else ""
    choices = phrases.RELATIONS[change] if base.thing == thing else phrases.CROSS_RELATIONS[change]
    told = story.tell(choices, a=owner, b=base.owner, t=thing, u=base.thing, k=number, times=times)
    story.opening.append(plain(told))
    story.record(Amount(owner, thing, value, told, change, source, _equation(base.value, symbol, number, value)))


def _equation(left: int, symbol: str, right: int, result: int) -> str:
    """Sums and products have two wordings."""
    swapped = f"|{right} {symbol} {left}" if symbol in "+*" and left != right else ""
    return f"{f'[{left} {symbol} {right}{swapped}]' if swapped else f'{left} {symbol} {right}'} = {result}"


def _relation(rng: Random, base: int) -> tuple[str, int, int]:
    """(kind of relation, its number, the new value) that stays small, whole and positive."""
    possible = []
    if base <= LARGEST - LARGEST_STEP:
        possible += [("more", k, base + k) for k in (rng.randint(2, LARGEST_STEP), rng.randint(2, LARGEST_STEP))]
    if base >= 5:
        k = rng.randint(2, min(LARGEST_STEP, base - 2))
        possible.append(("fewer", k, base - k))
    possible += [("twice", 2, base * 2)] if base * 2 <= LARGEST else []
    possible += [("times", k, base * k) for k in (3, 4) if base * k <= LARGEST]
    possible += [("half", 2, base // 2)] * 2 if base % 2 == 0 and base >= 6 else []
    return rng.choice(possible)


def _happen(story: Story, thing: str) -> None:
    """One event: somebody gains, loses, or hands some of `thing` to somebody else."""
    rng = story.rng
    owners = [owner for owner, owned in story.latest if owned == thing]
    actor, other = rng.sample(owners, 2)
    kind = rng.choice(("gain", "loss", "gift", "gift"))
    before = story.amounts[story.latest[actor, thing]].value
    after = story.amounts[story.latest[other, thing]].value
    most = LARGEST_STEP if kind == "gain" else min(LARGEST_STEP, before - 2)
    if most < 2 or (kind == "gain" and before + most > LARGEST) or (kind == "gift" and after + most > LARGEST):
        return
    k = rng.randint(2, most)
    when = rng.choice(phrases.THEN)
    sentence = story.tell(phrases.EVENTS[kind], a=actor, b=other, k=k, t=thing)
    story.events.append(f"{when} {plain(sentence)}")
    _shift(story, actor, thing, k if kind == "gain" else -k, sentence)
    if kind == "gift":
        _shift(story, other, thing, k, "")


def _shift(story: Story, owner: str, thing: str, by: int, told: str) -> None:
    source = story.latest[owner, thing]
    before = story.amounts[source].value
    symbol, change = ("+", "gain") if by > 0 else ("-", "loss")
    equation = _equation(before, symbol, abs(by), before + by)
    story.record(Amount(owner, thing, before + by, told, change, source, equation))


def _possible_asks(story: Story) -> list[Ask]:
    final = list(story.latest.values())
    asks = [Ask("one", (i,)) for i in final]
    for i in final:
        for j in final:
            first, second = story.amounts[i], story.amounts[j]
            if i == j or first.thing != second.thing:
                continue
            if first.value + second.value <= LARGEST_TOTAL:
                asks.append(Ask("total", (i, j)))
            if first.value > second.value + 1:
                asks.append(Ask("difference", (i, j)))
    return asks


def _question(story: Story, ask: Ask) -> str:
    rng = story.rng
    opening = list(story.opening)
    if rng.random() < SHUFFLED:
        rng.shuffle(opening)
    if rng.random() < 0.25:
        opening.insert(0, rng.choice(phrases.FRAMES))
    first, last = story.amounts[ask.parts[0]], story.amounts[ask.parts[-1]]
    now = rng.choice(phrases.NOW) if story.events else ""
    asked = story.tell(phrases.QUESTIONS[ask.kind], a=first.owner, b=last.owner, t=first.thing, now=now)
    return " ".join([*opening, *story.events, asked])


def _working(story: Story, amount: Amount) -> str:
    """The fact nearly in the question's words and, where it depends on another amount, its computation."""
    told = phrases.START + amount.told if amount.told else ""
    if amount.source is None:
        return told
    source = story.amounts[amount.source]
    names = {"a": amount.owner, "b": source.owner, "t": amount.thing, "u": source.thing, "n": source.value}
    body = story.write(phrases.STEPS[amount.change], **names, eq=amount.equation)
    return f"{told} {body}".strip()


def _answer(story: Story, ask: Ask) -> tuple[str, int]:
    """(phrase of the worked answer, its number)."""
    rng = story.rng
    first, last = story.amounts[ask.parts[0]], story.amounts[ask.parts[-1]]
    lines = [_working(story, amount) for amount in story.amounts]
    result = first.value
    if ask.kind == "one":
        lines.append(story.write(phrases.CONCLUSIONS, a=first.owner, t=first.thing, n=result))
    else:
        symbol, result = ("+", first.value + last.value) if ask.kind == "total" else ("-", first.value - last.value)
        equation = _equation(first.value, symbol, last.value, result)
        names = {"a": first.owner, "b": last.owner, "t": first.thing, "n": first.value, "m": last.value}
        lines.append(story.write(phrases.STEPS[ask.kind], **names, eq=equation))
    if rng.random() < 0.3:
        lines.append(story.write(phrases.ENDS, n=result))
    return f"{' '.join(lines)}\n#### {result}", result
