"""State of a request: how far its answer has come, and whether it is inside a thinking span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from methods.rules.base import DraftCapabilities, Model, Rule, Sampling, State, Target, Verification, Walk

Ramp = Literal["step", "linear", "power"]


def start_count(rows: Sequence[Sequence[int]], device: torch.device) -> State:
    """answered: [B] int64, tokens of each answer so far; the prefill has given the first."""
    return {"answered": torch.ones(len(rows), dtype=torch.long, device=device)}


def count_answered(v: Verification, path: Walk) -> State:
    """The state behind a block: its kept tokens and the token after them are counted."""
    return {"answered": v.state["answered"] + path.length + 1}


def place(v: Verification) -> Tensor:
    """[B, N] the place in its answer, from 0, of the token that follows each node."""
    return v.state["answered"][:, None] + v.draft.depth


def ramp(t: Tensor, shape: Ramp, start: float, end: float, tokens: int, gamma: float = 1.0) -> Tensor:
    """From `start` at place 0 to `end` at place `tokens`: all at once there (step), or along (t/tokens)^gamma (power;
    linear: gamma 1). t [...] int64 -> [...] float32."""
    if shape == "step":
        return torch.where(t < tokens, start, end)
    share = (t / max(tokens, 1)).clamp(max=1.0) if tokens else torch.ones_like(t, dtype=torch.float32)
    return start + (end - start) * share ** (gamma if shape == "power" else 1.0)


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
           it is overlooked). Of the answer's first token and of the tokens of each block, begin opens the span and end
           closes it, from the next block on.
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

    def bind(self, target: Target, model: Model | None) -> Rule:
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
