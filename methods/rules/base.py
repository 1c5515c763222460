"""What an acceptance rule sees, what it decides, and the one walk over the tree that all rules share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from methods.sampling import Sampling, draw
from methods.tree import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.models import LanguageModel


class Verification:
    """The target's view of one draft: everything a rule may look at, computed once and only when asked for.

    draft     the proposed tree, N nodes in B rows.
    logits    [B, N, V] float32 raw target logits in the context of each node.
    sampling  the decoding settings; `p` is the processed distribution under them.
    u         [B, N] uniforms in [0, 1) of the prompt's own stream; u[:, i] belongs to the test of node i alone.
    hidden    [B, N, H] final-norm hidden states, only for rules with `needs_hidden`.

    "Per context" means a value at the node after which something is predicted, "per node" one about the node's own
    token, which was predicted in the context of its parent. The root's per-node values carry no meaning.
    """

    def __init__(self, draft: Draft, logits: Tensor, sampling: Sampling, u: Tensor, hidden: Tensor | None = None):
        self.draft, self.logits, self.sampling, self.u, self.hidden = draft, logits, sampling, u, hidden

    # --- moving between contexts and nodes

    @cached_property
    def parent(self) -> Tensor:
        """[B, N] index of each node's parent; the root points at itself."""
        return self.draft.parents.clamp(min=0).expand(self.draft.tokens.shape)

    def at_parent(self, per_context: Tensor) -> Tensor:
        """From contexts [B, N, ...] to the nodes they predict: out[:, i] = value at i's parent."""
        if self.draft.chain:
            return per_context.roll(1, 1)
        parent = self.parent.reshape(*self.parent.shape, *[1] * (per_context.dim() - 2))
        return per_context.gather(1, parent.expand(-1, -1, *per_context.shape[2:]))

    def of_token(self, per_context: Tensor) -> Tensor:
        """From contexts and tokens [B, N, V] to nodes [B, N]: the entry of the node's token at its parent."""
        return per_context.flatten(1).gather(1, self._entry)

    @cached_property
    def _entry(self) -> Tensor:
        return self.parent * self.logits.shape[-1] + self.draft.tokens

    def at(self, per_node: Tensor, node: Tensor) -> Tensor:
        """Pick node [B] out of [B, N, ...] -> [B, ...]."""
        return per_node[torch.arange(len(node), device=node.device), node]

    # --- the target's distribution

    @cached_property
    def top2(self) -> tuple[Tensor, Tensor]:
        """The two largest raw logits and their tokens in each context: values, ids, both [B, N, 2]."""
        return torch.topk(self.logits, 2, dim=-1)

    @cached_property
    def argmax(self) -> Tensor:
        """[B, N] the target's most likely token in each context; the first one of a tie."""
        return self.logits.argmax(-1)

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
        return self.sampling.probs(self.logits) if self.sampling.greedy else self.processed.softmax(-1)

    def p_at(self, node: Tensor) -> Tensor:
        """[B, V] processed target distribution in the context of node [B], of that node alone unless `p` is at hand."""
        return self.at(self.p, node) if "p" in self.__dict__ else self.sampling.probs(self.at(self.logits, node))

    @cached_property
    def p_token(self) -> Tensor:
        """[B, N] processed target probability of the node's token at its parent."""
        return self.of_token(self.p)

    @cached_property
    def q(self) -> Tensor:
        """[B, N, V] processed draft distribution in each context; unspecified where the drafter did not expand."""
        return self.sampling.probs(self.draft.logits)

    # --- the tree

    @cached_property
    def siblings(self) -> Tensor:
        """[B, N, N] bool: j is a valid node with the same parent as i (i itself included)."""
        parents = self.draft.parents
        return (parents[:, :, None] == parents[:, None, :]) & self.draft.valid[:, None, :]

    @cached_property
    def earlier_siblings(self) -> Tensor:
        """[B, N, N] bool: j is a valid sibling of i that stands before i in draft order."""
        return self.siblings.tril(-1)

    def any_sibling(self, per_node: Tensor) -> Tensor:
        """[B, N] bool: some valid sibling of the node, or the node itself, has the flag."""
        return per_node if self.draft.chain else (self.siblings & per_node[:, None, :]).any(-1)

    def children_of(self, node: Tensor) -> Tensor:
        """[B, N] bool: the valid children of node [B]."""
        return (self.draft.parents == node[:, None]) & self.draft.valid


@dataclass(slots=True)
class Decision:
    """A rule's local decisions, all nodes at once.

    accept  [B, N] bool  the node is kept if it is tested, i.e. if its parent was kept and its earlier siblings were
                         not. The root's entry is ignored.
    strict  [B, N] bool  what the strict rule (greedy at T=0, lossless otherwise) decides with the same random numbers;
                         None when the rule is itself strict.
    notes   name -> [B, N] bool per context: events worth counting, such as a threshold that has no meaning there.
    """

    accept: Tensor
    strict: Tensor | None = None
    notes: dict[str, Tensor] = field(default_factory=dict)


Relation = Literal[">", ">=", "<", "<="]


@dataclass(frozen=True, slots=True)
class Dial:
    """A rule's local decision as a function of one threshold, by which traces are replayed at other thresholds: a node
    is kept iff `inside` where `score relation threshold` holds, and iff `outside` elsewhere (NaN never holds).

    name, value  the threshold and where it stands in this run.
    score        [B, N] float per node.
    inside, outside  [B, N] bool per node.
    """

    name: str
    relation: Relation
    value: float
    score: Tensor
    inside: Tensor
    outside: Tensor


@dataclass(slots=True)
class Walk:
    """The path that was kept.

    kept     [B, N] bool  its nodes, root included.
    last     [B] int64    its deepest node.
    length   [B] int64    accepted draft tokens, the root not counted.
    marks    name -> [B, N] bool on the path: "relaxed", where the strict rule would have rejected the node; every other
             name is a note of the rule, where it was set for the node's context.
    """

    kept: Tensor
    last: Tensor
    length: Tensor
    marks: dict[str, Tensor] = field(default_factory=dict)

    @property
    def relaxed(self) -> Tensor:
        """[B] int64: accepted draft tokens that the strict rule would have rejected."""
        return self.marks["relaxed"].sum(1) if "relaxed" in self.marks else torch.zeros_like(self.length)

    @property
    def notes(self) -> dict[str, Tensor]:
        """name -> [B] int64: on how many contexts of the path the rule's note was set."""
        return {name: mark.sum(1) for name, mark in self.marks.items() if name != "relaxed"}


def walk(v: Verification, decision: Decision) -> Walk:
    """Follow the first accepted child from the root, for all rows at once and without a loop over depth.

    A node is on the path iff it and all its ancestors are each the first accepted among their siblings."""
    draft = v.draft
    first = decision.accept & draft.valid
    if draft.chain:
        length = last = first[:, 1:].cumprod(1).sum(1)
        kept = draft.depth <= length[:, None]
    else:
        first = first & ~(v.earlier_siblings & first[:, None, :]).any(-1)
        first[:, 0] = True
        kept = ~(draft.ancestors & ~first[:, None, :]).any(-1)
        length = kept.sum(1) - 1
        last = torch.where(kept, draft.depth, -1).argmax(1)
    marks = {name: kept & note for name, note in decision.notes.items()}
    if decision.strict is not None:
        marks["relaxed"] = kept & ~decision.strict & (draft.depth > 0)
    return Walk(kept, last, length, marks)


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a rule must know of the drafter before anything runs.

    has_q            it gives a distribution.
    sampled          its candidates are drawn from it.
    full_vocabulary  the distribution covers every token; not so for heads with a draft vocabulary of their own.
    """

    drafter: str
    has_q: bool
    sampled: bool
    full_vocabulary: bool = True


class Rule(BaseModel, ABC):
    """An acceptance rule: one file in methods/rules, one subclass in it, its fields are the rule's options.

    `decide` is the local decision for all nodes at once; `emit` gives the weights from which the token after the kept
    path is drawn (the correction where a rule rejects, the bonus at a leaf). Neither may wait for the device."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs_hidden: ClassVar[bool] = False
    needs_draft_hidden: ClassVar[bool] = False
    """Does the rule read `draft.hidden`? Known once it is bound."""

    def needs_q(self, sampling: Sampling) -> bool:
        """Does the rule read `draft.logits` or `draft.q` even of deterministic candidates?"""
        return False

    def emits_argmax(self, sampling: Sampling) -> bool:
        """Is the emitted token always the target's argmax? Then nothing has to be drawn."""
        return sampling.greedy

    def check(self, candidates: Candidates, sampling: Sampling) -> None:
        """Raise ValueError, one line, for a combination that cannot run."""
        if self.needs_q(sampling) and not candidates.has_q:
            raise ValueError(f"rule {self!r} compares with the draft distribution, and drafter={candidates.drafter} "
                             "has none: take a drafter that is a model or a head, or another rule")

    def bind(self, target: LanguageModel, model: LanguageModel | None) -> Rule:
        """The rule ready for work with these models, `model` being the drafter's: here it reads its files and takes the
        weights it needs (`target.head`, `target.embedding`). Default: itself. Raises ValueError, one line."""
        return self

    @abstractmethod
    def decide(self, v: Verification) -> Decision:
        """Which nodes are kept if they are tested."""

    def statistics(self, v: Verification) -> dict[str, Tensor]:
        """What a trace notes beside the decision: name -> [B, N] numbers per node that the rule alone can know. Only
        asked for in an untimed pass."""
        return {}

    def dial(self, v: Verification) -> Dial | None:
        """The decision as a function of the rule's threshold; None for a rule without one. Only asked for in an untimed
        pass; at the threshold of the run it is what `decide` says."""
        return None

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        """Weights [B, V], unnormalised, in the context of the last kept node [B]. Default: the target's p."""
        if self.emits_argmax(v.sampling):
            argmax = v.at(v.argmax, node)
            return torch.zeros_like(v.logits[:, 0]).scatter_(-1, argmax[:, None], 1.0)
        return v.p_at(node)

    def next_token(self, v: Verification, node: Tensor, u: Tensor) -> Tensor:
        """The token [B] after the last kept node [B]: drawn from `emit` with u [B], or the argmax without a draw."""
        if self.emits_argmax(v.sampling):
            return v.at(v.argmax, node)
        return draw(self.emit(v, node), u)
