"""Speculative contrastive decoding: sample from the target's logits with the draft's subtracted.

    pi = softmax(((1 + beta) z - beta z_draft)/T_c) on the tokens of the gate, 0 elsewhere
    accept x  iff  u < min(1, pi(x)/q(x));   rejected: norm(max(0, pi - q));   bonus: pi

z and z_draft are raw logits in the context of x, q the processed draft distribution; T_c is `temperature`, or the
sampling temperature. Every emitted token has exactly the distribution pi, the bonus too, for which the drafter reads
the last drafted token: one more of its forwards per cycle. beta = 0 with T_c = T and gate = support is lossless; no
other setting is. Temperature 0 is refused: the source defines no greedy form. Traces have no replay: a token can pass
at some beta and fail at smaller and at larger ones.

gate
  support    tokens with p(v) > 0, p being the processed target distribution.
  plausible  tokens with z(v) >= max z + T ln alpha, T the sampling temperature.

Source: graphcore-research/relaxed-spec-dec-repro c28353fe, `spec-cont-dec` (arXiv 2607.08690; beta 0.1, 0.5, 1; its
README calls the code's beta alpha); Yuan et al. 2023, "Speculative Contrastive Decoding".

In docs/rules.md
  accepts  `u q(x) < pi(x)`, pi = softmax of (1 + beta) z - beta z_draft
  reads    z, z_draft, p (gate), q; sampled chains; z_draft behind the last token too
  emits    norm max(0, pi - q); bonus from pi
  strict   `beta=0`: lossless; refused at T = 0
  source   speculative contrastive decoding; the study arXiv 2607.08690 (`spec-cont-dec`)
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from methods.rules.base import DraftCapabilities, Sampling, Verification
from methods.rules.lossless import ChainRule, without_draft


class Contrastive(ChainRule):
    """beta: weight of the draft's logits. temperature: T_c; null for the sampling temperature. gate: as above. alpha:
    of the plausible gate."""

    beta: float = Field(0.5, ge=0.0)
    temperature: float | None = Field(None, gt=0.0)
    gate: Literal["support", "plausible"] = "support"
    alpha: float = Field(0.1, gt=0.0, le=1.0)

    def is_lossless(self, sampling: Sampling) -> bool:
        return self.beta == 0.0 and self.gate == "support" and self.temperature in (None, sampling.temperature)

    def bonus_needs_q(self, sampling: Sampling) -> bool:
        return True

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        if sampling.greedy:
            raise ValueError("rule=contrastive is defined for sampling, not for temperature 0: set "
                             "decoding.temperature above 0 or take another rule")
        super().check(candidates, sampling)
        if not candidates.full_vocabulary:
            raise ValueError("rule=contrastive subtracts the draft's logits, and the vocabulary of drafter="
                             f"{candidates.drafter} is reduced: use drafter=model or early_exit")

    def accept(self, v: Verification, lossless: Tensor) -> Tensor:
        return v.u * v.q_token < v.of_token(self._pi(v.logits, v.draft_logits, v.p, v.sampling))

    def emit(self, v: Verification, node: Tensor) -> Tensor:
        pi = self._pi(v.at(v.logits, node), v.at(v.draft_logits, node), v.p_at(node), v.sampling)
        return without_draft(v, node, pi, pi)

    def _pi(self, logits: Tensor, draft_logits: Tensor, p: Tensor, sampling: Sampling) -> Tensor:
        """[..., V] from the contexts' raw logits of both models and the processed p, all [..., V]."""
        if self.gate == "support":
            gate = p > 0
        else:
            gate = logits >= logits.amax(-1, keepdim=True) + sampling.temperature * math.log(self.alpha)
        mixed = (1.0 + self.beta) * logits - self.beta * draft_logits
        return (mixed / (self.temperature or sampling.temperature)).masked_fill(~gate, -torch.inf).softmax(-1)
