"""What an acceptance rule sees of one draft."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from methods.sampling import Sampling
from methods.trees.draft import Draft

NamedTensors = dict[str, Tensor]
T = TypeVar("T")
State = NamedTensors
"""What a rule knows of each request beyond the current draft: name -> [B, ...] on the device."""


class Verification:
    """The target's view of one draft: everything a rule may look at, computed once and only when
    asked for.

    draft     the proposed tree, N nodes in B rows.
    logits    [B, N, V] float32 raw target logits in the context of each node.
    sampling  the decoding settings; `p` is the processed distribution under them.
    u         [B, N] uniforms in [0, 1) of the prompt's own stream; u[:, i] belongs to the test of
              node i alone.
    hidden    [B, N, H] final-norm hidden states, only for rules with `needs_hidden`.
    state     the rule's state of each request before this draft; empty for a rule without one.
    notes     what a rule computes to decide and needs again to emit.
    by_draft  the same, where it does not depend on `u` (see `once`); shared with verifications of
              the same draft that have other numbers.

    "Per context" means a value at the node after which something is predicted, "per node" one about
    the node's own token, which was predicted in the context of its parent. The root's per-node
    values carry no meaning.
    """

    def __init__(
        self,
        draft: Draft,
        logits: Tensor,
        sampling: Sampling,
        u: Tensor,
        hidden: Tensor | None = None,
        state: State | None = None,
    ):
        self.draft = draft
        self.logits = logits
        self.sampling = sampling
        self.u = u
        self.hidden_or_none = hidden
        self.state: State = {} if state is None else state
        self.notes: NamedTensors = {}
        self.by_draft: dict[tuple[int, str], tuple[object, Any]] = {}

    def once(self, rule: object, name: str, compute: Callable[[], T]) -> T:
        """What `compute` gives for this rule, computed once for the draft: it may not read `u`."""
        key = id(rule), name
        if key not in self.by_draft:
            self.by_draft[key] = rule, compute()  # with the rule, so that no other gets its id
        value: T = self.by_draft[key][1]
        return value

    # --- moving between contexts and nodes

    @cached_property
    def parent(self) -> Tensor:
        """[B, N] index of each node's parent; the root points at itself."""
        return self.draft.parents.clamp(min=0).expand(self.draft.tokens.shape)

    def at_parent(self, per_context: Tensor) -> Tensor:
        """From contexts [B, N, ...] to the nodes they predict: out[:, i] = value at i's parent."""
        if self.draft.chain:
            return per_context.roll(1, 1)
        if per_context.dim() == 2:
            return per_context.gather(1, self.parent)
        parent = self.parent.reshape(*self.parent.shape, *[1] * (per_context.dim() - 2))
        return per_context.gather(1, parent.expand(-1, -1, *per_context.shape[2:]))

    def of_token(self, per_context: Tensor) -> Tensor:
        """From contexts and tokens [B, N, V] to nodes [B, N]: the entry of the node's token at its
        parent."""
        return per_context.flatten(1).gather(1, self._entry)

    @cached_property
    def _entry(self) -> Tensor:
        return self.parent * self.logits.shape[-1] + self.draft.tokens

    def at(self, per_node: Tensor, node: Tensor) -> Tensor:
        """Pick node [B] out of [B, N, ...] -> [B, ...]."""
        if len(node) == 1:
            return per_node.index_select(1, node)[:, 0]
        return per_node[torch.arange(len(node), device=node.device), node]

    # --- the target's distribution

    @cached_property
    def top2(self) -> tuple[Tensor, Tensor]:
        """The two largest raw logits and their tokens in each context: values, ids, both [B, N,
        2]."""
        return torch.topk(self.logits, 2, dim=-1)

    @cached_property
    def argmax(self) -> Tensor:
        """[B, N] the target's most likely token in each context; the first one of a tie."""
        return self.logits.max(-1).indices  # argmax takes three times as long on the CPU

    @cached_property
    def is_argmax(self) -> Tensor:
        """[B, N] bool: the node's token is the target's argmax at its parent."""
        return self.draft.tokens == self.at_parent(self.argmax)

    @cached_property
    def processed(self) -> Tensor:
        """[B, N, V] processed target logits in each context; undefined for greedy decoding."""
        return self.sampling.process(self.logits)

    @cached_property
    def p(self) -> Tensor:
        """[B, N, V] processed target distribution in each context; a point mass when greedy."""
        return (
            self.sampling.probs(self.logits) if self.sampling.greedy else self.processed.softmax(-1)
        )

    @property
    def none(self) -> Tensor:
        """[B, N] bool: False for every node."""
        return torch.zeros_like(self.draft.tokens, dtype=torch.bool)

    def one_hot(self, token: Tensor) -> Tensor:
        """[B, V] float32: 1 for token [B]."""
        return torch.zeros_like(self.logits[:, 0]).scatter_(-1, token[:, None], 1.0)

    def q_at(self, node: Tensor) -> Tensor:
        """[B, V] processed draft distribution in the context of node [B]."""
        return self.sampling.probs(self.at(self.draft_logits, node))

    def p_at(self, node: Tensor) -> Tensor:
        """[B, V] processed target distribution in the context of node [B], of that node alone
        unless `p` is at hand."""
        return (
            self.at(self.p, node)
            if "p" in self.__dict__
            else self.sampling.probs(self.at(self.logits, node))
        )

    @cached_property
    def p_token(self) -> Tensor:
        """[B, N] processed target probability of the node's token at its parent."""
        return self.of_token(self.p)

    @cached_property
    def q(self) -> Tensor:
        """[B, N, V] processed draft distribution in each context; unspecified where the drafter did
        not expand."""
        return self.sampling.probs(self.draft_logits)

    @property
    def q_token(self) -> Tensor:
        """[B, N] draft probability of the node's own token; only for rules with `needs_q`, or
        sampled candidates."""
        assert self.draft.q is not None, "the draft has no distribution"
        return self.draft.q

    @property
    def draft_logits(self) -> Tensor:
        """[B, N, V] raw draft logits in each context; only for rules with `needs_q`, or sampled
        candidates."""
        assert self.draft.logits is not None, "the draft has no distribution"
        return self.draft.logits

    @property
    def hidden(self) -> Tensor:
        """[B, N, H] final-norm hidden states of the target; only for rules with `needs_hidden`."""
        assert self.hidden_or_none is not None, "the rule did not ask for hidden states"
        return self.hidden_or_none

    @cached_property
    def log_mass(self) -> Tensor:
        """[B, N] logsumexp of the raw logits in each context."""
        return self.logits.logsumexp(-1)

    @cached_property
    def token_logprob(self) -> Tensor:
        """[B, N] float64: log p0 of the node's token at its parent, p0 the softmax of the raw
        logits."""
        return (self.of_token(self.logits) - self.at_parent(self.log_mass)).double()

    @cached_property
    def regret(self) -> Tensor:
        """[B, N] float64: by how much the raw logit of the node's token is below the largest at its
        parent."""
        return self.at_parent(self.logits.amax(-1)).double() - self.of_token(self.logits).double()

    # --- the tree

    @cached_property
    def drafted(self) -> Tensor:
        """[B] the number of drafted tokens, without the root and padding."""
        return self.draft.valid.sum(1) - 1

    @cached_property
    def siblings(self) -> Tensor:
        """[B, N, N] bool: j is a valid node with the same parent as i (i itself included)."""
        parents = self.draft.parents
        return (parents[:, :, None] == parents[:, None, :]) & self.draft.valid[:, None, :]

    @cached_property
    def earlier_siblings(self) -> Tensor:
        """[B, N, N] bool: j is a valid sibling of i that stands before i in draft order."""
        return self.siblings.tril(-1)

    def child(self, rank: int) -> tuple[Tensor, Tensor]:
        """[B, N] index of each context's valid child number `rank` from 0, and [B, N] bool whether
        it has one."""
        nodes = torch.arange(self.draft.nodes, device=self.u.device)
        children = (self.draft.parents[:, None, :] == nodes[:, None]) & self.draft.valid[:, None, :]
        chosen = children & (children.cumsum(-1) == rank + 1)
        return chosen.long().argmax(-1), chosen.any(-1)

    def any_sibling(self, per_node: Tensor) -> Tensor:
        """[B, N] bool: some valid sibling of the node, or the node itself, has the flag."""
        return per_node if self.draft.chain else (self.siblings & per_node[:, None, :]).any(-1)

    @cached_property
    def expanded(self) -> Tensor:
        """[B, N] bool: a token was drafted behind the node."""
        drafted = self.draft.valid & (self.draft.depth > 0)
        counts = torch.zeros_like(self.draft.tokens).scatter_add(1, self.parent, drafted.long())
        return counts > 0

    def children_of(self, node: Tensor) -> Tensor:
        """[B, N] bool: the valid children of node [B]."""
        return (self.draft.parents == node[:, None]) & self.draft.valid
