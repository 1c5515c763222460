"""Calibrated speculative decoding (CSD): keep a mismatch that is a frequent one, where the target does not mind it.

    accept x  iff  x = m,  or  N(x, m) >= count  and  z(x) - z(m) >= ln tau          m = argmax z
    correction and bonus: m

z are the target's raw logits in the context of x. N(x, m) is how often the draft put x where the target put m, in a
frozen table of the mismatches in `answers`, a file of `python -m bench.train mismatches`. The paper's table grows while
prompts are decoded, so that tokens would depend on the order of prompts, on batches, workers and restarts.

tau = 1 keeps the argmax and exact ties with it. Temperature 0 and chains only, as in the paper. Without a table the
rule is `near_top` with threshold=tau.
Source: arXiv 2604.13634 (ACL 2026): tau 0.01; 2,000 to 8,000 calibration samples; no code, no value for its count.

In docs/rules.md
  accepts  the argmax m, or a mismatch that `answers` has at least `count` times, with `z(x) - z(m) >= ln tau`
  reads    z, a table of frequent mismatches; chains; T = 0
  emits    argmax z
  strict   `tau=1`: greedy matching but for ties
  source   CSD, arXiv 2604.13634
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field, PositiveInt, PrivateAttr
from torch import Tensor

from methods.rules._files import Answers, FileMissing, made_by
from methods.rules.base import Decision, DraftCapabilities, Model, Rule, Sampling, Target, ThresholdView, Verification


class Csd(Rule):
    """answers: the file of mismatches. count: how often a pair must stand in it. tau: smallest p0(x)/p0(m)."""

    chain_only: ClassVar[bool] = True
    greedy_only: ClassVar[bool] = True
    answers: Annotated[Path, made_by("bench.train mismatches")] | None = None
    count: PositiveInt = 5
    tau: float = Field(0.01, gt=0.0, le=1.0)
    _pairs: Tensor | None = PrivateAttr(None)

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.answers is None:
            raise FileMissing("answers", "rule=csd needs the mismatches of its pair: collect them with `python -m "
                                         "bench.train mismatches pair=...` and give rule.answers=FILE")

    def bind(self, target: Target, model: Model | None) -> Csd:
        assert self.answers is not None, "check() refuses a rule without its file"
        counted = Answers.read(self.answers, target, "rule.answers").mismatches()
        return self.with_pairs([pair for pair, count in counted.items() if count >= self.count], target.device,
                               target.vocab_size)

    def with_pairs(self, pairs: list[tuple[int, int]], device: torch.device | str, vocab: int) -> Csd:
        """The rule with these pairs (drafted token, target's token), whatever their number."""
        bound = self.model_copy()
        codes = [drafted * vocab + best for drafted, best in pairs]
        bound._pairs = torch.tensor([-1, *sorted(codes)], device=device)  # never empty
        return bound

    def decide(self, v: Verification) -> Decision:
        return Decision(self.threshold_view(v).kept, v.is_argmax)

    def threshold_view(self, v: Verification) -> ThresholdView:
        assert self._pairs is not None, "the rule is not bound to a pair"
        pair = v.draft.tokens * v.logits.shape[-1] + v.at_parent(v.argmax)
        place = torch.searchsorted(self._pairs, pair).clamp(max=len(self._pairs) - 1)
        frequent = self._pairs[place] == pair
        return ThresholdView("tau", ">=", self.tau, torch.exp(-v.regret), v.is_argmax | frequent, v.is_argmax)
