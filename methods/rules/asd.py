"""ASD: keep mismatches while their regret fits a budget of the whole request.

The drafted tokens of a block are x_0 ... x_(K-1), z the target's raw logits in the context of x_i. Then

    regret r_i = max z - z(x_i)          value = K - i: what keeping x_i can still win

In order: x_i equal to the target's argmax is kept and costs nothing. Any other is kept iff

    r_i / value <= regret_per_value,   the block's summed regret <= budget - spent (+ 1e-9),   and it is at most the
    max_relaxed-th of the block.

The first failure ends the block, and the target's argmax follows. Kept mismatches are charged to the request: `spent`
is its state, it begins at 0 and never falls. A tied token that is not the argmax is a mismatch of regret 0.

variant
  asd      as above.
  dspark   value (K - i)/K and no 1e-9, as the repository has it for DSpark's drafts.

Temperature 0 and chains only. Lossless where budget, regret_per_value or max_relaxed is 0 (but for tied logits, the
last excepted). Source: arXiv 2608.03447; Kissmetothemoon/ASD c9d6b680, src/asd/budget.py, which mentions a patent
application. Its settings: 8, 0.25, 2; for discovering drafts 12, 0.5, 2.

In docs/rules.md
  accepts  the argmax, or a mismatch whose regret fits the block and the request's budget
  reads    z; chains; state of the request; T = 0
  emits    argmax z
  strict   `budget=0`: greedy matching but for ties
  source   ASD: Kissmetothemoon/ASD
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor

from methods.rules.base import Decision, Rule, State, ThresholdView, Verification, Walk

EPSILON = 1e-9


class Asd(Rule):
    """Options of ASD.

    variant           asd or dspark, as above.
    budget            B, summed regret (logits) of a request's kept mismatches.
    regret_per_value  g, largest regret of one mismatch per drafted token that it can still win.
    max_relaxed       m, largest number of kept mismatches of a block.
    """

    chain_only: ClassVar[bool] = True
    greedy_only: ClassVar[bool] = True
    local: ClassVar[bool] = False
    variant: Literal["asd", "dspark"] = "asd"
    budget: float = Field(8.0, ge=0.0)
    regret_per_value: float = Field(0.25, ge=0.0)
    max_relaxed: NonNegativeInt = 2

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        """spent: [B] float64, summed regret of the mismatches kept so far."""
        return {"spent": torch.zeros(len(rows), dtype=torch.float64, device=device)}

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        mismatch = path.kept & (v.draft.depth > 0) & ~v.is_argmax
        return {"spent": v.state["spent"] + torch.where(mismatch, v.regret, 0.0).sum(1)}

    def decide(self, v: Verification) -> Decision:
        return Decision(self.threshold_view(v).kept, v.is_argmax)

    def threshold_view(self, v: Verification) -> ThresholdView:
        """By regret_per_value: in a replay the budget is what the traced run had spent."""
        value = v.drafted[:, None] - v.draft.depth + 1
        left = self.budget - v.state["spent"]
        if self.variant == "dspark":
            value = value / v.drafted[:, None]
        else:
            left = left + EPSILON
        mismatch = ~v.is_argmax & (v.draft.depth > 0)
        summed = torch.where(mismatch, v.regret, 0.0).cumsum(1)
        affordable = (summed <= left[:, None]) & (mismatch.cumsum(1) <= self.max_relaxed)
        return ThresholdView("regret_per_value", "<=", self.regret_per_value, v.regret / value,
                             v.is_argmax | affordable, v.is_argmax)
