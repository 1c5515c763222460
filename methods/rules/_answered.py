"""How far an answer has come: state of the rules whose strictness changes along it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from methods.rules.verification import State, Verification
from methods.rules.walk import Walk

Ramp = Literal["step", "linear", "power"]


def none_yet(rows: Sequence[Sequence[int]], device: torch.device) -> State:
    """answered: [B] int64, tokens of each answer so far; the first one is there before any draft."""
    return {"answered": torch.ones(len(rows), dtype=torch.long, device=device)}


def and_these(v: Verification, path: Walk) -> State:
    """The state behind a block: the kept tokens and the one after them are answered too."""
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
