"""ARC-Decode's pruning: drop unlikely branches of a draft between drafting and verification (draft
-> prune -> verify).

For a node c at depth d, l(c) is the log-probability of its path under the draft. H is the target's
entropy divided by ln V in the context that predicted the cycle's root token, known before the
forward that pruning makes cheaper.

score
  entropy     s(c) = exp(l(c)) exp(-decay d H) (eq. 1). Per depth, theta_d is the largest threshold
              whose nodes {s >= theta_d} hold at least 1 - epsilon_d of the depth's mass (eq. 3);
              the epsilon_d sum to at most `budget`, if given. Then (eq. 4): a node is kept iff s >=
              theta_d and its parent is kept (prefix closure); a leaf of the draft also needs s >=
              tau_d = max(theta_d, leaf) (leaf safety); a kept parent that would lose all its
              children keeps its best one, recursively (re-insertion). The factor exp(-decay d H) is
              the same for all nodes of a depth, so it does not affect which nodes pass theta_d,
              only what `leaf` removes.
  accum_prob  s = exp(l)               one threshold for the whole tree: the smallest set of best
              nodes that holds
  depth       s = exp(l) (1 + alpha d)      1 - epsilon of all mass; no leaf safety, no re-insertion
              (Table 8: node-wise
  depth_exp   s = exp(l) exp(alpha d)       decisions). Descendants of a dropped node are dropped
              too.

Deterministic candidates only: dropping tokens drawn from q according to their q would bias the
output. Source: section 3.2 and Appendix A.3.5; the paper's run has epsilon 0.05 per depth and decay
1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.distributions import entropy
from methods.drafters.base import Proposer, TokenRows
from methods.options import StrictOptions
from methods.rules.base import DraftCapabilities
from methods.trees.draft import Draft

# transformers is slow to import, and a command is checked before anything is loaded
if TYPE_CHECKING:
    from methods.engine.cache import SlotCache

Score = Literal["entropy", "accum_prob", "depth", "depth_exp"]
TIE = 1e-6
"""Scores that differ by less than this relative amount count as equal: draft probabilities are
single precision."""
TINY = 1e-30
"""Lower bound on draft probabilities, so that every path has a finite log-probability."""


class Pruning(StrictOptions):
    """Options of the pruning step; see the module docstring for the scores.

    score    how nodes are ranked.
    epsilon  share of the mass that may be lost, per depth (entropy) or over the tree (the other
             scores).
    budget   entropy only: bound on the sum of epsilon over depths; None for no bound.
    decay    entropy only: weight of depth times entropy.
    leaf     entropy only: minimum score of a leaf.
    alpha    depth and depth_exp only: weight of the depth.
    """

    score: Score = "entropy"
    epsilon: float = Field(0.05, ge=0.0, lt=1.0)
    budget: float | None = Field(None, gt=0.0, lt=1.0)
    decay: float = Field(1.0, ge=0.0)
    leaf: float = Field(0.001, ge=0.0)
    alpha: float = Field(0.5, ge=0.0)

    def check(self, candidates: DraftCapabilities) -> None:
        """Raise ValueError, one line, for drafts that cannot be pruned."""
        if not candidates.has_q:
            raise ValueError(
                f"pruning ranks tokens by draft probability, and drafter={candidates.drafter} "
                "has none: use a drafter that is a model or a head, or pruning=none"
            )
        if candidates.sampled:
            raise ValueError(
                "pruning drops tokens by their probability, which biases those that drafter="
                f"{candidates.drafter} draws: use drafter=model_greedy, a tree of top-k tokens, or "
                "pruning=none"
            )

    def prune(self, draft: Draft, entropy: Tensor) -> tuple[Draft, list[int], list[int]]:
        """The draft without the nodes that score too low, the tokens drafted in each row, and how
        many of these were dropped. `entropy` [B]: the target's at the root, over ln V.

        Synchronises with the device once, to learn the new size."""
        kept = self.kept(draft, entropy)
        counts = torch.stack([draft.valid.sum(1), kept.sum(1)]).tolist()
        drafted, left = ([n - 1 for n in row] for row in counts)
        dropped = [n - m for n, m in zip(drafted, left, strict=True)]
        return select(draft, kept, max(left) + 1) if any(dropped) else draft, drafted, dropped

    def kept(self, draft: Draft, entropy: Tensor) -> Tensor:
        """[B, N] bool: the valid nodes to keep; always includes the root."""
        score, valid = self.scores(draft, entropy), draft.valid
        depth = draft.depth.expand(valid.shape)
        root = depth == 0
        if self.score != "entropy":
            local = above_threshold(score, valid & ~root, self.epsilon)
        else:
            local = self._local(draft, score, depth)
        stays = (local & valid) | root
        return ~(draft.ancestors & ~stays[:, None, :]).any(-1)

    def _local(self, draft: Draft, score: Tensor, depth: Tensor) -> Tensor:
        """[B, N] bool: nodes kept provided their parent is kept."""
        valid, parents = draft.valid, draft.parents.expand(draft.valid.shape)
        same = (depth[:, :, None] == depth[:, None, :]) & valid[:, None, :]
        epsilon: float | Tensor = self.epsilon
        if self.budget is not None:
            epsilon = torch.clamp(
                self.budget / torch.where(valid, depth, 0).amax(1).clamp(min=1), max=epsilon
            )[:, None]
        passes = above_threshold(score, same, epsilon)
        node = torch.arange(draft.nodes, device=parents.device)[:, None]
        leaf = ~((parents[:, None, :] == node) & valid[:, None]).any(-1)
        passes = passes & (~leaf | (score >= self.leaf))
        siblings = (parents[:, :, None] == parents[:, None, :]) & valid[:, None, :]
        beats = clearly_above(score)
        better = beats | (~beats.mT & torch.ones_like(siblings[0]).tril(-1))
        best = ~(siblings & better).any(-1)
        return passes | (best & ~(siblings & passes[:, None, :]).any(-1))

    def scores(self, draft: Draft, entropy: Tensor) -> Tensor:
        """Scores [B, N] float64; 1 for the root, 0 for padding."""
        assert draft.q is not None, "check() refuses drafters without a distribution"
        log_q = (
            draft.q.double()
            .clamp(min=TINY)
            .log()
            .masked_fill(~draft.valid | (draft.depth == 0), 0.0)
        )
        path = (draft.ancestors.to(log_q.dtype) @ log_q[..., None])[..., 0]
        depth = draft.depth.to(log_q.dtype)
        match self.score:
            case "entropy":
                score = (path - self.decay * depth * entropy[:, None]).exp()
            case "accum_prob":
                score = path.exp()
            case "depth":
                score = path.exp() * (1.0 + self.alpha * depth)
            case _:
                score = (path + self.alpha * depth).exp()
        return torch.where(draft.valid, score, 0.0)


class PrunedProposer(Proposer):
    """A proposer whose drafts are pruned before they are verified."""

    def __init__(self, proposer: Proposer, pruning: Pruning):
        self.proposer, self.pruning = proposer, pruning
        self.entropy: Tensor | None = None
        self.drafted: list[list[int]] = []
        self.dropped: list[list[int]] = []

    def propose(self, rows: TokenRows, u: Tensor) -> Draft:
        assert self.entropy is not None, "on_logits comes first"
        draft, drafted, dropped = self.pruning.prune(self.proposer.propose(rows, u), self.entropy)
        self.drafted.append(drafted)
        self.dropped.append(dropped)
        return draft

    def on_logits(self, logits: Tensor, node: Tensor) -> None:
        self.entropy = entropy(
            logits[torch.arange(len(node), device=node.device), node].softmax(-1)
        )
        self.proposer.on_logits(logits, node)

    def keep(self, places: list[int]) -> None:
        assert self.entropy is not None, "on_logits comes first"
        self.proposer.keep(places)
        self.entropy = self.entropy[places]
        self.drafted, self.dropped = (
            [[cycle[place] for place in places] for cycle in counts]
            for counts in (self.drafted, self.dropped)
        )

    def pruning_counts(self, row: int, cycles: int) -> tuple[int, int]:
        drafted, dropped = (
            sum(cycle[row] for cycle in counts[:cycles]) for counts in (self.drafted, self.dropped)
        )
        return drafted, dropped

    def attach_target_cache(self, cache: SlotCache) -> None:
        self.proposer.attach_target_cache(cache)

    def on_extra_outputs(self, answers: Sequence[Sequence[int]]) -> None:
        self.proposer.on_extra_outputs(answers)

    def on_features(self, features: Tensor, kept: Sequence[Sequence[int]]) -> None:
        self.proposer.on_features(features, kept)


def clearly_above(score: Tensor) -> Tensor:
    """[B, N, N] bool: node j scores higher than node i by more than a tie."""
    return score[:, None, :] > score[:, :, None] * (1 + TIE)


def above_threshold(score: Tensor, peers: Tensor, epsilon: float | Tensor) -> Tensor:
    """[B, N] bool: membership in the smallest set of highest-scoring peers that holds 1 - epsilon
    of their mass.

    Ties with the lowest score of the set are included. `peers`: [B, N, N] bool, row i the peers of
    node i; or [B, N] if all nodes share one set."""
    mass = peers.to(score.dtype) * (score if peers.dim() == 2 else score[:, None, :])
    mass = mass[:, None, :].expand(-1, score.shape[1], -1) if peers.dim() == 2 else mass
    before = (mass * clearly_above(score)).sum(-1)
    return before < (1.0 - epsilon) * mass.sum(-1)


def select(draft: Draft, kept: Tensor, size: int) -> Draft:
    """The draft restricted to the nodes `kept` [B, N], order preserved, each row padded to `size`
    nodes."""
    index = kept.int().argsort(dim=1, descending=True, stable=True)[:, :size]
    valid = kept.gather(1, index)
    place = kept.cumsum(1) - 1

    def pick(x: Tensor) -> Tensor:
        x = x.expand(len(index), *x.shape[1:])
        return x.gather(
            1, index.reshape(*index.shape, *[1] * (x.dim() - 2)).expand(-1, -1, *x.shape[2:])
        )

    parents = pick(draft.parents)
    parents = torch.where(parents < 0, -1, place.gather(1, parents.clamp(min=0)).clamp(min=0))
    ancestors = pick(draft.ancestors).gather(2, index[:, None].expand(-1, size, -1))
    logits, q, hidden = (
        None if x is None else pick(x) for x in (draft.logits, draft.q, draft.hidden)
    )
    return replace(
        draft,
        tokens=pick(draft.tokens),
        parents=parents,
        ancestors=ancestors,
        depth=pick(draft.depth),
        valid=valid,
        logits=logits,
        q=q,
        hidden=hidden,
        sizes=None,
    )
