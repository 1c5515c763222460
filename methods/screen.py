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

Block verification keeps a prefix with P_i (`methods.rules.whole.Block`), the mean over what may be
drawn behind it. Two kinds of rules are averaged over draws of their numbers: those with randomness
of their own, and those that look along the path or have no law of a context (`Rule.has_law`). Where
no law is known, nats are known only of a lossless rule, by its theorem: 0."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from methods.batch import Generation
from methods.decode import Limits, Observer, Request, generate
from methods.distortion import (
    Draws,
    basis_of,
    compared,
    first_kept,
    hides_randomness,
    is_drawn,
    judges_paths,
    keep_probability,
    sampled_law,
    stated_law,
    tree_law,
    why_no_law,
    with_u,
)
from methods.method import Method
from methods.rules.base import Rule
from methods.rules.lossless import Lossless
from methods.rules.verification import State, Verification
from methods.rules.walk import Decision, Walk
from methods.rules.whole import Block, prefix_ratio, tilted
from methods.trees.draft import Draft

Name = TypeVar("Name", bound=Hashable)
"""What tells the settings of rules apart."""
DRAWS = 16
"""Draws of a law, and of the path that is kept: a screen has hundreds of cycles."""
SCREENED_BYTES = 1 << 28
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
    hidden  [B] bool: the rule decided by randomness that it does not declare.
    """

    tokens: Tensor
    nats: Tensor | None
    hidden: Tensor


def expected(rule: Rule, v: Verification, counted: Tensor, random: torch.Generator) -> Expected:
    """What the rule does with this draft. `counted` [B, N] bool: a token can be emitted behind the
    node."""
    decision = rule.decide(v)  # it may note what it needs to emit
    nothing = torch.zeros(len(v.u), dtype=torch.bool, device=v.u.device)
    lossless, whole = rule.is_lossless(v.sampling), prefixes(rule, v)
    if whole is not None and lossless:
        tokens = (whole * counted).sum(1)
        return Expected(tokens, torch.zeros_like(tokens), nothing)
    if judges_paths(rule, v):
        kept = _draws(rule, v, random).kept if whole is None else whole
        return _weighed(v, kept * counted, partial(_stated_law, rule, v), nothing)
    basis = basis_of(rule, v)
    if basis == "theorem" or (lossless and rule.has_own_randomness()):
        tokens = (_draws(rule, v, random).kept * counted).sum(1)
        return Expected(tokens, torch.zeros_like(tokens) if lossless else None, nothing)
    if basis == "draws":
        draws = _draws(rule, v, random)
        return _weighed(v, draws.kept * counted, draws.law, nothing)
    kept = keep_probability(rule, v)
    hidden = hides_randomness(v, kept, decision.accept)
    first = first_kept(v, kept)

    def law(rows: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor | None]:
        if is_drawn(v):
            return sampled_law(rule, v, rows, nodes), None
        return tree_law(rule, v, rows, nodes, first), None

    return _weighed(v, _along_path(v, first) * counted, law, hidden)


def prefixes(rule: Rule, v: Verification) -> Tensor | None:
    """[B, N] float64: the probability that block verification keeps the prefix up to each node,
    over its numbers and over what q may draw behind that node: P_i, by its theorem, so that a mean
    over drafts has less noise than over numbers alone. None for every other rule."""
    if not isinstance(rule, Block) or not is_drawn(v):
        return None
    law = tilted(v.p, v.q, rule.lam) if rule.towards == "tilted" else None
    return prefix_ratio(v, law).double() * v.draft.valid


def _stated_law(rule: Rule, v: Verification, rows: Tensor, nodes: Tensor) -> tuple[Tensor, None]:
    return stated_law(rule, v, rows, nodes), None


def _draws(rule: Rule, v: Verification, random: torch.Generator) -> Draws:
    return Draws(rule, v, torch.rand((DRAWS, *v.u.shape), generator=random).to(v.u))


def _along_path(v: Verification, first: Tensor) -> Tensor:
    """[B, N] float64: the probability that each node is reached."""
    of_node = torch.where(v.draft.depth > 0, first, 1.0)
    return torch.where(v.draft.ancestors, of_node[:, None, :], 1.0).prod(-1) * v.draft.valid


def _weighed(v: Verification, reach: Tensor, law: LawOf, hidden: Tensor) -> Expected:
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
    return Expected(reach.sum(1), nats, hidden)


@dataclass(slots=True)
class Screened:
    """What one rule does with the drafts of some answers.

    rows     [answers, 3] float64: expected tokens, expected nats (NaN where not known), cycles.
    unknown  why its numbers are not known; empty where they are.
    no_law   why its nats are not known; empty where they are.
    seconds  of CPU that the rule took.
    """

    rows: Tensor
    unknown: str = ""
    no_law: str = ""
    seconds: float = 0.0


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
    no_law: dict[Name, str] = field(default_factory=dict)
    states: dict[Name, State] = field(default_factory=dict)
    _left: Tensor = field(init=False)
    _ends: Tensor = field(init=False)
    _values: dict[Name, list[Tensor]] = field(init=False)
    _seconds: dict[Name, float] = field(init=False)
    _random: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._values = {name: [] for name in self.rules}
        self._seconds = dict.fromkeys(self.rules, 0.0)
        self._ends = torch.tensor(sorted(self.limits.eos_ids), device=self.device)
        self._random = torch.Generator().manual_seed(0)

    def on_first(self, logits: Tensor, token: Tensor) -> None:
        ended = torch.isin(token, self._ends)
        self._left = torch.where(ended, 0, self.limits.max_new_tokens - 1)
        texts = [
            [*request.input_ids, first]
            for request, first in zip(self.requests, token.tolist(), strict=True)
        ]
        self.states = {name: rule.start(texts, self.device) for name, rule in self.rules.items()}

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
        counted = self.counted(v.draft, places)
        for name in self.rules:
            self.put(name, v, counted, path, token, places)
        self.advance(v.draft, path, token, counted, places)

    def put(
        self,
        name: Name,
        v: Verification,
        counted: Tensor,
        path: Walk,
        token: Tensor,
        places: Tensor,
    ) -> None:
        """Put the cycles `v` of the requests `places` [B] before one rule. `counted` [B, N]: a
        token can be emitted behind the node; `path` and `token` [B] came of it."""
        if name in self.unknown:
            return
        began, rule = time.process_time(), self.rules[name]
        seen = with_u(v, v.u)
        seen.state = {key: values[places] for key, values in self.states[name].items()}
        seen.notes, seen.by_draft = {}, {}
        try:
            found = expected(rule, seen, counted, self._random)
        except Exception as error:  # whatever a rule of somebody's raises
            self.unknown[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return
        if (found.hidden & counted[:, 0]).any():
            self.unknown[name] = "it decides by randomness that it does not declare"
            return
        nats = found.nats
        if nats is None:
            self.no_law[name] = why_no_law(rule, seen)
            nats = torch.full_like(found.tokens, torch.nan)
        self._values[name].append(torch.stack([places, found.tokens, nats], 1).cpu())
        for key, values in rule.next_state(seen, path, token).items():
            self.states[name][key][places] = values
        self._seconds[name] += time.process_time() - began

    def of(self, cycles: Sequence[int]) -> dict[Name, Screened]:
        """What each rule does in each request, which took so many `cycles`; what comes behind its
        end is left out."""
        found = {}
        for name, values in self._values.items():
            if why := self.unknown.get(name):
                rows = [torch.full((3,), torch.nan, dtype=torch.float64)] * len(cycles)
                found[name] = Screened(torch.stack(rows), why, "", self._seconds[name])
                continue
            table = torch.cat(values) if values else torch.zeros(0, 3, dtype=torch.float64)
            rows = []
            for request, count in enumerate(cycles):
                sums = table[table[:, 0] == request][:count, 1:].sum(0)
                rows.append(torch.cat([sums, table.new_tensor([count])]))
            no_law = self.no_law.get(name, "")
            found[name] = Screened(torch.stack(rows), "", no_law, self._seconds[name])
        return found

    def counted(self, draft: Draft, places: Tensor) -> Tensor:
        """[B, N] bool: a token can be emitted behind the node."""
        ends = torch.isin(draft.tokens, self._ends) & (draft.depth > 0)
        behind_end = (draft.ancestors & ends[:, None, :]).any(-1)
        room = draft.depth < self._left[places][:, None]
        return room & ~behind_end & draft.valid

    def advance(
        self, draft: Draft, path: Walk, token: Tensor, counted: Tensor, places: Tensor
    ) -> None:
        """Take what the lossless decode emitted off the tokens that each answer has left."""
        left = self._left[places] - (path.kept & counted).sum(1)
        is_end = torch.isin(draft.tokens, self._ends) & (draft.depth > 0)
        ended = (path.kept & is_end).any(1) | torch.isin(token, self._ends)
        self._left[places] = torch.where(ended, 0, left.clamp(min=0))
