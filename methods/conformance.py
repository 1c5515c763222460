"""Does recorded verification follow a rule? Chi-square tests of an engine's own tokens and probabilities.

A cycle drafted x_1 ... x_K and emitted a prefix of them and one token more. Position i was tested if x_1 ... x_(i-1)
were kept; there the rule states an acceptance probability a and a distribution after a rejection. The parts:

  drafted    x_i of tested positions against q
  accepted   how often x_i was kept against a, in cells of a and of the place of x_i in the cumulative q
  corrected  the token after a rejection against the rule's distribution
  bonus      the token after a wholly kept draft against p
  emitted    the first emitted token of a cycle against p: what losslessness promises, whatever the rule
  u          recorded numbers: decide as the rule says, are uniform, and are independent of x

Every position has its own distribution, so counts of cells are compared with the sums of their probabilities, with the
covariance of a sum of multinomials: d' C^+ d is chi-square with rank(C) degrees of freedom. Cells of a token are its
rank under the expected distribution and whether the other model gives it more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from scipy import linalg, stats
from torch import Tensor

from methods.rules.base import Rule
from methods.rules.verification import Verification
from methods.sampling import Sampling
from methods.trees.draft import Draft

Array = npt.NDArray[np.float64]
Distribution = dict[int, float]
"""Token -> probability; absent tokens have none."""

PLAIN = Sampling(1.0)
FEWEST = 30
"""Observations below which a part is not judged."""
SMALLEST = 5.0
"""Cells that expect fewer are pooled."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One verified draft.

    p        K+1 processed target distributions, in the contexts of x_1 ... x_K and of the bonus.
    q        K processed draft distributions; None for deterministic candidates.
    drafted  x_1 ... x_K.
    emitted  the kept prefix of them and one token more.
    u        the number of each test, or None.
    drawn    the draft was drawn anew for this cycle, not given.
    mass     K+1 numbers: raw logits are log p + mass. None where they were not recorded.
    """

    p: Sequence[Distribution]
    q: Sequence[Distribution] | None
    drafted: Sequence[int]
    emitted: Sequence[int]
    u: Sequence[float] | None = None
    drawn: bool = True
    mass: Sequence[float] | None = None

    def check(self) -> None:
        """Raise ValueError, one line, for a cycle that cannot have happened."""
        kept, length = len(self.emitted) - 1, len(self.drafted)
        if len(self.p) != length + 1 or (self.q is not None and len(self.q) != length):
            raise ValueError(f"{length} drafted tokens need {length + 1} rows of p and {length} of q, not "
                             f"{len(self.p)} and {'none' if self.q is None else len(self.q)}")
        if not 0 <= kept <= length or list(self.emitted[:kept]) != list(self.drafted[:kept]):
            raise ValueError(f"emitted {list(self.emitted)} is no prefix of the drafted {list(self.drafted)} and one "
                             "token more; leave out cycles that the end of an answer cut")
        if self.u is not None and len(self.u) < min(kept + 1, length):
            raise ValueError(f"{len(self.u)} numbers u for {min(kept + 1, length)} tests")
        if self.mass is not None and len(self.mass) != length + 1:
            raise ValueError(f"{len(self.mass)} numbers log_mass for {length + 1} rows of p")
        for row in (*self.p, *(self.q or ())):
            if abs(sum(row.values()) - 1.0) > 0.01 or min(row.values()) < 0.0:
                raise ValueError(f"a row of p or q sums to {sum(row.values()):.3f}: give probabilities")


@dataclass(frozen=True, slots=True)
class Check:
    """One part's test: `p_value` is None where fewer than FEWEST observations were recorded."""

    part: str
    n: int
    p_value: float | None


@dataclass(frozen=True, slots=True)
class _Place:
    """A context with an outcome: p and the other distribution, the drafted token and what came out."""

    p: Distribution
    q: Distribution | None
    drafted: int
    token: int
    kept: bool
    u: float | None
    first: bool
    drawn: bool
    mass: float | None


def acceptance(rule: Rule, v: Verification) -> Tensor:
    """[B, N] float64 probability that a node is kept when it is tested: the largest u that accepts it, by bisection.

    Sound because every local test is monotone: a smaller u never rejects what a larger one accepts."""
    low, high = torch.zeros_like(v.u), torch.ones_like(v.u)
    for _ in range(24):
        middle = (low + high) / 2
        other = copy.copy(v)  # what was computed of the draft stays
        other.u = middle
        accept = rule.decide(other).accept & v.draft.valid
        low, high = torch.where(accept, middle, low), torch.where(accept, high, middle)
    return torch.where(high == 1.0, low.round(decimals=6), high).double()


def examine(rule: Rule, cycles: Iterable[Cycle], tolerance: float = 1e-3) -> list[Check]:
    """Every part's test. `tolerance` is the share of outcomes that rounding may turn.

    Raises ValueError, one line, for a rule that does not decide token by token, or a cycle that cannot have happened.
    """
    if not rule.is_memoryless() or rule.needs_hidden or rule.needs_draft_hidden:
        raise ValueError(f"rule={rule.name} does not decide each token from the probabilities of its context: take "
                         "rule=lossless and read the part `emitted` alone")
    tested, bonus = _places(cycles)
    sampled = [place for place in tested if place.q is not None]
    if sampled and len(sampled) < len(tested):
        raise ValueError("some cycles have q and some have none: examine them apart")
    if rule.sampled_only and not sampled:
        raise ValueError(f"rule={rule.name} is defined for tokens drawn from q, and the cycles have none; record q "
                         "in every cycle, or take rule=lossless")
    _check_mass(rule, tested)
    accept, after = _outcomes(rule, tested)
    drafts = [(place.q or {}, place.p, place.drafted) for place in sampled if place.drawn]
    checks = [_tokens("drafted", drafts, tolerance),
              _accepted(tested, accept, tolerance),
              _tokens("corrected", [(row, place.q or {}, place.token) for place, row in zip(tested, after, strict=True)
                                    if not place.kept], tolerance)]
    if not rule.bonus_needs_q(PLAIN):
        kept = [replace(place, q=place.p if sampled else None, drafted=max(place.p, key=place.p.__getitem__))
                for place in bonus]  # behind any token that was kept
        checks.append(_tokens("bonus", [(row, {}, place.token) for place, row in zip(
            kept, _outcomes(rule, kept, last=1)[1], strict=True)], tolerance))
    checks.append(_emitted([*tested, *bonus], tolerance))
    numbered = [(place, a) for place, a in zip(tested, accept, strict=True) if place.u is not None]
    return checks + (_numbers(numbered, tolerance) if numbered else [])


def _emitted(places: Sequence[_Place], tolerance: float) -> Check:
    """The first token of each cycle with a draft of its own (or a deterministic one) against p."""
    first = [(place.p, place.q or {}, place.token) for place in places
             if place.first and (place.drawn or place.q is None)]
    return _tokens("emitted", first, tolerance)


def _places(cycles: Iterable[Cycle]) -> tuple[list[_Place], list[_Place]]:
    """The tested positions, and the contexts of a bonus."""
    tested, bonus = [], []
    for cycle in cycles:
        cycle.check()
        kept, length = len(cycle.emitted) - 1, len(cycle.drafted)
        for i in range(min(kept + 1, length)):
            tested.append(_Place(cycle.p[i], cycle.q[i] if cycle.q else None, cycle.drafted[i], cycle.emitted[i],
                                 i < kept, cycle.u[i] if cycle.u else None, i == 0, cycle.drawn,
                                 cycle.mass[i] if cycle.mass else None))
        if kept == length:
            bonus.append(_Place(cycle.p[-1], None, -1, cycle.emitted[-1], False, None, length == 0, cycle.drawn,
                                cycle.mass[-1] if cycle.mass else None))
    return tested, bonus


def _check_mass(rule: Rule, tested: Sequence[_Place]) -> None:
    """Raises ValueError where the rule reads more of the logits than their differences, and they were not recorded."""
    some = [place for place in tested if place.mass is None][:256]
    if not some:
        return
    low, high = (_batch(rule, [replace(place, mass=mass) for place in some], 0)[0] for mass in (0.0, 20.0))
    if (abs(low - high) > 0.1).mean() > 0.01:
        raise ValueError(f"rule={rule.name} reads the size of raw logits, not their differences alone: record log_mass "
                         "in every cycle")


def _outcomes(rule: Rule, places: Sequence[_Place], last: int = 0,
              rows: int = 1024) -> tuple[Array, list[Distribution]]:
    """[M] the rule's acceptance probability of each drafted token, and its distributions after a rejection (`last` = 0)
    or behind the kept token (1), whose context is taken to be the place's own too."""
    accepts, after = [], []
    for start in range(0, len(places), rows):
        batch = places[start:start + rows]
        a, emit, tokens = _batch(rule, batch, last)
        accepts.append(a)
        after += [dict(zip(ids, row[:len(ids)].tolist(), strict=True)) for ids, row in zip(tokens, emit, strict=True)]
    return np.concatenate(accepts) if accepts else np.zeros(0), after


def _batch(rule: Rule, places: Sequence[_Place], last: int) -> tuple[Array, Array, list[list[int]]]:
    """Over the tokens that either model allows in each context, padded to one width."""
    tokens = [sorted({*place.p, *(place.q or ()), place.drafted}) for place in places]
    width = max(2, *map(len, tokens))
    p, q = (torch.zeros(len(places), width) for _ in range(2))
    for row, (place, ids) in enumerate(zip(places, tokens, strict=True)):
        p[row, :len(ids)] = torch.tensor([place.p.get(token, 0.0) for token in ids])
        q[row, :len(ids)] = torch.tensor([(place.q or {}).get(token, 0.0) for token in ids])
    sampled = places[0].q is not None
    own = torch.tensor([[0, ids.index(place.drafted)] for place, ids in zip(places, tokens, strict=True)])
    own_q = torch.stack([torch.ones(len(places)), q.gather(1, own[:, 1:])[:, 0]], 1)
    mass = torch.tensor([place.mass or 0.0 for place in places])[:, None]
    logits, draft_logits = (x[:, None].expand(-1, 2, -1) for x in (p.log() + mass, q.log()))
    draft = Draft.of_chain(own, sampled=sampled, logits=draft_logits if sampled else None, q=own_q if sampled else None)
    v = Verification(draft, logits, PLAIN, torch.zeros(own.shape))
    emit = rule.emit(v, torch.full((len(places),), last)).double()
    return acceptance(rule, v)[:, 1].numpy(), (emit / emit.sum(-1, keepdim=True)).numpy(), tokens


# --- the tests

Expected = tuple[Distribution, Distribution, int]
"""A distribution, the other model's, and the token that came out."""


def _tokens(part: str, places: Sequence[Expected], tolerance: float) -> Check:
    if len(places) < FEWEST:
        return Check(part, len(places), None)
    expected, seen, impossible = np.zeros((len(places), 8)), np.zeros(8), 0
    for row, (distribution, other, token) in enumerate(places):
        ranked = sorted(distribution, key=distribution.__getitem__, reverse=True)
        cells = {t: 2 * min(rank, 3) + (other.get(t, 0.0) > distribution[t]) for rank, t in enumerate(ranked)}
        total = sum(distribution.values())
        for t, cell in cells.items():
            expected[row, cell] += distribution[t] / total
        if distribution.get(token, 0.0) > 0.0:
            seen[cells[token]] += 1
        else:
            impossible += 1
            seen += expected[row]
    outside = float(stats.binom.sf(impossible - 1, len(places), tolerance))
    return Check(part, len(places), min(outside, chi_square(expected, seen)))


def chi_square(expected: Array, seen: Array) -> float:
    """p-value of counts `seen` [C] over M outcomes with probabilities `expected` [M, C]; small cells are pooled."""
    small = expected.sum(0) < SMALLEST
    expected, seen = (np.concatenate([x[..., ~small], x[..., small].sum(-1, keepdims=True)], -1)
                      for x in (expected, seen))
    covariance = np.diag(expected.sum(0)) - expected.T @ expected
    inverse, rank = linalg.pinvh(covariance, rtol=1e-6, return_rank=True)
    difference = seen - expected.sum(0)
    return float(stats.chi2.sf(difference @ inverse @ difference, rank)) if rank else 1.0


def _accepted(tested: Sequence[_Place], accept: Array, tolerance: float) -> Check:
    if len(tested) < FEWEST:
        return Check("accepted", len(tested), None)
    a = accept.clip(tolerance, 1.0 - tolerance)
    kept = np.array([place.kept for place in tested], float)
    cell = np.digitize(accept, [0.25, 0.5, 0.75, 0.999]) * 4 + (4 * _middle(tested)).astype(int).clip(0, 3)
    statistic, cells = 0.0, 0
    for number in np.unique(cell):
        inside = cell == number
        variance = float((a * (1 - a))[inside].sum())
        if variance >= 1.0:
            statistic += float((kept - a)[inside].sum()) ** 2 / variance
            cells += 1
    sure = np.where(accept > 1.0 - tolerance, kept == 0, (accept < tolerance) & (kept == 1)).sum()
    wrong = float(stats.binom.sf(sure - 1, len(tested), 2 * tolerance))
    return Check("accepted", len(tested), min(wrong, float(stats.chi2.sf(statistic, cells)) if cells else 1.0))


def _middle(tested: Sequence[_Place]) -> Array:
    """[M] the middle of each drafted token's interval in the cumulative q, by token id; 0.5 without q."""
    return np.array([0.5 if place.q is None else sum(x for t, x in place.q.items() if t < place.drafted)
                     + place.q.get(place.drafted, 0.0) / 2 for place in tested])


def _numbers(numbered: Sequence[tuple[_Place, float]], tolerance: float) -> list[Check]:
    """The recorded u: their decisions, their law, and their independence of the drafted token."""
    u = np.array([place.u for place, _ in numbered], float)
    a, kept = np.array([x for _, x in numbered]), np.array([place.kept for place, _ in numbered])
    contradictions = int((((u < a) != kept) & (np.abs(u - a) > tolerance)).sum())
    middle = _middle([place for place, _ in numbered])
    tests: list[tuple[str, Callable[[], float]]] = [
        ("u decides", lambda: float(stats.binom.sf(contradictions - 1, len(u), tolerance))),
        ("u uniform", lambda: float(stats.kstest(u, "uniform").pvalue)),
        ("u independent", lambda: float(stats.spearmanr(u, middle).pvalue) if np.ptp(middle) > 0 else 1.0)]
    return [Check(name, len(u), test() if len(u) >= FEWEST else None) for name, test in tests]
