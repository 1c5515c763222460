"""ARC-Decode's acceptance: accept a token if taking it for the target's choice can hardly change
what comes next.

In the context of the child x, with t the target's most likely token, p the processed target
distribution (clamped from below at 1e-10), e the target's input embeddings, W = diag(1/std of each
embedding dimension), section 3.3:

    U_emb = c |W (e_x - e_t)|^2 (eq. 10)    U_logit = a (log p(t) - log p(x))^2 (eq. 13)    U = min
                                            of both (eq. 14)
    LTS = 1 - U/tol (eq. 15);   accept x  iff  LTS >= theta, i.e. U <= tol (1 - theta);   else the
                                lossless test decides

c, a (the paper's alpha kappa) and tol (its tau_delta; `tau` in a file of constants) are quantiles
measured for one target and belong to it: `python -m models.train calibrate` writes them (Algorithm
1), and those of another model are refused. They may depend on the entropy of p (buckets, Appendix
A.1). U is meant to bound the Jensen-Shannon divergence (nats) between what follows x and what
follows t. No such divergence exceeds ln 2: with tol >= ln 2 the certified bound says nothing, which
is warned of and flagged as `vacuous_bound`.

variant
  paper     the rule above. theta = 1 accepts only tokens that cost nothing (t itself, and ties with
            it) and is lossless otherwise. At temperature 0, p is a point mass and the lossless test
            is greedy matching.
  released  what the authors' repository (NeuraLiying/ARC-Decode) does by default. T=0: greedy
            matching. T>0, with r = min(1, p(x)/q(x)) and B = tol (1 - theta): accept with
            probability r; if that fails, p(x) >= `floor` and U < B, accept if the same random
            number is below r + keep (1 - r)(1 - U/B). p does not change between siblings; all
            rejected: draw from max(0, p - q) at the children and p elsewhere. The repository also
            chooses constants and pruning by keywords in the prompt (mathematics, code); that is
            left out on purpose, because it distinguishes benchmarks. Its shipped constants come
            from MT-Bench questions and all have tol > ln 2.
q_mode      of the lossless test, or of p/q in `released`; see `lossless`. The authors' code is
            `draft`.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor

from methods.distributions import entropy
from methods.options import StrictOptions
from methods.rules._files import FileMissing, check_model, made_by, read_json
from methods.rules.base import (
    Decision,
    DraftCapabilities,
    Model,
    NamedTensors,
    Rule,
    Sampling,
    Target,
    ThresholdView,
    Verification,
)
from methods.rules.lossless import QMode, lossless_test, residual

log = logging.getLogger(__name__)
VACUOUS = math.log(2.0)
"""Nats; no Jensen-Shannon divergence is larger."""
EPSILON = 1e-10
"""Probabilities are clamped from below at this before their logarithm is taken."""


class Bucket(StrictOptions):
    """Constants for contexts of similar entropy.

    c            factor of the embedding distance in U_emb (eq. 10).
    alpha_kappa  factor of the squared log margin in U_logit (eq. 13).
    tau          tolerated divergence, nats (eq. 15).
    n            positions measured.
    """

    c: float = Field(ge=0)
    alpha_kappa: float = Field(ge=0)
    tau: float = Field(ge=0)
    n: int = Field(ge=1)


class Constants(StrictOptions):
    """The file that `models.train calibrate` writes.

    target       the model they were measured on.
    fingerprint  its weights' fingerprint; constants of another model are refused.
    inv_std      [H] diagonal of W.
    edges        entropies that separate the buckets, ascending.
    buckets      one more than edges.
    provenance   how they were measured.
    """

    target: str
    fingerprint: str
    inv_std: list[float]
    edges: list[float] = Field([])
    buckets: list[Bucket] = Field(min_length=1)
    provenance: dict[str, Any] = Field({})

    @property
    def vacuous(self) -> bool:
        """Some bucket tolerates every divergence."""
        return any(bucket.tau >= VACUOUS for bucket in self.buckets)

    @classmethod
    def read(cls, path: Path) -> Constants:
        """Raises ValueError, one line."""
        constants = read_json(cls, path, "constants of models.train calibrate")
        if len(constants.buckets) != len(constants.edges) + 1:
            raise ValueError(
                f"{path}: {len(constants.edges)} edges cannot separate {len(constants.buckets)} "
                "buckets; write the file again with `python -m models.train calibrate`"
            )
        return constants


@dataclass(frozen=True, slots=True)
class Bounds:
    """The constants on the device of the input embeddings [V, H]: c, alpha_kappa, tau [buckets],
    edges [buckets - 1], inv_std [H], the diagonal of W; all float32."""

    c: Tensor
    alpha_kappa: Tensor
    tau: Tensor
    edges: Tensor
    inv_std: Tensor
    embedding: Tensor

    @classmethod
    def of(cls, constants: Constants, embedding: Tensor) -> Bounds:
        columns = [
            [getattr(bucket, name) for bucket in constants.buckets]
            for name in ("c", "alpha_kappa", "tau")
        ]
        c, alpha_kappa, tau, edges, inv_std = (
            torch.tensor(x, dtype=torch.float32, device=embedding.device)
            for x in (*columns, constants.edges, constants.inv_std)
        )
        return cls(c, alpha_kappa, tau, edges, inv_std, embedding)

    def of_nodes(self, v: Verification) -> tuple[Tensor, Tensor, Tensor]:
        """U_emb, U_logit and tau of each node, all [B, N]."""
        bucket = self._bucket(v)
        c, alpha_kappa, tau = (v.at_parent(x[bucket]) for x in (self.c, self.alpha_kappa, self.tau))
        drafted, best = (
            self.embedding[tokens].float() for tokens in (v.draft.tokens, v.at_parent(v.argmax))
        )
        embedding_distance = ((drafted - best) * self.inv_std).square().sum(-1)
        margin = (
            v.at_parent(v.p.amax(-1)).clamp(min=EPSILON).log() - v.p_token.clamp(min=EPSILON).log()
        )
        return c * embedding_distance, alpha_kappa * margin.square(), tau

    def vacuous(self, v: Verification) -> NamedTensors:
        """The flag [B, N] bool per context: its bound says nothing."""
        return {"vacuous_bound": (self.tau >= VACUOUS)[self._bucket(v)]}

    def _bucket(self, v: Verification) -> Tensor:
        return torch.bucketize(entropy(v.p), self.edges)


class Arc(Rule):
    """theta: smallest accepted score; the paper's run has 0.3. constants: what `models.train
    calibrate` wrote for this target. keep, floor: of the released variant, how far it raises the
    probability of acceptance, and the smallest target probability for which it does."""

    variant: Literal["paper", "released"] = "paper"
    theta: float = Field(0.3, le=1.0)
    constants: Annotated[Path, made_by("models.train calibrate")] | None = None
    q_mode: QMode = "exact"
    keep: float = Field(0.25, ge=0.0, le=1.0)
    floor: float = Field(0.05, ge=0.0, le=1.0)
    _bounds: Bounds | None = PrivateAttr(None)

    def is_lossless(self, sampling: Sampling) -> bool:
        return self.variant == "released" and sampling.greedy

    def needs_q(self, sampling: Sampling) -> bool:
        return self.q_mode == "draft" and not sampling.greedy

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.constants is None:
            raise FileMissing(
                "arc",
                "rule=arc needs constants of its target: make them with `python -m "
                "models.train calibrate pair=...` and give rule.constants=FILE",
            )

    def bind(self, target: Target, model: Model | None) -> Arc:
        assert self.constants is not None, "check() refuses a rule without constants"
        constants = Constants.read(self.constants)
        check_model(
            f"rule.constants={self.constants}",
            "models.train calibrate",
            "target",
            constants.target,
            constants.fingerprint,
            target,
        )
        if constants.vacuous:
            log.warning(
                "rule.constants=%s: tolerance = %.2f is not below ln 2 = 0.69, so the bound on "
                "the next-step divergence is vacuous",
                self.constants,
                max(bucket.tau for bucket in constants.buckets),
            )
        return self.with_constants(constants, target.embedding)

    def with_constants(self, constants: Constants, embedding: Tensor) -> Arc:
        """The rule with these constants, on the device of the input embeddings [V, H]."""
        bound = self.model_copy()
        bound._bounds = Bounds.of(constants, embedding)
        return bound

    @property
    def bounds(self) -> Bounds:
        assert self._bounds is not None, "the rule is not bound to a target"
        return self._bounds

    def decide(self, v: Verification) -> Decision:
        lossless = lossless_test(v)
        if self.is_lossless(v.sampling):
            return Decision(lossless)
        if self.variant == "released":
            ratio, relaxed = self._released(v)
            return Decision((v.u < ratio) | relaxed, lossless, self.bounds.vacuous(v))
        emb, logit, tau = self.bounds.of_nodes(v)
        certified = torch.minimum(emb, logit) <= tau * (1.0 - self.theta)
        return Decision(certified | lossless_test(v, self.q_mode), lossless, self.bounds.vacuous(v))

    def statistics(self, v: Verification) -> NamedTensors:
        """Both bounds, their tau and the score LTS: 1 where U is 0, -inf where tau is 0 and U is
        not."""
        emb, logit, tau = self.bounds.of_nodes(v)
        u = torch.minimum(emb, logit)
        return {
            "u_emb": emb,
            "u_logit": logit,
            "tau": tau,
            "lts": 1.0 - torch.where(u > 0, u / tau, 0.0),
        }

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        """None for `released`, where theta decides how far the rule relaxes, not only whether."""
        if self.variant == "released":
            return None
        lossless = lossless_test(v, self.q_mode)
        return self.threshold_on("theta", ">=", self.statistics(v)["lts"], lossless)

    def by_threshold(self, v: Verification) -> Tensor:
        if self.is_lossless(v.sampling):
            return v.none
        if self.variant == "released":
            ratio, relaxed = self._released(v)
            return relaxed & ~(v.u < ratio)
        return self.decide(v).accept & ~lossless_test(v, self.q_mode)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if self.variant == "paper" or v.sampling.greedy:
            return residual(v, node)
        p, children = v.p_at(node), v.children_of(node)
        left = (p.gather(1, v.draft.tokens) - self._q(v)).clamp(min=0.0)
        left = p.scatter_reduce(1, v.draft.tokens, torch.where(children, left, torch.inf), "amin")
        return torch.where(left.sum(-1, keepdim=True) > 0, left, p)

    def _released(self, v: Verification) -> tuple[Tensor, Tensor]:
        """[B, N] r, and bool: the relaxed test accepts the node."""
        emb, logit, tau = self.bounds.of_nodes(v)
        u, budget = torch.minimum(emb, logit), tau * (1.0 - self.theta)
        ratio = (v.p_token / self._q(v).clamp(min=torch.finfo(v.p.dtype).tiny)).clamp(max=1.0)
        raised = ratio + self.keep * (1.0 - ratio) * (1.0 - u / budget)
        return ratio, (v.p_token >= self.floor) & (u < budget) & (v.u < raised)

    def _q(self, v: Verification) -> Tensor:
        """[B, N] the probability with which the node's token is taken to have been proposed."""
        if v.draft.q is None or not (v.draft.sampled or self.q_mode == "draft"):
            return torch.ones_like(v.u)
        return v.draft.q
