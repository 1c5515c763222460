"""What an acceptance rule sees, what it decides, and the one walk over the tree that all rules share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from methods.sampling import Sampling
from methods.tree import Draft


class Verification:
    """The target's view of one draft: everything a rule may look at, computed once and only when asked for.

    draft     the proposed tree, N nodes in B rows.
    logits    [B, N, V] float32 raw target logits in the context of each node.
    sampling  the decoding settings; `p` is the processed distribution under them.
    u         [B, N] uniforms of the prompt's own stream; u[:, i] belongs to the test of node i and nothing else.
    hidden    [B, N, H] final-norm hidden states, only for rules with `needs_hidden`.
    """

    def __init__(self, draft: Draft, logits: Tensor, sampling: Sampling, u: Tensor, hidden: Tensor | None = None):
        self.draft, self.logits, self.sampling, self.u, self.hidden = draft, logits, sampling, u, hidden

    @cached_property
    def parent(self) -> Tensor:
        """[B, N] index of each node's parent; the root points at itself."""
        return self.draft.parents.clamp(min=0).expand(self.draft.tokens.shape)

    def at_parent(self, per_node: Tensor) -> Tensor:
        """Move a per-context value [B, N, ...] to the children of that context: out[:, i] = value at i's parent."""
        if self.draft.chain:
            return torch.cat([per_node[:, :1], per_node[:, :-1]], dim=1)
        index = self.parent.reshape(*self.parent.shape, *[1] * (per_node.dim() - 2))
        return per_node.gather(1, index.expand(-1, -1, *per_node.shape[2:]))

    def at(self, per_node: Tensor, node: Tensor) -> Tensor:
        """Pick node [B] out of [B, N, ...] -> [B, ...]."""
        return per_node[torch.arange(len(node), device=node.device), node]

    @cached_property
    def top2(self) -> tuple[Tensor, Tensor]:
        """The two largest raw logits and their tokens in each context: values, ids, both [B, N, 2]."""
        return torch.topk(self.logits, 2, dim=-1)

    @cached_property
    def argmax(self) -> Tensor:
        """[B, N] the target's most likely token in each context."""
        return self.logits.argmax(-1)

    @cached_property
    def is_argmax(self) -> Tensor:
        """[B, N] bool: the node's token is the target's argmax at its parent."""
        return self.draft.tokens == self.at_parent(self.argmax)

    @cached_property
    def p(self) -> Tensor:
        """[B, N, V] processed target distribution in each context."""
        return self.sampling.probs(self.logits)

    @cached_property
    def p_token(self) -> Tensor:
        """[B, N] processed target probability of the node's token at its parent."""
        if self.sampling.greedy:
            return self.is_argmax.float()
        return self.at_parent(self.p).gather(-1, self.draft.tokens[..., None])[..., 0]

    @cached_property
    def earlier_siblings(self) -> Tensor:
        """[B, N, N] bool: j is a valid sibling of i that stands before i in draft order."""
        same = self.draft.parents[:, :, None] == self.draft.parents[:, None, :]
        earlier = torch.ones(same.shape[1:], dtype=torch.bool, device=same.device).tril(-1)
        return same & earlier & self.draft.valid[:, None, :]

    def children_of(self, node: Tensor) -> Tensor:
        """[B, N] bool: the valid children of node [B]."""
        return (self.draft.parents == node[:, None]) & self.draft.valid


@dataclass(slots=True)
class Decision:
    """A rule's local decisions, all nodes at once.

    accept  [B, N] bool  the node is kept if it is tested, i.e. if its parent was kept and all earlier siblings were not.
                         The root's entry is ignored.
    strict  [B, N] bool  what the strict rule (greedy at T=0, lossless otherwise) decides with the same random numbers;
                         None when the rule is itself strict.
    """

    accept: Tensor
    strict: Tensor | None = None


@dataclass(slots=True)
class Walk:
    """The path that was kept: `kept` [B, N] bool (root included), `last` [B] its deepest node, `length` [B] accepted
    draft tokens (root not counted), `relaxed` [B] how many of them the strict rule would have rejected."""

    kept: Tensor
    last: Tensor
    length: Tensor
    relaxed: Tensor


def walk(v: Verification, decision: Decision) -> Walk:
    """Follow the first accepted child from the root, for all rows at once and without a loop over depth.

    A node is on the path iff it and all its ancestors are each the first accepted among their siblings."""
    draft = v.draft
    first = decision.accept & draft.valid
    if not draft.chain:
        first = first & ~(v.earlier_siblings & first[:, None, :]).any(-1)
    first[:, 0] = True
    if draft.chain:
        kept = first.long().cumprod(1).bool()
    else:
        kept = ~(draft.ancestors & ~first[:, None, :]).any(-1)
    length = kept.sum(1) - 1
    last = torch.where(kept, draft.depth, -1).argmax(1)
    relaxed = torch.zeros_like(length) if decision.strict is None else (kept & ~decision.strict)[:, 1:].sum(1)
    return Walk(kept, last, length, relaxed)


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a rule must know of the drafter before anything runs: does it give a distribution, are its candidates drawn."""

    drafter: str
    has_q: bool
    sampled: bool


class Rule(BaseModel):
    """An acceptance rule: one file in methods/rules, one subclass in it, its fields are the rule's options.

    `decide` is the local decision for all nodes at once; `emit` gives the weights from which the token after the kept
    path is drawn (the correction where a rule rejects, the bonus at a leaf). Neither may wait for the device."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs_hidden: ClassVar[bool] = False

    def check(self, candidates: Candidates, sampling: Sampling) -> None:
        """Raise ValueError, one line, for a combination that cannot run."""

    def decide(self, v: Verification) -> Decision:
        raise NotImplementedError

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        """Weights [B, V], unnormalised, in the context of the last kept node [B]. Default: the target's p."""
        return v.sampling.probs(v.at(v.logits, node))
