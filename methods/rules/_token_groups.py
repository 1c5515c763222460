"""Groups of similar tokens, from a file or from a target's input embeddings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

CHUNK = 1024
"""Rows of the similarity matrix computed at once."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that each token is in.

    of      [V, M] int64  group numbers below `count`; unused places hold 0.
    member  [V, M] bool   the used places.
    count   number of groups.
    """

    of: Tensor
    member: Tensor
    count: int

    @property
    def share(self) -> Tensor:
        """[V, M] float32: the part of a token's mass that each of its groups gets, 0 in unused places."""
        return self.member / self.member.sum(-1, keepdim=True)

    @classmethod
    def from_lists(cls, groups: list[list[int]], vocab: int, device: torch.device | str = "cpu") -> Groups:
        """Groups as lists of token ids; a token in none gets a group of its own. Raises ValueError."""
        memberships: list[list[int]] = [[] for _ in range(vocab)]
        for number, group in enumerate(groups):
            for token in group:
                if not isinstance(token, int) or not 0 <= token < vocab:
                    raise ValueError(f"group {number} names token {token!r}; ids go from 0 to {vocab - 1}: give ids of "
                                     "this target")
                if number in memberships[token]:
                    raise ValueError(f"group {number} names token {token} twice; give each id once")
                memberships[token].append(number)
        count = len(groups)
        for own in memberships:
            if not own:
                own.append(count)
                count += 1
        width = max(map(len, memberships))
        of = torch.tensor([own + [0] * (width - len(own)) for own in memberships], device=device)
        member = torch.tensor([[True] * len(own) + [False] * (width - len(own)) for own in memberships], device=device)
        return cls(of, member, count)

    @classmethod
    def from_file(cls, path: Path, vocab: int, device: torch.device | str) -> Groups:
        """Groups from a JSON file {"groups": [[token ids], ...]}. Raises ValueError, one line."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls.from_lists(content["groups"], vocab, device)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            form = '{"groups": [[token ids], ...]}'
            raise ValueError(f"rule.groups={path}: not a file of token groups, {form}: {error}") from error

    @classmethod
    def from_embedding(cls, embedding: Tensor, similarity: float, largest: int) -> Groups:
        """One group around every token of `embedding` [V, H]: mutual near neighbours with at least this cosine."""
        unit = torch.nn.functional.normalize(embedding.float(), dim=-1)
        k = min(largest, len(unit))
        near_parts, close_parts = [], []
        for rows in torch.arange(len(unit), device=unit.device).split(CHUNK):
            cosine = unit[rows] @ unit.T
            cosine[torch.arange(len(rows)), rows] = torch.inf  # a token is its own nearest, before any twin
            value, token = cosine.topk(k, dim=-1)
            near_parts.append(token)
            close_parts.append(value >= similarity)
        near, close = torch.cat(near_parts), torch.cat(close_parts)
        itself = torch.arange(len(unit), device=unit.device)[:, None]
        mutual = torch.cat([(near[t] == i[..., None]).any(-1) for t, i in zip(
            near.split(CHUNK), itself.split(CHUNK), strict=True)])
        return cls(torch.where(member := close & mutual, near, 0), member, len(unit))

    def mass(self, p: Tensor) -> Tensor:
        """Token probabilities [..., V] -> group probabilities [..., count]."""
        mass = p.new_zeros(*p.shape[:-1], self.count)
        for of, share in zip(self.of.unbind(1), self.share.unbind(1), strict=True):
            mass.index_add_(-1, of, p * share)
        return mass

    def spread(self, weight: Tensor, p: Tensor) -> Tensor:
        """Group weights [..., count] -> token weights [..., V]: each group's weight over its tokens as p has it."""
        density = weight / self.mass(p).clamp(min=torch.finfo(p.dtype).tiny)
        total = torch.zeros_like(p)
        for of, share in zip(self.of.unbind(1), self.share.unbind(1), strict=True):
            total = total + density[..., of] * share
        return p * total
