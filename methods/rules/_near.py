"""What the rules share that keep a token near the target's best: the thinking span of a request, and the top N."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from methods.rules.base import DraftCapabilities, Rule
from methods.rules.verification import State, Verification
from methods.rules.walk import Walk
from methods.sampling import Sampling

if TYPE_CHECKING:  # transformers is slow to import
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


def in_top(v: Verification, count: int) -> Tensor:
    """[B, N] bool: the node's token is one of the target's `count` best at its parent; all that tie with the last
    count, but of one the first argmax alone."""
    if count == 1:
        return v.is_argmax
    lowest = v.logits.topk(min(count, v.logits.shape[-1]), dim=-1).values[..., -1]
    return v.of_token(v.logits) >= v.at_parent(lowest)


class ThinkingRule(Rule):
    """A rule that may relax inside a thinking span alone.

    span   everywhere or thinking. A request starts inside a span if its prompt holds the token `begin` (an `end` behind
           it is overlooked). After each block the tokens it emitted are scanned in order, begin opens the span and end
           closes it, from the next block on. The answer's first token, which belongs to no block, is scanned as well.
    begin  token id that opens a thinking span; only for span=thinking.
    end    token id that closes it.
    """

    span: Literal["everywhere", "thinking"] = "everywhere"
    begin: NonNegativeInt | None = None
    end: NonNegativeInt | None = None

    def check(self, candidates: DraftCapabilities, sampling: Sampling) -> None:
        super().check(candidates, sampling)
        if self.span == "thinking" and (self.begin is None or self.end is None or self.begin == self.end):
            raise ValueError(f"rule={self.name} with span=thinking needs two tokens, not begin={self.begin} and "
                             f"end={self.end}: give rule.begin=ID rule.end=ID, or rule.span=everywhere")

    def bind(self, target: LanguageModel, model: LanguageModel | Head | None) -> Rule:
        if self.span == "thinking" and max(self.begin or 0, self.end or 0) >= target.vocab_size:
            raise ValueError(f"rule={self.name}: begin={self.begin} and end={self.end} must be token ids of "
                             f"{target.source}, whose vocabulary has {target.vocab_size} entries")
        return self

    def start(self, rows: Sequence[Sequence[int]], device: torch.device) -> State:
        """thinking: [B] bool, the request is inside a thinking span."""
        if self.span == "everywhere":
            return {}
        inside = [row[-1] == self.begin or (self.begin in row and row[-1] != self.end) for row in rows]
        return {"thinking": torch.tensor(inside, device=device)}

    def next_state(self, v: Verification, path: Walk, token: Tensor) -> State:
        if self.span == "everywhere":
            return {}
        assert self.begin is not None and self.end is not None, "check() refuses a span without its tokens"
        kept, depth = path.kept & (v.draft.depth > 0), v.draft.depth

        def last(which: int) -> Tensor:
            """[B] place in the block of the last such token; 0 if there is none."""
            in_draft = torch.where(kept & (v.draft.tokens == which), depth, 0).amax(1)
            return torch.where(token == which, path.length + 1, in_draft)

        begin, end = last(self.begin), last(self.end)
        return {"thinking": torch.where(begin == end, v.state["thinking"], begin > end)}
