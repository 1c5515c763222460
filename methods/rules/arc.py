"""ARC-Decode's acceptance: accept a token if taking it for the target's choice can hardly change what comes next.

In the context of the child x, with t the target's most likely token, p the processed target distribution (clamped from
below at 1e-10), e the target's input embeddings, W = diag(1/std of each embedding dimension), section 3.3:

    U_emb = c |W (e_x - e_t)|^2 (eq. 10)    U_logit = a (log p(t) - log p(x))^2 (eq. 13)    U = min of both (eq. 14)
    LTS = 1 - U/tau (eq. 15);   accept x  iff  LTS >= theta, i.e. U <= tau (1 - theta);   else the lossless test decides

c, a (the paper's alpha kappa) and tau are quantiles measured for one target and belong to it: `python -m
bench.train calibrate` writes them (Algorithm 1), and those of another model are refused. They may depend on the
entropy of p (buckets, Appendix A.1). U is meant to bound the Jensen-Shannon divergence (nats) between what follows x
and what follows t. No such divergence exceeds ln 2: with tau >= ln 2 the certified bound says nothing, which is
warned of and flagged as `vacuous_bound`.

variant    paper or released: see the classes in methods/rules/_arc_variants.py.
q_mode     of the lossless test, or of p/q in `released`; see `lossless`. The authors' code is `draft`.

In docs/rules.md
  accepts  `min(U_emb, U_logit) <= tau (1 - theta)`, a bound on what the token can change, else the lossless
           test
  reads    p, input embeddings of the target, measured constants; any candidates
  emits    the lossless residual (`released`: its own)
  strict   none: theta = 1 still keeps tokens that cost nothing
  source   ARC-Decode: `paper` and the authors' code (`released`)
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PrivateAttr
from torch import Tensor

from methods.rules._arc_constants import Constants
from methods.rules._arc_variants import VARIANTS, Bounds, Variant, score
from methods.rules._files import FileMissing, made_by
from methods.rules.base import DraftCapabilities, Rule, ThresholdView
from methods.rules.lossless import QMode
from methods.rules.verification import Verification
from methods.rules.walk import Decision
from methods.sampling import Sampling

if TYPE_CHECKING:  # transformers is slow to import
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head

log = logging.getLogger(__name__)


class Arc(Rule):
    """theta: smallest accepted score; the paper's run has 0.3. constants: what `bench.train calibrate` wrote for this
    target. keep, floor: of the released variant."""

    variant: Literal["paper", "released"] = "paper"
    theta: float = Field(0.3, le=1.0)
    constants: Annotated[Path, made_by("bench.train calibrate")] | None = None
    q_mode: QMode = "exact"
    keep: float = Field(0.25, ge=0.0, le=1.0)
    floor: float = Field(0.05, ge=0.0, le=1.0)
    _acceptance: Variant | None = PrivateAttr(None)

    def is_lossless(self, sampling: Sampling) -> bool:
        return self.variant == "released" and sampling.greedy

    def needs_q(self, sampling: Sampling) -> bool:
        return self.q_mode == "draft" and not sampling.greedy

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.constants is None:
            raise FileMissing("arc", "rule=arc needs constants of its target: make them with `python -m "
                                     "bench.train calibrate pair=...` and give rule.constants=FILE")

    def bind(self, target: LanguageModel, model: LanguageModel | Head | None) -> Arc:
        assert self.constants is not None, "check() refuses a rule without constants"
        constants = Constants.read(self.constants)
        if constants.fingerprint != target.fingerprint:
            raise ValueError(f"rule.constants={self.constants}: measured for {constants.target} "
                             f"({constants.fingerprint}), the target is {target.source} ({target.fingerprint}); run "
                             "`python -m bench.train calibrate`")
        if constants.vacuous:
            log.warning("rule.constants=%s: tau = %.2f is not below ln 2 = 0.69, so the bound on the next-step "
                        "divergence is vacuous", self.constants, max(bucket.tau for bucket in constants.buckets))
        return self.with_constants(constants, target.embedding)

    def with_constants(self, constants: Constants, embedding: Tensor) -> Arc:
        """The rule with these constants, on the device of the input embeddings [V, H]."""
        bound = self.model_copy()
        bounds = Bounds.from_constants(constants, embedding)
        bound._acceptance = VARIANTS[self.variant](bounds, self.theta, self.q_mode, self.keep, self.floor)
        return bound

    @property
    def acceptance(self) -> Variant:
        """The variant at work, once the rule is bound."""
        assert self._acceptance is not None, "the rule is not bound to a target"
        return self._acceptance

    def decide(self, v: Verification) -> Decision:
        return self.acceptance.decide(v)

    def statistics(self, v: Verification) -> dict[str, Tensor]:
        """Both bounds, their tau and the score, which is -inf where tau is 0 and the bound is not."""
        emb, logit, tau = self.acceptance.bounds.of_nodes(v)
        return {"u_emb": emb, "u_logit": logit, "tau": tau, "lts": score(emb, logit, tau)}

    def threshold_view(self, v: Verification) -> ThresholdView | None:
        return self.acceptance.threshold_view(v)

    def by_threshold(self, v: Verification) -> Tensor:
        return self.acceptance.by_threshold(v)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        return self.acceptance.emit(v, node)
