"""Speculative cascade with the OPT deferral rule: keep the draft's distribution where the target is no surer.

    defer  iff  max_v q(v) < max_v p(v) - alpha TV(p, q)        TV = sum_v max(0, p(v) - q(v))
    not deferred: accept x;   deferred: the lossless test, and norm(max(0, p - q)) after a rejection;   bonus: p

Per context the emitted token has the distribution q (not deferred) or p (deferred). alpha < -1 defers everywhere and is
lossless (the maxima differ by at most TV); alpha >= 1 never defers. No setting in between is lossless. At temperature
0: greedy matching.

gate
  processed  the maxima of the processed p and q.
  paper      the maxima of the raw softmax (temperature 1, no filter), TV still processed. Lossless only as alpha goes
             to minus infinity.
head         beta: defer also where p(x) < (1 - beta) max_v p(v), so that no token far below the target's best is kept
             untested (`opt_head` of chiatzenw-cur/lossy-token-eff 16b878fc); null: no such test.

Source: Narasimhan et al. 2024, "Faster Cascades via Speculative Decoding", section 4.3;
graphcore-research/relaxed-spec-dec-repro c28353fe, `spec-casc-opt` (arXiv 2607.08690; alpha -0.1, 0, 0.05; gate
processed).

In docs/rules.md
  accepts  everything where `max q >= max p - alpha TV(p, q)`, else `u q(x) < p(x)`
  reads    p, q; sampled chains
  emits    norm max(0, p - q)
  strict   `gate=processed alpha=-1.1`: lossless; `gate=paper`: only as alpha goes to minus infinity
  source   speculative cascades; the study arXiv 2607.08690 (`spec-casc-opt`)
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import Sampling, ThresholdView, Verification
from methods.rules.lossless import ThresholdChain


class CascadeOpt(ThresholdChain):
    """alpha: how much surer the target must be, in units of TV. gate, head: as above."""

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
