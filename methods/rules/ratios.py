"""Rules for tokens drawn from the draft that loosen the test u < p/q."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.distributions import divergence
from methods.rules.base import Sampling, ThresholdView, Verification
from methods.rules.lossless import DrawnRule, WarmThreshold, draft_p, without_draft


class Lossy(DrawnRule, WarmThreshold):
    """Lossy speculative decoding: accept as if the draft had given the token less probability than
    it did.

        accept x  iff  u < min(1, p(x)/((1 - alpha) q(x)));   rejected: norm(max(0, p - q));
                  bonus: p

    p and q are the processed distributions of target and draft in the context of x. A larger alpha
    is looser. alpha = 0 is lossless; no other value is: a token with p < q is kept too often. At
    temperature 0: greedy matching. Source: graphcore-research/relaxed-spec-dec-repro c28353fe,
    `mentored-dec` (arXiv 2607.08690; alpha 0.3, 0.7, 0.95): the lossy speculative decoding of Zhou
    et al. 2024 ("DistillSpec") with beta = 1. It is not mentored decoding
    (vivien000/mentored_decoding), which solves for a KL budget per token and has another residual.

    alpha: share of the draft's probability that is waived; the study ran 0.3, 0.7 and 0.95."""

    alpha: float = Field(0.3, ge=0.0, lt=1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.alpha == 0.0

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        score = 1.0 - v.p_token / (v.u * v.q_token)
        return self.threshold_on("alpha", "<", score, lossless)


class Ears(DrawnRule, WarmThreshold):
    """EARS: raise the acceptance of every token by a share of the target's uncertainty.

        accept x  iff  u < min(1, p(x)/q(x) + tolerance (1 - max_v p(v)));   rejected: norm(max(0, p
                  - q));   bonus: p

    p and q are the processed distributions in the context of x; a deterministic candidate has q(x)
    = 1, and is taken out of p when it is rejected. Tokens with p(x) = 0 profit too. tolerance = 0
    is lossless; no other value is. At temperature 0: greedy matching. Source: arXiv 2512.13194
    (seen in excerpt); the EARS patch of wings-accel for vllm-ascend, where it was not merged
    (default 0, used 0.3 and 0.5). Its variants floor u - tolerance at 0.01, which is another rule.

    tolerance: share of 1 - max p that is added; the patch was used with 0.3 and 0.5, and is off (0)
    by default."""

    sampled_only = False
    tolerance: float = Field(0.3, ge=0.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.tolerance == 0.0

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        score = (v.u - v.p_token / draft_p(v)) / (1.0 - v.at_parent(v.p.amax(-1)))
        return self.threshold_on("tolerance", "<", score, lossless)


EPSILON = 1e-10


class EntropyVerify(DrawnRule, WarmThreshold):
    """Entropy verification of vllm-ascend: the less certain the target, the more the acceptance is
    raised.

        accept x  iff  u < min(1, p(x)/(theta q(x)))        theta = min(exp(-alpha H), threshold)
        rejected: norm(max(0, p - q));   bonus: p

    p and q are the processed distributions in the context of x; a deterministic candidate has q(x)
    = 1, and is taken out of p when it is rejected. H = -sum_v p0(v) ln(p0(v) + 1e-10), nats, of p0
    = softmax of the raw logits. At temperature 0: greedy matching.

    alpha = 0 with threshold = 1 is lossless. The DEFAULTS never are, whatever the entropy: theta <=
    0.95 raises every acceptance. Source: vllm-project/vllm-ascend 182b75ea,
    vllm_ascend/sample/rejection_sampler.py (defaults 0.95 and 0.4; its tests also use alpha 1).
    There H is that of the processed logits where processed log-probabilities were asked for, since
    these are scaled in place.

    threshold: largest theta. alpha: how fast theta falls with the entropy."""

    sampled_only = False
    threshold: float = Field(0.95, gt=0.0, le=1.0)
    alpha: float = Field(0.4, ge=0.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or (self.threshold == 1.0 and self.alpha == 0.0)

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        """The smaller of two numbers is exceeded where one of them is."""
        p0 = v.logits.softmax(-1)
        entropy = -(p0 * (p0 + EPSILON).log()).sum(-1)
        ratio = v.p_token / (v.u * draft_p(v))
        uncertain = ratio > v.at_parent((-self.alpha * entropy).exp())
        return self.threshold_on("threshold", ">", ratio, lossless | uncertain)


class Cactus(DrawnRule, WarmThreshold):
    """Cactus: raise the acceptance of a drafted token by an amount that bounds the divergence from
    the target.

        accept x  iff  u < min(1, h/q(x))        h = min(1, p(x) + sqrt(2 delta p(x) (1 - p(x))))
        rejected: draw from norm(max(0, H - q))   H(x) = h,  H(v) = p(v) (1 - h)/(1 - p(x))
                                                  elsewhere (p(v) if p(x) = 1)
        bonus: draw from p

    p and q are the processed distributions of target and draft in the context of x. The residual
    depends on x. delta = 0 is lossless; no other value is. At temperature 0: greedy matching.
    Source: MANGA-UOFA/Cactus 3b01b816 (default delta 1) and, with the same formula,
    graphcore-research/ relaxed-spec-dec-repro c28353fe (arXiv 2607.08690; delta 0.1, 0.25, 1, 10).

    delta: size of the relaxation; the study ran 0.1, 0.25, 1 and 10."""

    delta: float = Field(1.0, ge=0.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.delta == 0.0

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        """Accepted iff u q < p, or (u q - p)^2 / (2 p (1 - p)) < delta, which is u q < h."""
        missing = (v.u * v.q_token - v.p_token).clamp(min=0.0)
        score = missing.square() / (2.0 * v.p_token * (1.0 - v.p_token))
        return self.threshold_on("delta", "<", score, lossless)

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        p = v.p_at(node)
        if v.sampling.greedy:
            return p
        # the root where there is none, and then H is not used
        child = v.children_of(node).long().argmax(1)
        token = v.at(v.draft.tokens, child)[:, None]
        at_token = p.gather(1, token)
        raised = (at_token + (2.0 * self.delta * at_token * (1.0 - at_token)).sqrt()).clamp(max=1.0)
        scale = torch.where(at_token < 1.0, (1.0 - raised) / (1.0 - at_token), 1.0)
        return without_draft(v, node, (p * scale).scatter(1, token, raised), p)

    def drawn_law(self, p: Tensor, q: Tensor) -> Tensor:
        """R(y) = min(q, h)(y) + sum_x w(x) max(0, s(x) p(y) - q(y)), with s(x) = (1 - h(x))/(1 -
        p(x)) and w(x) the rejected mass of x over the mass of its residual. Tokens x that can be
        rejected are few; y counts for those with s(x) > q(y)/p(y), so that sums over x in the order
        of s give all y at once."""
        p, q = p.double(), q.double()
        raised = (p + (2.0 * self.delta * p * (1.0 - p)).sqrt()).clamp(max=1.0)
        rejected = (q - raised).clamp(min=0.0)
        scale = ((1.0 - raised) / (1.0 - p)).masked_fill(rejected == 0, -1.0)
        scale, tokens = scale.topk(max(1, int((rejected > 0).sum(-1).max())))
        # [M, V] of the x, in this order
        counts = torch.searchsorted(-scale, -(q / p).nan_to_num(torch.inf))
        behind = [
            torch.zeros(len(p), scale.shape[-1] + 1, dtype=p.dtype, device=p.device)
            .scatter_add_(-1, counts, x)
            .flip(-1)
            .cumsum(-1)
            .flip(-1)[:, 1:]
            for x in (p, q)
        ]
        residual = (scale * behind[0] - behind[1]).clamp(min=1e-300)
        weight = (rejected.gather(-1, tokens) / residual).clamp(max=1.0)
        summed = [
            torch.nn.functional.pad(x.cumsum(-1), (1, 0)).gather(-1, counts)
            for x in (weight * scale, weight)
        ]
        return q - rejected + (p * summed[0] - q * summed[1]).clamp(min=0.0)


class RFuzzy(DrawnRule, WarmThreshold):
    """Fuzzy acceptance with a lossless fallback: accept every token where the processed
    distributions are close.

        accept x  iff  D(p, q) <= threshold  or  u < min(1, p(x)/q(x));   rejected: norm(max(0, p -
                  q));   bonus: p

    p and q are the processed distributions in the context of x. threshold = 0 is lossless exactly;
    no other value is. At temperature 0: greedy matching.

    divergence
      js   1/2 KL(p||m) + 1/2 KL(q||m) with m = (p + q)/2, nats, at most ln 2.
      kl   KL(p||q), infinite where q(v) = 0 < p(v). The authors put a floor under q, of 1.2e-38 or
           1e-30 in two implementations whose decisions differ.

    Unlike `fsd`, which compares the raw softmax of greedy drafts and draws from p after every
    rejection. Source: graphcore-research/relaxed-spec-dec-repro c28353fe, `r_fuzzy` (arXiv
    2607.08690; js 0.05, 0.2, 0.3).

    threshold: largest divergence at which everything is accepted, nats."""

    divergence: Literal["js", "kl"] = "js"
    threshold: float = Field(0.2, ge=0.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or self.threshold == 0.0

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        if self.divergence == "js":
            nats = divergence("js", v.p, v.q)
        else:  # 0 ln 0 = 0, also against q = 0: filtered tokens are common to both
            nats = (torch.xlogy(v.p, v.p) - torch.xlogy(v.p, v.q)).sum(-1)
        # no rounding passes for a threshold of 0
        score = v.at_parent(nats.clamp(min=torch.finfo(nats.dtype).tiny))
        return self.threshold_on("threshold", "<=", score, lossless)


class CascadeOpt(DrawnRule, WarmThreshold):
    """Speculative cascade with the OPT deferral rule: keep the draft's distribution where the
    target is no surer.

        defer  iff  max_v q(v) < max_v p(v) - alpha TV(p, q)        TV = sum_v max(0, p(v) - q(v))
        not deferred: accept x;   deferred: the lossless test, and norm(max(0, p - q)) after a
                                  rejection;   bonus: p

    Per context the emitted token has the distribution q (not deferred) or p (deferred). alpha < -1
    defers everywhere and is lossless (the maxima differ by at most TV); alpha >= 1 never defers. No
    setting in between is lossless. At temperature 0: greedy matching.

    gate
      processed  the maxima of the processed p and q.
      paper      the maxima of the raw softmax (temperature 1, no filter), TV still processed.
                 Lossless only as alpha goes to minus infinity.
    head         beta: defer also where p(x) < (1 - beta) max_v p(v), so that no token far below the
                 target's best is kept untested (`opt_head` of chiatzenw-cur/lossy-token-eff
                 16b878fc); null: no such test.

    Source: Narasimhan et al. 2024, "Faster Cascades via Speculative Decoding", section 4.3;
    graphcore-research/relaxed-spec-dec-repro c28353fe, `spec-casc-opt` (arXiv 2607.08690; alpha
    -0.1, 0, 0.05; gate processed).

    alpha: how much surer the target must be, in units of TV."""

    alpha: float = 0.0
    gate: Literal["processed", "paper"] = "processed"
    head: float | None = Field(None, ge=0.0, le=1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return sampling.greedy or (self.gate == "processed" and self.alpha < -1.0)

    def view(self, v: Verification, lossless: Tensor) -> ThresholdView:
        processed = self.gate == "processed"
        p, q = (v.p, v.q) if processed else (v.logits.softmax(-1), v.draft_logits.softmax(-1))
        tv = (v.p - v.q).clamp(min=0.0).sum(-1)
        surer = v.at_parent((p.amax(-1) - q.amax(-1)) / tv)
        kept = torch.ones_like(lossless)
        if self.head is not None:
            kept = lossless | (v.p_token >= (1.0 - self.head) * v.at_parent(v.p.amax(-1)))
        return ThresholdView("alpha", "<=", self.alpha, surer, kept, lossless)
