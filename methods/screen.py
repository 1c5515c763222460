"""What every rule would do with one lossless decode: expected accept length and distortion.

In each cycle the target has verified one draft. For a rule, in that draft:

    a_i       the probability over the test's own number that node i is kept if it is tested
    first_i   a_i prod_(earlier siblings j) (1 - a_j)
    reach_i   product of first over the path to node i, 1 at the root
    tokens    sum of reach_i: the expected number of tokens that the cycle emits
    nats      sum of reach_i KL(R_i || p_i), R_i the rule's law in the context of node i

A node counts where a token can still be emitted behind it: nothing counts behind an end token or
behind the last token that the answer may have. Decisions are probabilities, not draws, and all
rules see the same drafts, so that differences between rules are paired. What is missing is that a
rule also changes the text that is drafted next.

Two kinds of rules are averaged over draws of their numbers: those with randomness of their own, and
those that look along the path or have no law of a context (`Rule.has_law`). Where no law is known,
nats are known only of a lossless rule, by its theorem: 0."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from methods.batch import Generation
from methods.decode import Limits, Observer, Request, generate
from methods.distortion import (
    CLOSE,
    averaged,
    compared,
    keep_probability,
    sampled_law,
    threshold_of,
    tree_law,
    with_u,
)
from methods.method import Method
from methods.rules.base import Rule
from methods.rules.lossless import Lossless
from methods.rules.verification import State, Verification
from methods.rules.walk import Decision, Walk, walk

Name = TypeVar("Name", bound=Hashable)
"""What tells the settings of rules apart."""
DRAWS, FEW = 32, 8
"""Draws of a law, and of the path that is kept: a screen has hundreds of cycles."""
SCREENED_BYTES = 1 << 30
"""Of the float64 laws that are held at once, at most; several arrays of this size live beside."""
LawOf = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]
"""Contexts (rows, nodes) -> R [M, V] there, and the correction [M] of its entropy, if any."""
UNREACHED = 1e-9
"""A context that is reached with a smaller probability adds nothing."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a rule does in one cycle of each row.

    tokens  [B] float64: expected tokens, the one behind the kept path included.
    nats    [B] float64: expected sum of KL(R || p) over their contexts; None where no law is known.
    """

    tokens: Tensor
    nats: Tensor | None


def expected(rule: Rule, v: Verification, counted: Tensor, random: torch.Generator) -> Expected:
    """What the rule does with this draft. `counted` [B, N] bool: a token can be emitted behind the
    node."""
    lossless = rule.is_lossless(v.sampling)
    if not has_known_law(rule, v) or (lossless and rule.has_own_randomness()):
        u = torch.rand((FEW, *v.u.shape), generator=random).to(v.u)
        tokens = (_kept_share(rule, v, u) * counted).sum(1)
        return Expected(tokens, torch.zeros_like(tokens) if lossless else None)
    if rule.has_own_randomness():
        u = torch.rand((DRAWS, *v.u.shape), generator=random).to(v.u)
        reach = _kept_share(rule, v, u[:FEW]) * counted

        def law(rows: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor | None]:
            return averaged(rule, v, u, rows, nodes)

        return _weighed(v, reach, law)
    if is_drawn(v):
        reach = _along_path(v, _drawn_keep_probability(rule, v)) * counted
        return _weighed(v, reach, lambda rows, nodes: (sampled_law(rule, v, rows, nodes), None))
    kept = keep_probability(rule, v)
    first = kept * torch.where(v.earlier_siblings, 1 - kept[:, None, :], 1.0).prod(-1)
    first = first * v.draft.valid
    reach = _along_path(v, first) * counted
    return _weighed(v, reach, lambda rows, nodes: (tree_law(rule, v, rows, nodes, first), None))


def is_drawn(v: Verification) -> bool:
    """Whether the candidates were drawn from the draft's distribution."""
    return v.draft.sampled and not v.sampling.greedy and v.draft.nodes > 1


def has_known_law(rule: Rule, v: Verification) -> bool:
    """Whether `methods.distortion` can compute the rule's law in each context of this draft."""
    if is_drawn(v) and (rule.has_own_randomness() or not v.draft.chain):
        return False
    return rule.has_law()


def hides_randomness(rule: Rule, v: Verification) -> bool:
    """Whether the rule decides otherwise than by thresholds on the nodes' own numbers, although it
    declares no randomness of its own: its accept length and law are then not known."""
    if not has_known_law(rule, v) or rule.has_own_randomness():
        return False
    kept = _drawn_keep_probability(rule, v) if is_drawn(v) else keep_probability(rule, v)
    tested = v.draft.valid & (v.draft.depth > 0) & ((v.u - kept).abs() > 2 * CLOSE)
    return bool((tested & ((v.u < kept) != rule.decide(v).accept)).any())


def _along_path(v: Verification, first: Tensor) -> Tensor:
    """[B, N] float64: the probability that each node is reached."""
    of_node = torch.where(v.draft.depth > 0, first, 1.0)
    return torch.where(v.draft.ancestors, of_node[:, None, :], 1.0).prod(-1) * v.draft.valid


def _drawn_keep_probability(rule: Rule, v: Verification) -> Tensor:
    """[B, N] float64: the probability over its own number that a candidate drawn from q, as it was
    drawn, is kept if it is tested."""

    def probe(u: Tensor) -> Tensor:
        return rule.decide(with_u(v, u)).accept

    guess = (v.p_token / v.q_token.clamp(min=1e-30)).clamp(max=1.0)
    return threshold_of(probe, v.u, guess) * v.draft.valid


def _kept_share(rule: Rule, v: Verification, u: Tensor) -> Tensor:
    """[B, N] float64: the share of the draws `u` [D, B, N] in which each node is kept."""
    total = torch.zeros(v.u.shape, dtype=torch.float64, device=v.u.device)
    for numbers in u:
        drawn = with_u(v, numbers)
        drawn.notes = {}
        total += walk(drawn, rule.decide(drawn)).kept
    return total / len(u)


def _weighed(v: Verification, reach: Tensor, law: LawOf) -> Expected:
    """Sum KL(R || p) over the contexts, each weighted by `reach` [B, N], in pieces that fit the
    memory."""
    nats = torch.zeros(len(reach), dtype=torch.float64, device=reach.device)
    rows, nodes = (reach > UNREACHED).nonzero(as_tuple=True)
    width = max(1, SCREENED_BYTES // (8 * v.logits.shape[-1]))
    for some, places in zip(rows.split(width), nodes.split(width), strict=True):
        laws, correction = law(some, places)
        lost = compared(v.logits[some, places], laws, v.sampling)[:, 0]
        if correction is not None and not v.sampling.greedy:
            lost = lost - correction
        nats.index_add_(0, some, reach[some, places] * lost)
    return Expected(reach.sum(1), nats)


@dataclass(slots=True)
class Screened:
    """What one rule does with the drafts of some answers.

    rows     [answers, 3] float64: expected tokens, expected nats (NaN where not known), cycles.
    unknown  why its numbers are not known; empty where they are.
    """

    rows: Tensor
    unknown: str = ""


class Host(Lossless):
    """The lossless rule, for a decode whose drafts carry all that the screened rules read."""

    hidden: bool = False

    def needs_hidden(self) -> bool:
        return self.hidden


def host(lossless: Method, rules: Sequence[Method]) -> Method:
    """`lossless` with drafts that carry all that the rules read. The methods share its models."""
    drafts = [method.draft for method in rules]
    rule = Host(hidden=any(method.rule.needs_hidden() for method in rules))
    draft = replace(
        lossless.draft,
        needs_q=lossless.draft.needs_q or any(draft.needs_q for draft in drafts),
        needs_hidden=any(draft.needs_hidden for draft in drafts),
        bonus_q=any(draft.bonus_q for draft in drafts),
    )
    return replace(lossless, rule=rule, draft=draft)


def screened(
    lossless: Method,
    rules: Mapping[Name, Rule],
    requests: Sequence[Request],
    limits: Limits,
    others: Sequence[Observer] = (),
) -> tuple[list[Generation], dict[Name, Screened]]:
    """Decode a batch by `lossless` (see `host`) and put each cycle before every rule; `others`
    watch it too.

    Gives the generations and, for each rule, what it does in each request. Raises TooLong."""
    screen = Screen(rules, requests, limits, lossless.target.device)
    observers = [screen, *others]
    generations = generate(lossless, requests, replace(limits, shrink=True), observers=observers)
    return generations, screen.of([len(generation.committed) for generation in generations])


@dataclass
class Screen(Observer, Generic[Name]):
    """Puts each cycle of a lossless decode before every rule.

    rules     name -> bound rule.
    requests  those of the decode: rules with a state start from their prompts.
    limits    where an answer ends.
    """

    rules: Mapping[Name, Rule]
    requests: Sequence[Request]
    limits: Limits
    device: torch.device
    unknown: dict[Name, str] = field(default_factory=dict)
    _left: Tensor = field(init=False)
    _ends: Tensor = field(init=False)
    _states: dict[Name, State] = field(default_factory=dict)
    _owners: list[Tensor] = field(default_factory=list)
    _values: dict[Name, list[Tensor]] = field(init=False)
    _random: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._values = {name: [] for name in self.rules}
        self._ends = torch.tensor(sorted(self.limits.eos_ids), device=self.device)
        self._random = torch.Generator().manual_seed(0)

    def on_first(self, logits: Tensor, token: Tensor) -> None:
        ended = torch.isin(token, self._ends)
        self._left = torch.where(ended, 0, self.limits.max_new_tokens - 1)
        texts = [
            [*request.input_ids, first]
            for request, first in zip(self.requests, token.tolist(), strict=True)
        ]
        self._states = {name: rule.start(texts, self.device) for name, rule in self.rules.items()}

    def on_cycle(
        self,
        v: Verification,
        decision: Decision,
        path: Walk,
        token: Tensor,
        u: Tensor,
        requests: Sequence[int],
    ) -> None:
        places = torch.tensor(requests, device=self.device)
        counted = self._counted(v, places)
        self._owners.append(places)
        for name, rule in self.rules.items():
            state = {key: values[places] for key, values in self._states[name].items()}
            seen = with_u(v, v.u)
            seen.state, seen.notes = state, {}
            rule.decide(seen)  # what it notes for `emit`
            if name not in self.unknown and not self._owners[1:] and hides_randomness(rule, seen):
                self.unknown[name] = "it decides by randomness that it does not declare"
            found = expected(rule, seen, counted, self._random)
            nats = torch.full_like(found.tokens, torch.nan) if found.nats is None else found.nats
            self._values[name].append(torch.stack([found.tokens, nats], 1).cpu())
            for key, values in rule.next_state(seen, path, token).items():
                self._states[name][key][places] = values
        self._advance(v, path, token, counted, places)

    def of(self, cycles: Sequence[int]) -> dict[Name, Screened]:
        """What each rule does in each request, which took so many `cycles`; what comes behind its
        end is left out."""
        owners = torch.cat(self._owners).cpu() if self._owners else torch.zeros(0).long()
        found = {}
        for name, values in self._values.items():
            table = torch.cat(values) if values else torch.zeros(0, 2, dtype=torch.float64)
            rows = [
                torch.cat([table[owners == request][:count].sum(0), table.new_tensor([count])])
                for request, count in enumerate(cycles)
            ]
            found[name] = Screened(torch.stack(rows), self.unknown.get(name, ""))
        return found

    def _counted(self, v: Verification, places: Tensor) -> Tensor:
        """[B, N] bool: a token can be emitted behind the node."""
        ends = torch.isin(v.draft.tokens, self._ends) & (v.draft.depth > 0)
        behind_end = (v.draft.ancestors & ends[:, None, :]).any(-1)
        room = v.draft.depth < self._left[places][:, None]
        return room & ~behind_end & v.draft.valid

    def _advance(
        self, v: Verification, path: Walk, token: Tensor, counted: Tensor, places: Tensor
    ) -> None:
        """Take what the lossless decode emitted off the tokens that each answer has left."""
        contexts = path.kept & counted
        left = self._left[places] - contexts.sum(1)
        drafted_end = (path.kept & torch.isin(v.draft.tokens, self._ends)).logical_and(
            v.draft.depth > 0
        )
        drawn_end = torch.isin(token, self._ends)
        ended = drafted_end.any(1) | drawn_end
        self._left[places] = torch.where(ended, 0, left.clamp(min=0))
