"""Coarse-grained verification: draft and target only have to agree on a group of similar tokens.

Principled coarse-graining as in the overview of speculative decoding (Mirror-SD, PCG). Groups may
overlap: a token in m groups gives each of them 1/m of its mass, so that masses are distributions
over groups whatever the groups are:

    P(G) = sum over v in G of p(v)/m(v),  Q(G) likewise (a deterministic candidate x: 1/m(x) for
                                          each of its groups)

The candidate x stands for one of its m(x) groups, drawn evenly; a group G is kept with probability
min(1, P(G)/Q(G)), and on rejection P becomes norm(max(0, P - Q)) for the next sibling: speculative
sampling of groups, so the group that comes out has exactly the distribution P. Neither draw of a
group is made; both are integrated out:

    s(x) = 1/m(x) sum over G of min(1, P(G)/Q(G))          the group of x is kept

token
  redraw  a kept group gives a token drawn from p inside it, that is with probability
          p(v)/m(v)/P(G). If it is the drafted one, the walk goes on, otherwise it is emitted and
          ends the cycle: what follows in the draft was meant for another token. The emitted tokens
          then have exactly the distribution p, whatever the groups, but fewer drafts are accepted
          than by `lossless`: no grouping can beat it at emitting p.
  keep    the drafted token stands for its group. This is the relaxation: longer paths, exact as a
          distribution over groups only.

With singleton groups both are `lossless`. At temperature 0, p is a point mass: redraw is greedy
matching, keep takes any token that shares a group with the target's choice (with disjoint groups;
in the proportion above otherwise).

Groups come from a file (`groups`: JSON {"groups": [[token ids], ...]}; a token in none is a group
of its own) or from the target's input embeddings: around every token one group, of the tokens whose
embedding has a cosine of at least `similarity` with it, where each is among the other's `largest`
nearest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from pydantic import Field, FilePath, PrivateAttr
from torch import Tensor

from methods.rules.base import (
    Decision,
    DraftCapabilities,
    Model,
    Rule,
    Sampling,
    Target,
    Verification,
)
from methods.rules.lossless import lossless_test

CHUNK = 1024
"""Rows of the similarity matrix computed at once."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that each token is in.

    of      [V, M] int64  group numbers below `count`; unused places hold 0.
    member  [V, M] bool   the used places.
    count   number of groups.
    share   [V, M] float32: the part of a token's mass that each of its groups gets, 0 in unused
            places.
    pairs   the used places as three lists: token, group, share. Few tokens are in more than one
            group.
    """

    of: Tensor
    member: Tensor
    count: int
    share: Tensor = field(init=False)
    pairs: tuple[Tensor, Tensor, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        token, place = self.member.nonzero(as_tuple=True)
        share = self.member / self.member.sum(-1, keepdim=True)
        object.__setattr__(self, "share", share)
        object.__setattr__(self, "pairs", (token, self.of[token, place], share[token, place]))

    @classmethod
    def from_lists(
        cls, groups: list[list[int]], vocab: int, device: torch.device | str = "cpu"
    ) -> Groups:
        """Groups as lists of token ids; a token in none gets a group of its own. Raises
        ValueError."""
        memberships: list[list[int]] = [[] for _ in range(vocab)]
        for number, group in enumerate(groups):
            for token in group:
                if not isinstance(token, int) or not 0 <= token < vocab:
                    raise ValueError(
                        f"group {number} names token {token!r}; ids go from 0 to {vocab - 1}: "
                        "give ids of this target"
                    )
                if number in memberships[token]:
                    raise ValueError(f"group {number} names token {token} twice; give each id once")
                memberships[token].append(number)
        count = len(groups)
        for numbers in memberships:
            if not numbers:
                numbers.append(count)
                count += 1
        width = max(map(len, memberships))
        of = torch.tensor(
            [numbers + [0] * (width - len(numbers)) for numbers in memberships], device=device
        )
        member = torch.tensor(
            [[True] * len(numbers) + [False] * (width - len(numbers)) for numbers in memberships],
            device=device,
        )
        return cls(of, member, count)

    @classmethod
    def from_file(cls, path: Path, vocab: int, device: torch.device | str) -> Groups:
        """Groups from a JSON file {"groups": [[token ids], ...]}. Raises ValueError, one line."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls.from_lists(content["groups"], vocab, device)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            form = '{"groups": [[token ids], ...]}'
            raise ValueError(
                f"rule.groups={path}: not a file of token groups, {form}: {error}"
            ) from error

    @classmethod
    def from_embedding(cls, embedding: Tensor, similarity: float, largest: int) -> Groups:
        """One group around every token of `embedding` [V, H]: mutual near neighbours with at least
        this cosine."""
        unit = torch.nn.functional.normalize(embedding.float(), dim=-1)
        k = min(largest, len(unit))
        near_parts, close_parts = [], []
        for rows in torch.arange(len(unit), device=unit.device).split(CHUNK):
            cosine = unit[rows] @ unit.T
            # a token is its own nearest, before any twin
            cosine[torch.arange(len(rows)), rows] = torch.inf
            value, token = cosine.topk(k, dim=-1)
            near_parts.append(token)
            close_parts.append(value >= similarity)
        near, close = torch.cat(near_parts), torch.cat(close_parts)
        itself = torch.arange(len(unit), device=unit.device)[:, None]
        mutual = torch.cat(
            [
                (near[t] == i[..., None]).any(-1)
                for t, i in zip(near.split(CHUNK), itself.split(CHUNK), strict=True)
            ]
        )
        return cls(torch.where(member := close & mutual, near, 0), member, len(unit))

    def mass(self, p: Tensor) -> Tensor:
        """Token probabilities [..., V] -> group probabilities [..., count]."""
        token, group, share = self.pairs
        return p.new_zeros(*p.shape[:-1], self.count).index_add_(-1, group, p[..., token] * share)

    def spread(self, weight: Tensor, p: Tensor) -> Tensor:
        """Group weights [..., count] -> token weights [..., V]: each group's weight over its tokens
        as p has it."""
        token, group, share = self.pairs
        density = weight / self.mass(p).clamp(min=torch.finfo(p.dtype).tiny)
        return p * torch.zeros_like(p).index_add_(-1, token, density[..., group] * share)


_KNOWN: WeakKeyDictionary[torch.nn.Module, dict[tuple[float, ...], Groups]] = WeakKeyDictionary()
"""The groups of a target's embeddings: every pair of 50,000 tokens takes half a minute on a CPU."""


@dataclass(slots=True)
class _Tests:
    """Probabilities of the tests of one draft.

    group  [B, N] per node: its group is kept when it is tested.
    token  [B, N] per node: it is kept itself when it is tested.
    ratio  [B, N, M] per node: the part of `group` in each of its groups.
    left   [B, N, G] per context: P after the rejection of all children.
    """

    group: Tensor
    token: Tensor
    ratio: Tensor
    left: Tensor


class CoarseGrained(Rule):
    """similarity: smallest cosine in a group; above 1 every token is alone. largest: tokens of a
    group."""

    groups: FilePath | None = None
    similarity: float = Field(0.9, ge=-1.0)
    largest: int = Field(16, ge=1, le=1024)
    token: Literal["redraw", "keep"] = "redraw"
    _groups: Groups | None = PrivateAttr(None)

    def bind(self, target: Target, model: Model | None) -> CoarseGrained:
        bound = self.model_copy()
        if self.groups is None:
            weight = target.embedding
            by_settings = _KNOWN.setdefault(target.model, {})
            state = weight.data_ptr(), weight._version, self.similarity, self.largest
            if state not in by_settings:
                by_settings[state] = Groups.from_embedding(weight, self.similarity, self.largest)
            bound._groups = by_settings[state]
        else:
            bound._groups = Groups.from_file(self.groups, target.vocab_size, target.device)
        return bound

    @property
    def token_groups(self) -> Groups:
        """The groups, once the rule is bound."""
        assert self._groups is not None, "the rule is not bound to a target"
        return self._groups

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if candidates.distinct:
            raise ValueError(
                "rule=coarse_grained needs siblings that are independent draws, and drafter="
                f"{candidates.drafter} draws them without replacement: set drafter.replacement=true"
            )

    def decide(self, v: Verification) -> Decision:
        tests = self._tests(v)
        if self.token == "keep":
            return Decision(v.u < tests.group, lossless_test(v))
        accept = v.u < tests.token
        if not v.draft.chain:  # a sibling whose group was kept has settled the context
            accept = accept & ~(v.earlier_siblings & self._settled(v, tests)[:, None, :]).any(-1)
        return Decision(accept, lossless_test(v))

    def by_threshold(self, v: Verification) -> Tensor:
        """keep: accepted, and rejected by the lossless test. redraw: nowhere, it is exact for any
        grouping."""
        if self.token == "redraw":
            return v.none
        return super().by_threshold(v)

    def has_own_randomness(self) -> bool:
        return self.token == "redraw"

    def is_lossless(self, sampling: Sampling) -> bool:
        return self.token == "redraw"

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        groups, tests, p = self.token_groups, self._tests(v), v.p_at(node)
        weight = v.at(tests.left, node)
        if self.token == "redraw":
            settled = self._settled(v, tests) & v.children_of(node)
            first = settled & (settled.cumsum(1) == 1)  # [B, N], at most one in a row
            child = first.long().argmax(1)
            token = v.at(v.draft.tokens, child)
            kept = torch.zeros_like(weight).scatter_add_(
                1, groups.of[token], v.at(tests.ratio, child)
            )
            # had the token been drawn, the walk went on
            inside = groups.spread(kept, p).scatter(1, token[:, None], 0.0)
            weight = torch.where(first.any(1, keepdim=True), inside, groups.spread(weight, p))
        else:
            weight = groups.spread(weight, p)
        return torch.where(weight.sum(-1, keepdim=True) > 0, weight, p)

    @staticmethod
    def _settled(v: Verification, tests: _Tests) -> Tensor:
        """[B, N] bool: the node's group was kept and another token drawn inside it."""
        return (v.u >= tests.token) & (v.u < tests.group)

    def _tests(self, v: Verification) -> _Tests:
        return v.once(self, "tests", lambda: self._tested(v))

    def _tested(self, v: Verification) -> _Tests:
        """One round per sibling rank: every context carries its remaining P, every node is judged
        in its own round."""
        groups, draft = self.token_groups, v.draft
        of, share = groups.of[draft.tokens], groups.share[draft.tokens]  # [B, N, M]
        entry = (v.parent[..., None] * groups.count + of).flatten(1)
        mass, real = groups.mass(v.p), draft.valid & (draft.depth > 0)
        q_mass = groups.mass(v.q) if draft.sampled else None

        def of_nodes(per_group: Tensor) -> Tensor:
            """[B, N, G] in each context -> [B, N, M] of each node's groups at its parent."""
            return per_group.flatten(1).gather(1, entry).view(of.shape)

        q = share if q_mass is None else of_nodes(q_mass)
        tiny = torch.finfo(share.dtype).tiny
        inside = v.p_token[..., None] * share / of_nodes(mass).clamp(min=tiny)
        rank = torch.zeros_like(draft.tokens) if draft.chain else v.earlier_siblings.sum(-1)
        ratio, left = torch.zeros_like(share), mass
        for r in range(draft.width or draft.nodes - 1):
            now = (real & (rank == r))[..., None]
            ratio = torch.where(now, (of_nodes(left) / q.clamp(min=tiny)).clamp(max=1.0), ratio)
            children = torch.zeros_like(rank).scatter_add_(1, v.parent, now[..., 0].long())
            gone = (
                q_mass
                if q_mass is not None
                else torch.zeros_like(left)
                .flatten(1)
                .scatter_add_(1, entry, (share * now).flatten(1))
                .view(left.shape)
            )
            rest = (left - gone).clamp(min=0.0)
            total = rest.sum(-1, keepdim=True).clamp(min=tiny)
            left = torch.where(children[..., None] > 0, rest / total, left)
        ratio = ratio * share
        return _Tests(ratio.sum(-1), (ratio * inside).sum(-1), ratio, left)
