"""Fuzzy speculative decoding: accept any draft token where draft and target agree as distributions.

    accept x  iff  Div(p, q) <= threshold   (p target, q draft, both in the context of x's parent)

Holsman, Huang and Dhingra 2025, section 4; divergences in Appendix A, natural log (nats). With m =
(p + q)/2:

  js           1/2 KL(p||m) + 1/2 KL(q||m), at most ln 2 (Appendix A)
  js_released  1/2 KL(m||p) + 1/2 KL(m||q), unbounded: what the authors' code (maxholsman/fsd)
               computes under the name JS. The paper's tables and its thresholds up to 1.0 belong to
               this one.
  kl           KL(p||q) (Appendix A)            kl_released  KL(q||p), the code's "kl_div"
  tv           1/2 sum |p - q|
  topk_...     any of the above over 51 buckets: the target's 50 most likely tokens and the rest in
               one

p and q are the softmax of the raw logits (temperature 1, no top-k or top-p), as in the code.
processed=true takes the processed distributions, with 1e-10 added to every probability before
renormalising, as the code does to keep logarithms finite. KL is infinite where the second argument
is 0, and js_released, kl and kl_released are NaN where both are 0 (float32 underflow); NaN rejects,
again as in the code. The comparison is <= as in the code (paper: <). A head whose draft vocabulary
lacks tokens has q = 0 there, so kl and js_released would reject everything: refused.

Rejection and bonus: draw from the processed p, without a residual (section 4); correction=greedy
takes the target's argmax instead (section 6.3). On a tree all children of a node share its
divergence, so an accepted context goes on with the draft's best child. The paper drafts greedily.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from methods.distributions import Divergence, divergence
from methods.rules.base import DraftCapabilities, Sampling, ThresholdView, Verification
from methods.rules.lossless import ThresholdRule

EPSILON = 1e-10


def smooth(p: Tensor) -> Tensor:
    """Add a little everywhere, so that filtered tokens have a logarithm."""
    p = p + EPSILON
    return p / p.sum(-1, keepdim=True)


class Fsd(ThresholdRule):
    """threshold: largest accepted divergence, in nats (tv: 0 to 1). Table 3 has, with js_released,
    0.4 for Qwen2.5, 0.3 for Llama 3.1 and 0.7 for Gemma 2."""

    divergence: Divergence = "js_released"
    threshold: float = Field(0.4, ge=0.0)
    processed: bool = False
    correction: Literal["sample", "greedy"] = "sample"

    def needs_q(self, sampling: Sampling) -> bool:
        return True

    def emits_argmax(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.correction == "greedy"

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.processed and sampling.greedy:
            raise ValueError(
                "rule=fsd with rule.processed=true compares distributions at the decoding "
                "temperature, here 0: set decoding.temperature above 0 or rule.processed=false"
            )
        infinite = (
            self.divergence.removeprefix("topk_") in ("kl", "js_released") and not self.processed
        )
        if infinite and not candidates.full_vocabulary:
            raise ValueError(
                f"rule=fsd with rule.divergence={self.divergence} is infinite where q is 0, and "
                f"the vocabulary of drafter={candidates.drafter} is reduced: set "
                "rule.divergence=js, tv or kl_released"
            )

    def threshold_view(self, v: Verification) -> ThresholdView:
        return self.threshold_on("threshold", "<=", v.at_parent(self._divergence(v)), v.none)

    def _divergence(self, v: Verification) -> Tensor:
        """[B, N] divergence in each context; a trace asks for it again."""
        note = f"fsd {self.divergence} processed={self.processed}"
        if note not in v.notes:
            if self.processed:
                p, q = smooth(v.p), smooth(v.q)
            else:
                p, q = v.logits.softmax(-1), v.draft_logits.softmax(-1)
            v.notes[note] = divergence(self.divergence, p, q)
        return v.notes[note]
