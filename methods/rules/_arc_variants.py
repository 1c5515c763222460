"""The two variants of ARC-Decode's acceptance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.rules._arc_constants import EPSILON, VACUOUS, Constants, entropy
from methods.rules.base import ThresholdView
from methods.rules.lossless import QMode, lossless_test, residual
from methods.rules.verification import Verification
from methods.rules.walk import Decision


@dataclass(frozen=True, slots=True)
class Bounds:
    """The constants on the device of the input embeddings.

    c, alpha_kappa, tau  [buckets] float32.
    edges                [buckets - 1] float32.
    inv_std              [H] float32, diagonal of W.
    embedding            [V, H] input embeddings.
    """

    c: Tensor
    alpha_kappa: Tensor
    tau: Tensor
    edges: Tensor
    inv_std: Tensor
    embedding: Tensor

    @classmethod
    def from_constants(cls, constants: Constants, embedding: Tensor) -> Bounds:
        """The constants on the device of `embedding` [V, H]."""
        columns = [[getattr(bucket, name) for bucket in constants.buckets] for name in ("c", "alpha_kappa", "tau")]
        c, alpha_kappa, tau, edges, inv_std = (torch.tensor(x, dtype=torch.float32, device=embedding.device)
                                               for x in (*columns, constants.edges, constants.inv_std))
        return cls(c, alpha_kappa, tau, edges, inv_std, embedding)

    def of_nodes(self, v: Verification) -> tuple[Tensor, Tensor, Tensor]:
        """U_emb, U_logit and tau of each node, all [B, N]."""
        bucket = self._bucket(v)
        c, alpha_kappa, tau = (v.at_parent(x[bucket]) for x in (self.c, self.alpha_kappa, self.tau))
        drafted, best = (self.embedding[tokens].float() for tokens in (v.draft.tokens, v.at_parent(v.argmax)))
        embedding_distance = ((drafted - best) * self.inv_std).square().sum(-1)
        margin = v.at_parent(v.p.amax(-1)).clamp(min=EPSILON).log() - v.p_token.clamp(min=EPSILON).log()
        return c * embedding_distance, alpha_kappa * margin.square(), tau

    def vacuous(self, v: Verification) -> Tensor:
        """[B, N] bool per context: its bound says nothing."""
        return (self.tau >= VACUOUS)[self._bucket(v)]

    def _bucket(self, v: Verification) -> Tensor:
        return torch.bucketize(entropy(v.p), self.edges)


def score(emb: Tensor, logit: Tensor, tau: Tensor) -> Tensor:
    """LTS = 1 - U/tau (eq. 15); 1 where U is 0."""
    u = torch.minimum(emb, logit)
    return 1.0 - torch.where(u > 0, u / tau, 0.0)


@dataclass(frozen=True)
class Variant(ABC):
    """What the variants share.

    bounds  of the target.
    theta   smallest accepted score.
    q_mode  of the lossless test, or of the ratio p/q.
    keep    how far the released variant raises the probability of acceptance.
    floor   smallest target probability that the released variant relaxes for.
    """

    bounds: Bounds
    theta: float
    q_mode: QMode
    keep: float
    floor: float

    @abstractmethod
    def decide(self, v: Verification) -> Decision:
        """The rule's decision."""

    @abstractmethod
    def by_threshold(self, v: Verification) -> Tensor:
        """[B, N] bool: as `Rule.by_threshold`."""

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        """The decision as a function of theta, where theta decides only whether a token is accepted."""
        return None

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        """Weights [B, V] in the context of node [B]."""
        return residual(v, node)


class Paper(Variant):
    """The paper's rule: accept x iff LTS >= theta or the lossless test accepts it.

    theta = 1 accepts only tokens that cost nothing (t itself, and ties with it) and is lossless otherwise. At
    temperature 0, p is a point mass and the lossless test is greedy matching."""

    def decide(self, v: Verification) -> Decision:
        lossless = lossless_test(v)
        emb, logit, tau = self.bounds.of_nodes(v)
        certified = torch.minimum(emb, logit) <= tau * (1.0 - self.theta)
        return Decision(certified | lossless_test(v, self.q_mode), lossless, {"vacuous_bound": self.bounds.vacuous(v)})

    def by_threshold(self, v: Verification) -> Tensor:
        return self.decide(v).accept & ~lossless_test(v, self.q_mode)

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        always = torch.ones_like(v.draft.tokens, dtype=torch.bool)
        lts = score(*self.bounds.of_nodes(v))
        return ThresholdView("theta", ">=", self.theta, lts, always, lossless_test(v, self.q_mode))


class Released(Variant):
    """What the authors' repository (NeuraLiying/ARC-Decode) does by default.

    T=0: greedy matching. T>0, with r = min(1, p(x)/q(x)) and B = tau (1 - theta): accept with probability r; if that
    fails, p(x) >= 0.05 and U < B, accept if the same random number is below r + 0.25 (1 - r)(1 - U/B). p does not
    change between siblings; all rejected: draw from max(0, p - q) at the children and p elsewhere. There is no
    `threshold_view`: theta decides how far the rule relaxes, not only whether. The shipped constants come from MT-Bench
    questions and all have tau > ln 2. The repository also chooses constants and pruning by keywords in the prompt
    (mathematics, code); that is left out on purpose, because it distinguishes benchmarks."""

    def decide(self, v: Verification) -> Decision:
        lossless = lossless_test(v)
        if v.sampling.greedy:
            return Decision(lossless)
        ratio, relaxed = self._tests(v)
        return Decision((v.u < ratio) | relaxed, lossless, {"vacuous_bound": self.bounds.vacuous(v)})

    def by_threshold(self, v: Verification) -> Tensor:
        if v.sampling.greedy:
            return torch.zeros_like(v.draft.tokens, dtype=torch.bool)
        ratio, relaxed = self._tests(v)
        return relaxed & ~(v.u < ratio)

    def _tests(self, v: Verification) -> tuple[Tensor, Tensor]:
        """[B, N] r, and bool: the relaxed test accepts the node."""
        emb, logit, tau = self.bounds.of_nodes(v)
        u, budget = torch.minimum(emb, logit), tau * (1.0 - self.theta)
        ratio = (v.p_token / self._q(v).clamp(min=torch.finfo(v.p.dtype).tiny)).clamp(max=1.0)
        raised = ratio + self.keep * (1.0 - ratio) * (1.0 - u / budget)
        return ratio, (v.p_token >= self.floor) & (u < budget) & (v.u < raised)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if v.sampling.greedy:
            return residual(v, node)
        p, children = v.p_at(node), v.children_of(node)
        left = (p.gather(1, v.draft.tokens) - self._q(v)).clamp(min=0.0)
        left = p.scatter_reduce(1, v.draft.tokens, torch.where(children, left, torch.inf), "amin")
        return torch.where(left.sum(-1, keepdim=True) > 0, left, p)

    def _q(self, v: Verification) -> Tensor:
        """[B, N] the probability with which the node's token is taken to have been proposed."""
        if v.draft.q is None or not (v.draft.sampled or self.q_mode == "draft"):
            return torch.ones_like(v.u)
        return v.draft.q


VARIANTS: dict[str, type[Variant]] = {"paper": Paper, "released": Released}
