"""ARC-Decode's acceptance: keep a token if taking it for the target's choice can hardly change what comes next.

In the context of the child x, with t the target's most likely token, p the processed target distribution (clamped from
below at 1e-10), e the target's input embeddings, W = diag(1/std of each embedding dimension), section 3.3:

    U_emb = c |W (e_x - e_t)|^2 (eq. 10)    U_logit = a (log p(t) - log p(x))^2 (eq. 13)    U = min of both (eq. 14)
    LTS = 1 - U/tau (eq. 15);   accept x  iff  LTS >= theta, i.e. U <= tau (1 - theta);   else the lossless test decides

c, a (the paper's alpha kappa) and tau are quantiles measured for one target and belong to it: `python -m
bench.calibrate` writes them (Algorithm 1), and those of another model are refused. They may depend on the entropy of p
(buckets, Appendix A.1). U is meant to bound the Jensen-Shannon divergence (nats) between what follows x and what
follows t. No such divergence exceeds ln 2: with tau >= ln 2 the certified bound says nothing, which is warned of and
noted as `vacuous_bound`.

variant
  paper     as above; theta = 1 accepts only tokens that cost nothing (t itself, and ties with it) and is lossless
            otherwise. At temperature 0, p is a point mass and the lossless test is greedy matching.
  released  what the authors' repository (NeuraLiying/ARC-Decode) does by default. T=0: greedy matching. T>0, with
            r = min(1, p(x)/q(x)) and B = tau (1 - theta): accept with probability r; if that fails, p(x) >= 0.05 and
            U < B, accept if the same random number is below r + 0.25 (1 - r)(1 - U/B). p is not changed between
            siblings; all rejected: draw from max(0, p - q) at the children and p elsewhere. Its shipped constants come
            from MT-Bench questions and all have tau > ln 2. It also chooses constants and pruning by keywords in the
            prompt (mathematics, code); that is left out here on purpose, for it tells benchmarks apart.
q_mode     of the lossless test, resp. of r; see `lossless`. The authors' code is `draft`.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from torch import Tensor

from methods.rules._files import made_by
from methods.rules.base import DraftCapabilities, Rule, ThresholdView
from methods.rules.lossless import QMode, lossless_test, residual
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.sampling import Sampling

EPSILON = 1e-10
VACUOUS = math.log(2.0)
"""Nats; no Jensen-Shannon divergence is larger."""

log = logging.getLogger(__name__)


class Bucket(BaseModel):
    """Constants for contexts of similar entropy; `n` positions were measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    c: float = Field(ge=0)
    alpha_kappa: float = Field(ge=0)
    tau: float = Field(ge=0)
    n: int = Field(ge=1)


class Constants(BaseModel):
    """What `bench.calibrate` writes. `edges` part the contexts' entropies into buckets, `inv_std` is W's diagonal."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    target: str
    fingerprint: str
    inv_std: list[float]
    edges: list[float] = []
    buckets: list[Bucket] = Field(min_length=1)
    provenance: dict[str, Any] = {}

    @property
    def vacuous(self) -> bool:
        return any(bucket.tau >= VACUOUS for bucket in self.buckets)

    @classmethod
    def read(cls, path: Path) -> Constants:
        """Raises ValueError, one line."""
        try:
            found = cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError as error:
            first = error.errors()[0]
            where = "".join(f"{part}: " for part in first["loc"])
            raise ValueError(f"{path}: not constants of bench.calibrate: {where}{first['msg']}") from error
        if len(found.buckets) != len(found.edges) + 1:
            raise ValueError(f"{path}: {len(found.edges)} edges cannot part {len(found.buckets)} buckets")
        return found


def entropy(p: Tensor) -> Tensor:
    """Entropy over ln V of distributions [..., V] -> [...] in [0, 1]."""
    return torch.special.entr(p).sum(-1) / math.log(p.shape[-1])


def _score(emb: Tensor, logit: Tensor, tau: Tensor) -> Tensor:
    """LTS = 1 - U/tau (eq. 15); 1 where nothing is at stake."""
    u = torch.minimum(emb, logit)
    return 1.0 - torch.where(u > 0, u / tau, 0.0)


class Arc(Rule):
    """theta: smallest accepted score; the paper's run has 0.3. constants: file of `bench.calibrate` for this target."""

    variant: Literal["paper", "released"] = "paper"
    theta: float = Field(0.3, le=1.0)
    constants: Annotated[Path, made_by("bench.calibrate")] | None = None
    q_mode: QMode = "exact"
    keep: float = Field(0.25, ge=0.0, le=1.0)
    floor: float = Field(0.05, ge=0.0, le=1.0)
    _c: Tensor | None = PrivateAttr(None)
    _alpha_kappa: Tensor | None = PrivateAttr(None)
    _tau: Tensor | None = PrivateAttr(None)
    _edges: Tensor | None = PrivateAttr(None)
    _inv_std: Tensor | None = PrivateAttr(None)
    _embedding: Tensor | None = PrivateAttr(None)

    def needs_q(self, sampling: Sampling) -> bool:
        return self.q_mode == "draft" and not sampling.greedy

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.constants is None:
            raise ValueError("rule arc needs constants of its target: make them with `python -m bench.calibrate "
                             "pair=...` and give rule.constants=FILE")

    def bind(self, target, model) -> Arc:
        found = Constants.read(self.constants)
        if found.fingerprint != target.fingerprint:
            raise ValueError(f"rule.constants={self.constants}: measured for {found.target} ({found.fingerprint}), the "
                             f"target is {target.source} ({target.fingerprint}); run `python -m bench.calibrate`")
        if found.vacuous:
            log.warning("rule.constants=%s: tau = %.2f is not below ln 2 = 0.69, so the bound on the next-step "
                        "divergence is vacuous", self.constants, max(bucket.tau for bucket in found.buckets))
        return self.with_constants(found, target.embedding)

    def with_constants(self, found: Constants, embedding: Tensor) -> Arc:
        """The rule with these constants, on the device of the input embeddings [V, H]."""
        bound = self.model_copy()
        of = [[getattr(bucket, name) for bucket in found.buckets] for name in ("c", "alpha_kappa", "tau")]
        bound._c, bound._alpha_kappa, bound._tau, bound._edges, bound._inv_std = (
            torch.tensor(x, dtype=torch.float32, device=embedding.device) for x in (*of, found.edges, found.inv_std))
        bound._embedding = embedding
        return bound

    def bounds(self, v: Verification) -> tuple[Tensor, Tensor, Tensor]:
        """U_emb, U_logit and tau of each node, all [B, N]."""
        bucket = torch.bucketize(entropy(v.p), self._edges)
        c, alpha_kappa, tau = (v.at_parent(x[bucket]) for x in (self._c, self._alpha_kappa, self._tau))
        drafted, best = (self._embedding[tokens].float() for tokens in (v.draft.tokens, v.at_parent(v.argmax)))
        moved = ((drafted - best) * self._inv_std).square().sum(-1)
        margin = v.at_parent(v.p.amax(-1)).clamp(min=EPSILON).log() - v.p_token.clamp(min=EPSILON).log()
        return c * moved, alpha_kappa * margin.square(), tau

    def decide(self, v: Verification) -> Decision:
        strict = lossless_test(v)
        if self.variant == "released" and v.sampling.greedy:
            return Decision(strict)
        emb, logit, tau = self.bounds(v)
        u, budget = torch.minimum(emb, logit), tau * (1.0 - self.theta)
        notes = {"vacuous_bound": (self._tau >= VACUOUS)[torch.bucketize(entropy(v.p), self._edges)]}
        if self.variant == "paper":
            return Decision((u <= budget) | lossless_test(v, self.q_mode), strict, notes)
        ratio = (v.p_token / self._q(v).clamp(min=torch.finfo(v.p.dtype).tiny)).clamp(max=1.0)
        raised = ratio + self.keep * (1.0 - ratio) * (1.0 - u / budget)
        relaxed = (v.p_token >= self.floor) & (u < budget) & (v.u < raised)
        return Decision((v.u < ratio) | relaxed, strict, notes)

    def statistics(self, v: Verification) -> dict[str, Tensor]:
        """Both bounds, their tau and the score, which is -inf where tau is 0 and the bound is not."""
        emb, logit, tau = self.bounds(v)
        return {"u_emb": emb, "u_logit": logit, "tau": tau, "lts": _score(emb, logit, tau)}

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        if self.variant == "released":
            return None  # how far it relaxes depends on theta, not only whether
        always = torch.ones_like(v.draft.tokens, dtype=torch.bool)
        return ThresholdView("theta", ">=", self.theta, _score(*self.bounds(v)), always, lossless_test(v, self.q_mode))

    def _q(self, v: Verification) -> Tensor:
        """[B, N] the probability with which the node's token is taken to have been proposed."""
        return v.draft.q if v.draft.sampled or self.q_mode == "draft" else torch.ones_like(v.u)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        if self.variant == "paper" or v.sampling.greedy:
            return residual(v, node)
        p, children = v.p_at(node), v.children_of(node)
        left = (p.gather(1, v.draft.tokens) - self._q(v)).clamp(min=0.0)
        left = p.scatter_reduce(1, v.draft.tokens, torch.where(children, left, torch.inf), "amin")
        return torch.where(left.sum(-1, keepdim=True) > 0, left, p)
