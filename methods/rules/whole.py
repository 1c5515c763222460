"""Rules that judge a draft as a whole, and not token by token."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Decision, DraftCapabilities, Rule, Sampling, Verification
from methods.rules.lossless import (
    Remainder,
    WarmRule,
    draft_p,
    lossless_test,
    rejected,
    residual,
    sibling_mass,
    without_draft,
)


class Whole(Rule):
    """Judges drawn candidates along their paths, with p or another law in its place.

    towards: whose law. tilted: that of `tilted` for one drawn token, in every context behind which
    a token was drawn; p elsewhere.
    lam: of tilted."""

    local = False
    judges_paths = True
    # what is not chosen stays out of the names of stored cells
    towards: Literal["target", "tilted"] = Field(
        "target", exclude_if=lambda towards: towards == "target"
    )
    lam: float = Field(1.0, gt=0.0, exclude_if=lambda lam: lam == 1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return self.towards == "target" or sampling.greedy

    def has_law(self) -> bool:
        return self.towards == "tilted"

    def drawn_law(self, p: Tensor, q: Tensor) -> Tensor | None:
        return tilted(p, q, self.lam) if self.towards == "tilted" else None

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if not self.is_lossless(sampling) and not candidates.sampled:
            raise ValueError(
                f"rule.towards=tilted is defined for drawn tokens, and "
                f"drafter={candidates.drafter} drafts the likeliest: use rule=tilted"
            )


class Block(Whole):
    """Block verification: speculative sampling that judges prefixes of a chain as a whole.
    Lossless, and never worse.

    x_1 ... x_K are drafted from q, p and q taken in the context of each. With P_0 = 1,

        P_i = min(1, P_(i-1) p(x_i)/q(x_i))
        h_i = Z_i / (Z_i + 1 - P_i),   Z_i = sum over v of max(0, P_i p(v) - q(v)) in the context
                                       behind x_i;   0/0 is 1

    The number of kept tokens is the *largest* i with u_i < h_i, 0 if there is none: u_i belongs to
    the prefix of length i, and an early failure does not end the search. Behind x_K nothing was
    drafted, q = 0, so that h_K = P_K. The token after the kept prefix has weights max(0, P_i p(v) -
    q(v)). A deterministic candidate is drawn from a point mass on itself.

    It is exactly the target's distribution at every temperature, and in expectation at least as
    many drafts are kept as by `lossless`.

    `towards: tilted` puts the law R of `tilted` in the place of p, on chains of drawn tokens: P_i =
    min(1, P_(i-1) R(x_i)/q(x_i)). Every text then has the probability that `tilted` gives it, where
    q depends on the text alone (a draft model), but for the token behind a whole draft, which has
    p; and at least as many drafts are kept, on every draft.

    Chains only, and at temperature 0 greedy matching. Source: Sun et al. 2024, "Block Verification
    Accelerates Speculative Decoding" (arXiv 2403.10444), Algorithm 2; vLLM's
    rejection_sample_method=block, rejection_sampler_utils.py 02e318bd."""

    chain_only = True
    variant: Literal["block"] = "block"  # in the names of stored cells

    def decide(self, v: Verification) -> Decision:
        if v.sampling.greedy:
            return Decision(lossless_test(v))
        if self.towards == "target":
            return Decision(_up_to_last(v, v.u < thresholds(v)))
        law = tilted(v.p, v.q, self.lam)
        return Decision(_up_to_last(v, v.u < thresholds(v, law)), lossless_test(v))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy:
            return residual(v, node)
        p, last = v.p_at(node), node == v.drafted
        law = p if self.towards == "target" else None
        ratio = prefix_ratio(v, None if law is not None else tilted(v.p, v.q, self.lam))
        prefix = v.at(ratio, node)[:, None]
        left = prefix * p
        if v.draft.sampled:
            q = v.sampling.probs(
                v.at(v.draft_logits, node)
            )  # unspecified behind the last token, where it is not used
            law = tilted(p, q, self.lam) if law is None else law
            left = torch.where(last[:, None], prefix * p, (prefix * law - q).clamp(min=0.0))
        else:
            drafted = v.at(v.draft.tokens, (node + 1).clamp(max=v.draft.nodes - 1))[:, None]
            left = torch.where(last[:, None], left, left.scatter(1, drafted, 0.0))
        # Fall back to p if rounding leaves nothing.
        return torch.where(left.sum(-1, keepdim=True) > 0, left, p)


def prefix_ratio(v: Verification, law: Tensor | None = None) -> Tensor:
    """P_i: [B, N], 1 at the root; `law` [B, N, V] in the place of p. In logarithms the minimum with
    1 is the distance to the largest prefix sum so far."""
    summed = _log_ratio(v, v.p_token if law is None else v.of_token(law)).cumsum(1)
    return (summed - summed.cummax(1).values).exp()


def thresholds(v: Verification, law: Tensor | None = None) -> Tensor:
    """h_i: [B, N], without meaning at the root and in padding; `law` as above."""
    prefix = prefix_ratio(v, law)
    z, last = _excess(v, prefix, law), v.draft.depth == v.drafted[:, None]
    z = torch.where(last, prefix, z)
    whole = z + (1.0 - prefix)  # in this order: both terms may be tiny
    return torch.where(whole > 0, z / whole, 1.0)


def _excess(v: Verification, prefix: Tensor, law: Tensor | None) -> Tensor:
    """Z_i: [B, N], where a token was drafted behind x_i."""
    if v.draft.sampled:
        return (prefix[..., None] * (v.p if law is None else law) - v.q).clamp(min=0.0).sum(-1)
    return prefix * (1.0 - v.p_token.roll(-1, 1))


def _log_ratio(v: Verification, mass: Tensor) -> Tensor:
    """ln p(x_i)/q(x_i) with `mass` [B, N] for p(x_i): [B, N], 0 at the root and in padding."""
    return torch.where(v.draft.valid & (v.draft.depth > 0), (mass / draft_p(v)).log(), 0.0)


def _up_to_last(v: Verification, passes: Tensor) -> Tensor:
    """[B, N] bool: the nodes up to the deepest drafted one that passes."""
    deepest = torch.where(passes & v.draft.valid, v.draft.depth, 0).amax(1, keepdim=True)
    return v.draft.depth <= deepest


class Traversal(Whole):
    """Traversal verification: judge a tree of sampled siblings from its leaves to its root.
    Lossless.

    Each context has M, S and alpha (`Remainder` in lossless.py), at first p, q and, from the root
    down,

        alpha(root) = 1,   alpha(child x) = min(1, alpha(parent) M(x)/S(x))

    Depth first, the next leaf is accepted with probability alpha, and with it its whole path; the
    token after it is drawn from its M. Otherwise the leaf is deleted, its parent's M and alpha (and
    S, for siblings drawn without replacement) change as after a rejection, and its next child is
    entered from there; a node that has lost all its children is a leaf. The root is accepted at
    last. A node's alpha when it is tested depends on its path and on earlier siblings along it, not
    on a random number: all nodes are tested at once, and a subtree is entered iff one of its nodes
    passes.

    Lossless for independent siblings and for those drawn without replacement; on a chain it is
    `block`. `towards: tilted` puts the law of `tilted` in the place of p, as `block` does. At
    temperature 0 greedy matching. It needs siblings that were drawn from q: drafter=model with
    drafter.branching, or an EAGLE head with drafter.tree=sampled. Source: Weng et al. 2025,
    "Traversal Verification for Speculative Tree Decoding" (arXiv 2505.12398); no
    official code."""

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if not (candidates.sampled or sampling.greedy):
            raise ValueError(
                "rule=traversal is defined for sampled siblings, and "
                f"drafter={candidates.drafter} draws none: use drafter=model "
                "drafter.branching=[2,2], an EAGLE head with drafter.tree=sampled "
                "drafter.branching=[2,2], or rule=lossless"
            )

    def decide(self, v: Verification) -> Decision:
        if v.sampling.greedy:
            return Decision(v.is_argmax)
        v.notes["entry"], tested = alphas(self._relaxed(v))
        kept = _paths_to(v, tested)
        return Decision(kept, None if self.towards == "target" else _paths_to(v, alphas(v)[1]))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy:
            return super().emit(v, node)
        relaxed = self._relaxed(v)
        entry = v.notes["entry"] if "entry" in v.notes else alphas(relaxed)[0]
        return rejected(relaxed, node, v.at(entry, node))

    def _relaxed(self, v: Verification) -> Verification:
        """The draft beside the law that it is judged by in the place of p."""
        if self.towards == "target":
            return v
        relaxed = Verification(v.draft, v.logits, v.sampling, v.u)
        relaxed.p = torch.where(v.expanded[..., None], tilted(v.p, v.q, self.lam), v.p)
        return relaxed


def _paths_to(v: Verification, tested: Tensor) -> Tensor:
    """[B, N] bool: the nodes on the paths to those that pass with probability `tested` [B, N]."""
    passes = (v.u < tested) & v.draft.valid
    return (v.draft.ancestors & passes[..., None]).any(1)


def alphas(v: Verification) -> tuple[Tensor, Tensor]:
    """alpha of every node when it is entered, and when it is tested, all its children rejected:
    both [B, N].

    Level by level: one round per sibling rank over the contexts of a depth, or over all where the
    shape is unknown."""
    draft = v.draft
    entry = torch.zeros_like(v.u, dtype=v.p.dtype)
    entry[:, 0] = 1.0
    tested, ranks = entry.clone(), v.earlier_siblings.sum(-1)
    children = [v.child(rank) for rank in range(draft.width or draft.nodes - 1)]
    for depth, (first, last) in enumerate(_contexts(v)):
        here = slice(first, last)
        left = Remainder(v.p[:, here], v.q[:, here], entry[:, here], draft.replacement)
        for rank, (child, real) in enumerate(children):
            token = draft.tokens.gather(1, child[:, here])
            reach = torch.zeros_like(entry)
            reach[:, here] = left.reach(token)
            entry = torch.where(
                (ranks == rank) & (draft.depth == depth + 1) & draft.valid,
                v.at_parent(reach),
                entry,
            )
            left = left.reject(token, real[:, here])
        tested = torch.where(
            draft.depth == depth,
            torch.zeros_like(entry).index_copy(
                1, torch.arange(first, last, device=entry.device), left.alpha
            ),
            tested,
        )
    return entry, torch.where(draft.depth == len(_contexts(v)), entry, tested)


def _contexts(v: Verification) -> list[tuple[int, int]]:
    """The nodes that may have children, first and one past the last of them, at each depth from 0
    on."""
    sizes = (1,) * v.draft.nodes if v.draft.chain else v.draft.sizes
    if sizes is None:
        return [(0, v.draft.nodes)] * v.draft.nodes
    places, first = [], 0
    for size in sizes[:-1]:
        places.append((first, first + size))
        first += size
    return places


RELEASED_EPSILON = 1e-5


class Typical(WarmRule):
    """Typical acceptance (Medusa): accept a token that is likely for the target's entropy; keep the
    longest path.

        accept x  iff  p(x) > min(epsilon, delta * exp(-H(p)))        H(p) = -sum_v p(v) log p(v),
                  nats

    p is the target's distribution in the context of x's parent. Of all paths whose nodes are all
    accepted, the longest is kept; among equally long ones, the one with the largest product of
    p(x). Siblings are not tested in order: the tree is evaluated as a whole. The token after the
    path is the target's argmax at every temperature, so typical acceptance is not a sampling
    method: if all drafts are wrong, it is greedy decoding. At temperature 0 the rule is greedy
    matching. Source: Medusa (Cai et al. 2024), section 2.3.1; FasterDecoding/Medusa,
    `evaluate_posterior(fast=True)`.

    variant
      paper     p is the processed distribution (temperature, top-k, top-p), H its entropy.
      released  p = softmax(z / temperature), without top-k and top-p; H = -sum_v p(v) log(p(v) +
                1e-5), slightly smaller. The repository calls delta `posterior_alpha` and epsilon
                `posterior_threshold`.
    correction
      greedy    the argmax, as above.
      sample    drawn from p instead: typical acceptance as a sampling method. In neither source.

    epsilon     a token with a larger probability is always accepted.
    delta       weight of exp(-H); sqrt(epsilon) in both sources."""

    variant: Literal["paper", "released"] = "paper"
    epsilon: float = Field(0.09, ge=0.0, le=1.0)
    delta: float = Field(0.3, ge=0.0, le=1.0)
    correction: Literal["greedy", "sample"] = "greedy"

    def emits_argmax(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.correction == "greedy"

    def warm_test(self, v: Verification, lossless: Tensor) -> Tensor:
        p = v.p if self.variant == "paper" else (v.logits / v.sampling.temperature).softmax(-1)
        p_token = v.of_token(p)
        accept = p_token > v.at_parent(self._threshold(p))
        return accept if v.draft.chain else best_path(v, accept, p_token)

    def _threshold(self, p: Tensor) -> Tensor:
        """min(epsilon, delta exp(-H)) in each context: [B, N, V] -> [B, N]."""
        log_p = (
            (p + RELEASED_EPSILON).log()
            if self.variant == "released"
            else torch.where(p > 0, p, 1.0).log()
        )
        entropy = -(p * log_p).sum(-1)
        return (self.delta * (-entropy).exp()).clamp(max=self.epsilon)


def best_path(v: Verification, accept: Tensor, p_token: Tensor) -> Tensor:
    """[B, N] bool: the nodes of the longest path whose nodes are all accepted, the most probable
    among ties. `p_token` [B, N]: probabilities of the nodes' tokens."""
    draft = v.draft
    accept = accept & draft.valid
    accept[:, 0] = True
    whole = ~(draft.ancestors & ~accept[:, None, :]).any(-1)
    log_p = torch.where(
        accept & (draft.depth > 0), p_token, 1.0
    ).log()  # 0 at the root, and finite: accepted has p > 0
    likelihood = (draft.ancestors.to(log_p.dtype) @ log_p[..., None])[..., 0]
    depth = torch.where(whole, draft.depth, -1)
    longest = depth == depth.amax(1, keepdim=True)
    last = torch.where(longest, likelihood, -torch.inf).argmax(1)
    rows = torch.arange(len(last), device=last.device)
    return draft.ancestors.expand(len(last), -1, -1)[rows, last]


HALVINGS, LARGEST = 30, 60.0
"""Steps of the bisection for c; largest exponent of a gain."""


class Tilted(WarmRule):
    """Tilted acceptance: the most tokens for the least divergence from the target, on any draft.

    In every context it draws the next token from the law R that maximises, over what one draft may
    keep,

        E[tokens kept] - lam * sum of KL(R || p) over the contexts that are visited

    with lam in tokens a nat.

    Deterministic candidates: a soft dynamic programme from the leaves up, V = 0 at a leaf, S = sum
    of the children's p:

        V(c) = lam ln( sum_i p(x_i) exp((1 + V(x_i))/lam) + 1 - S ),
        R(x_i | c) = p(x_i) exp((1 + V(x_i) - V(c))/lam)

    and the other tokens with p(y) exp(-V(c)/lam). A chain of candidates drawn from q, token by
    token: at most min(q, R) of the mass can be kept, and

        R(y) = min(max(c p(y), q(y)), c p(y) exp(1/lam)),   c from sum R = 1

    is attained by speculative sampling towards R: keep x with min(1, R(x)/q(x)), else draw from
    norm max(0, R - q). What a kept token makes possible further down is not counted there (block
    verification keeps more at lam = infinity). lam = infinity is lossless, lam -> 0 keeps the
    longest path, or every drawn token. At temperature 0: greedy matching. For one drawn token the
    trade of rejection against total variation is Yin et al. 2024 (arXiv 2411.00841), Theorem 5.

    lam: tokens that one nat of divergence must bring."""

    local = False
    lam: float = Field(1.0, gt=0.0)

    def has_law(self) -> bool:
        return True

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if candidates.sampled and not candidates.chain and not sampling.greedy:
            raise ValueError(
                "rule=tilted is defined for chains of drawn tokens and for deterministic trees, "
                f"and drafter={candidates.drafter} draws trees: use drafter=model or eagle3, or "
                "rule=lossless"
            )

    def warm_test(self, v: Verification, lossless: Tensor) -> Tensor:
        if v.draft.sampled:
            mass = v.once(self, "mass", lambda: v.of_token(tilted(v.p, v.q, self.lam)))
            return v.u * v.q_token < mass
        share = v.once(self, "share", lambda: shares(v, self.lam))
        earlier = (v.earlier_siblings.double() @ share[..., None])[..., 0]
        return v.u.double() * (1.0 - earlier).clamp(min=0.0) < share

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy or not v.draft.sampled:
            return residual(v, node)
        p = v.p_at(node)
        law = tilted(p, v.sampling.probs(v.at(v.draft_logits, node)), self.lam)
        return without_draft(v, node, law, p)

    def drawn_law(self, p: Tensor, q: Tensor) -> Tensor:
        return tilted(p, q, self.lam)


def shares(v: Verification, lam: float) -> Tensor:
    """[B, N] float64: R(x_i | c) of each node's token in its context, 0 at the root and in
    padding."""
    children = v.draft.valid & (v.draft.depth > 0)
    p = sibling_mass(v)[0].double().masked_fill(~children, 0.0)
    rest = (1.0 - torch.zeros_like(p).scatter_add(1, v.parent, p)).clamp(min=1e-12)
    value, weight = torch.zeros_like(p), torch.full_like(p, -torch.inf)
    for depth in range((v.draft.levels or v.draft.nodes) - 1, 0, -1):
        weight = torch.where(v.draft.depth == depth, p.log() + (1.0 + value) / lam, weight)
        largest = rest.log().scatter_reduce(
            1, v.parent, weight, "amax"
        )  # for a sum of exponentials that fits
        total = (
            (rest.log() - largest)
            .exp()
            .scatter_add(1, v.parent, (weight - largest.gather(1, v.parent)).exp())
        )
        value = torch.where(v.draft.depth == depth - 1, lam * (largest + total.log()), value)
    return (weight - value.gather(1, v.parent) / lam).exp()


def tilted(p: Tensor, q: Tensor, lam: float) -> Tensor:
    """R [..., V] for one token drawn from q, in the numeric type of p and q [..., V]."""
    gain = min(1.0 / lam, LARGEST)
    low = torch.full_like(p[..., :1], -gain - 1.0)
    high = torch.ones_like(low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = _bounded(p, q, middle, gain).sum(-1, keepdim=True) <= 1.0
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    law = _bounded(p, q, low, gain)
    return law / law.sum(-1, keepdim=True)


def _bounded(p: Tensor, q: Tensor, log_c: Tensor, gain: float) -> Tensor:
    return torch.minimum(torch.maximum(log_c.exp() * p, q), (log_c + gain).exp() * p)
