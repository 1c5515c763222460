"""From the timed cycles of a machine to the prices of a profile: medians over cycles of equal size; what is linear is
fitted by least squares of relative errors, no cost below 0."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression, nnls

from results.metrics.cost import DRAWN, LOSSLESS, Costs, Drafting, Linear


@dataclass(frozen=True, slots=True)
class Size:
    """What the seconds of a cycle's phases depend on.

    drafter   as the profile names it (`results.metrics.cost.DRAWN`).
    nodes     draft tokens that are verified.
    forwards  tokens of each forward of the drafter's model.
    carried   whether the draft carries its distribution, its hidden states, and the distribution behind its last token.
    """

    drafter: str
    rule: str
    nodes: int
    forwards: tuple[int, ...]
    carried: tuple[bool, bool, bool]


Spent = Mapping[str, float]
"""Phase of a cycle -> seconds."""


@dataclass(frozen=True, slots=True)
class Times:
    """What was timed at one temperature and batch, in seconds.

    cycles    size of a cycle -> median of each of its phases.
    prefills  drafter -> prompt tokens and median, of each prompt: of reading it with the target for "none", and for the
              others of what the drafter adds.
    """

    cycles: Mapping[Size, Spent]
    prefills: Mapping[str, Sequence[tuple[int, float]]]

    @property
    def lossless(self) -> list[tuple[Size, Spent]]:
        """The cycles of the lossless rule: a rule may ask drafts for more, or for less."""
        return [(size, spent) for size, spent in self.cycles.items() if size.rule == LOSSLESS]


def verification(times: Sequence[tuple[Size, Spent]]) -> dict[int, float]:
    """Tokens of a forward -> seconds, from the cycles of several methods."""
    of_tokens: dict[int, list[float]] = defaultdict(list)
    for size, spent in times:
        of_tokens[size.nodes + 1].append(spent["verify"])
    return rising({tokens: statistics.median(values) for tokens, values in of_tokens.items()})


def rising(seconds: Mapping[int, float]) -> dict[int, float]:
    """The nearest times that do not fall with the tokens: what falls is noise."""
    tokens = sorted(seconds)
    return dict(zip(tokens, map(float, isotonic_regression([seconds[each] for each in tokens]).x), strict=True))


def costs_of(times: Mapping[int, Times]) -> Costs:
    """What depends on the method, from what was timed at each batch."""
    drafts: dict[str, dict[int, Drafting]] = defaultdict(dict)
    for batch, own in times.items():
        names = {size.drafter for size, _ in own.lossless}
        for name in sorted(names - {"none"}):
            timed = [(size.forwards, spent["draft"]) for size, spent in own.lossless if size.drafter == name]
            reading = times[1].prefills.get(name)
            plain = name.removesuffix(DRAWN)
            drafts[name if plain in names else plain][batch] = drafting(timed).model_copy(
                update={"prefill": linear(reading) if reading else Linear(cycle=0.0)})
    rules = sorted({size.rule for size in times[1].cycles})
    return Costs(drafts=dict(drafts), accept={rule: acceptance(rule, times[1]) for rule in rules})


def drafting(timed: Sequence[tuple[tuple[int, ...], float]]) -> Drafting:
    """From the forwards of drafts and their seconds. A number of tokens has a price of its own where there are more
    shapes of drafts than such numbers; else only the least and the largest."""
    tokens = sorted({token for forwards, _ in timed for token in forwards})
    shapes = {forwards for forwards, _ in timed}
    knots = tokens if len(tokens) < len(shapes) else sorted({*tokens[:1], *tokens[-1:]})
    steps = np.triu(np.ones((len(knots), len(knots))))  # each price is that of the knot before, and no less
    rows = [(1.0, *(float(np.interp(forwards, knots, step).sum()) for step in steps)) for forwards, _ in timed]
    cycle, *rises = least_squares(rows, [seconds for _, seconds in timed])
    return Drafting(cycle=cycle, forwards=dict(zip(knots, np.cumsum(rises).tolist(), strict=True)))


def acceptance(rule: str, times: Times) -> Linear:
    """What a rule's cycles cost beside drafting and verification under the lossless rule: accepting, and what drafts
    cost more, or less, that carry something else. The drafts of all rules that ask for the same are compared."""
    drafts: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for size, spent in times.cycles.items():
        drafts[size.drafter, size.forwards, size.carried].append(spent["draft"])
    usual = {(size.drafter, size.forwards): size.carried for size, _ in times.lossless}
    points = []
    for size, spent in times.cycles.items():
        if size.rule == rule:
            draft = size.drafter, size.forwards
            own, plain = (statistics.median(drafts[*draft, carried])
                          for carried in (size.carried, usual.get(draft, size.carried)))
            points.append((size.nodes, max(0.0, spent["accept"] + own - plain)))
    return linear(points)


def linear(points: Sequence[tuple[int, float]]) -> Linear:
    """Seconds of a cycle and of a node, from (nodes, seconds)."""
    cycle, node = least_squares([(1.0, float(nodes)) for nodes, _ in points], [seconds for _, seconds in points])
    return Linear(cycle=cycle, node=node)


def least_squares(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Coefficients, none below 0, of the smallest squared error in relation to the seconds, each of which
    counts as at least a tenth of their median."""
    weight = 1 / np.maximum(np.array(seconds), max(0.1 * float(np.median(seconds)), 1e-9))
    return [float(value) for value in nnls(np.array(rows) * weight[:, None], np.array(seconds) * weight)[0]]
