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

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import DraftCapabilities, Sampling, ThresholdView, Verification
from methods.rules.lossless import ThresholdRule

Divergence = Literal[
    "js",
    "js_released",
    "kl",
    "kl_released",
    "tv",
    "topk_js",
    "topk_js_released",
    "topk_kl",
    "topk_kl_released",
    "topk_tv",
]
TOP_K = 50
EPSILON = 1e-10
ENTRIES = 100_000
"""So many probabilities at a time on a CPU: what is computed between stays in its cache."""


def divergence(kind: Divergence, p: Tensor, q: Tensor) -> Tensor:
    """Div(p, q) over the last dimension: two distributions [..., V] -> [...] in nats (tv: a share
    of the mass)."""
    both, plain = _buckets(p, q) if kind.startswith("topk_") else (p, q), kind.removeprefix("topk_")
    return divergences([plain], *both)[plain]


def divergences(kinds: Sequence[str], p: Tensor, q: Tensor) -> dict[str, Tensor]:
    """Several divergences, none of them top-k, of two distributions [..., V], each [...]: they
    share logarithms."""
    size = max(1, ENTRIES // p.shape[-1]) if p.device.type == "cpu" else max(1, p[..., 0].numel())
    contexts = zip(
        p.reshape(-1, p.shape[-1]).split(size), q.reshape(-1, q.shape[-1]).split(size), strict=True
    )
    parts = [
        [formulas[kind]() for kind in kinds] for formulas in (_formulas(*some) for some in contexts)
    ]
    whole = (torch.cat(pieces).view(p.shape[:-1]) for pieces in zip(*parts, strict=True))
    return dict(zip(kinds, whole, strict=True))


def _formulas(p: Tensor, q: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Each divergence of p and q [..., V] by name, computed when it is called. In KL a token with p
    = 0 adds 0, or NaN if q = 0 as well; equal distributions have exactly 0."""
    log_p, log_q, m = p.log(), q.log(), (p + q) / 2
    log_m = m.log()

    def kl(p: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
        return (p * (torch.where(p > 0, log_p, 0.0) - log_q)).sum(-1)

    def entropies(x: Tensor, log: Tensor) -> Tensor:
        return torch.where(x > 0, -x * log, 0.0)

    return {
        "js": lambda: (entropies(m, log_m) - (entropies(p, log_p) + entropies(q, log_q)) / 2).sum(
            -1
        ),
        "js_released": lambda: (m * (log_m - (log_p + log_q) / 2)).sum(-1),
        "kl": lambda: kl(p, log_p, log_q),
        "kl_released": lambda: kl(q, log_q, log_p),
        "tv": lambda: (p - q).abs().sum(-1) / 2,
    }


def _buckets(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """The target's top tokens and one bucket for the others; a vocabulary of up to 50 tokens has no
    others."""
    if p.shape[-1] <= TOP_K:
        return p, q
    top, ids = p.topk(TOP_K, dim=-1)
    # The tail is summed, not 1 - top: the difference would be rounding noise, and its logarithm
    # too.
    tail_p, tail_q = (x.scatter(-1, ids, 0.0).sum(-1, keepdim=True) for x in (p, q))
    return torch.cat([top, tail_p], -1), torch.cat([q.gather(-1, ids), tail_q], -1)


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
